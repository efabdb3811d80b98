"""The baselines in the papers' tables: by which metric each is printed here, or why none does."""

from __future__ import annotations

__all__ = ["BASELINES"]

# {name: (metrics, note)}; without metrics, the note says why, and the authors' scores go into `--score-column`.
BASELINES: dict[str, tuple[tuple[str, ...], str]] = {
    "output length": (("length",), ""),
    "BLEU, ROUGE-L, METEOR, CIDEr": (
        ("bleu4", "rouge_l", "meteor", "cider"),
        "needs Java: nltk's METEOR, which does not, gives tau-c 35.1 on Flickr8k-Expert, not 41.8",
    ),
    "SPICE": (("spice",), "needs Java and Stanford CoreNLP 3.6.0"),
    "BERTScore": (("bertscore",), "with FacebookAI/roberta-large"),
    "CLIPScore, RefCLIPScore, Long-CLIPScore": (("clipscore", "refclipscore", "longclipscore"), ""),
    "PAC-S, PAC-S++, RefPAC-S, RefPAC-S++": (("pacscore", "refpacscore"), "with a file of their authors"),
    "FLEUR, RefFLEUR, HarmonicEval": (("fleur", "harmoniceval"), "with a judge"),
    "CLAIR": (("clair",), "with a judge, which need not see images; our wording"),
    "VQAScore": (("vqascore",), "with a judge; CLIP-FlanT5 is none, LLaVA-1.5 is one; our wording"),
    "Polos": ((), "its package, 0.1.3, wants Python 3.10.0 or older"),
    "DENEB": ((), "no package: deneb on PyPI draws charts"),
    "CAPTURE": (
        (),
        "its package, 0.1.13 of July 2024, asks for CUDA and fetches models that cannot be set; not kept up",
    ),
    "TIGEr, ViLBERTScore, UMIC, InfoMetIC, FAIEr, ALOHa, G-VEval, EXPERT, SPECS, VDC-Score": ((), "no package found"),
}
