"""Baselines that count shared n-grams: BLEU, ROUGE-L, METEOR, CIDEr and SPICE, through the package pycocoevalcap."""

from __future__ import annotations

from typing import Any

from reward.metrics.base import MetricSpec

__all__ = ["BLEU", "CIDER", "METEOR", "ROUGE_L", "SPECS", "SPICE"]

_SHARED: dict[str, Any] = {
    "needs_image": False,
    "needs_references": True,
    "extra": "ngrams",
    "suits": "short",
    "blind_to": "the image; right words that no reference has",
}
_BLEU_PAPER = "BLEU: a Method for Automatic Evaluation of Machine Translation (2002)"

BLEU = tuple(
    MetricSpec(
        name=f"bleu{order}",
        scorer=f"reward.metrics.ngrams.bleu_rouge:Bleu{order}Scorer",
        sources="checkpoint",
        aspects=(f"bleu_{order}",),
        has_embedded=True,
        paper=_BLEU_PAPER,
        citation={
            "author": "Papineni, Kishore and Roukos, Salim and Ward, Todd and Zhu, Wei-Jing",
            "title": "{BLEU}: a Method for Automatic Evaluation of Machine Translation",
            "booktitle": "Proceedings of ACL",
            "year": "2002",
        },
        **_SHARED,
    )
    for order in (1, 2, 3, 4)
)
ROUGE_L = MetricSpec(
    name="rouge_l",
    scorer="reward.metrics.ngrams.bleu_rouge:RougeLScorer",
    sources="checkpoint",
    aspects=("rouge_l",),
    has_embedded=True,
    paper="ROUGE: A Package for Automatic Evaluation of Summaries (2004)",
    citation={
        "author": "Lin, Chin-Yew",
        "title": "{ROUGE}: A Package for Automatic Evaluation of Summaries",
        "booktitle": "Text Summarization Branches Out",
        "year": "2004",
    },
    **_SHARED,
)
CIDER = MetricSpec(
    name="cider",
    scorer="reward.metrics.ngrams.cider:CiderScorer",
    sources="checkpoint",
    aspects=("cider",),
    needs_corpus=True,
    range=(0.0, 10.0),
    paper="CIDEr: Consensus-based Image Description Evaluation (2015); its variant CIDEr-D",
    citation={
        "author": "Vedantam, Ramakrishna and Zitnick, C. Lawrence and Parikh, Devi",
        "title": "{CIDEr}: Consensus-based Image Description Evaluation",
        "booktitle": "Proceedings of CVPR",
        "year": "2015",
    },
    **_SHARED,
)
METEOR = MetricSpec(
    name="meteor",
    scorer="reward.metrics.ngrams.meteor:MeteorScorer",
    sources="checkpoint",
    aspects=("meteor",),
    has_embedded=True,
    paper="Meteor Universal: Language Specific Translation Evaluation for Any Target Language (2014)",
    citation={
        "author": "Denkowski, Michael and Lavie, Alon",
        "title": "Meteor Universal: Language Specific Translation Evaluation for Any Target Language",
        "booktitle": "Proceedings of the Workshop on Statistical Machine Translation",
        "year": "2014",
    },
    **_SHARED,
)
SPICE = MetricSpec(
    name="spice",
    scorer="reward.metrics.ngrams.spice:SpiceScorer",
    sources="checkpoint",
    aspects=("spice",),
    has_embedded=True,
    paper="SPICE: Semantic Propositional Image Caption Evaluation (2016)",
    citation={
        "author": "Anderson, Peter and Fernando, Basura and Johnson, Mark and Gould, Stephen",
        "title": "{SPICE}: Semantic Propositional Image Caption Evaluation",
        "booktitle": "Proceedings of ECCV",
        "year": "2016",
    },
    **_SHARED,
)
SPECS = (*BLEU, ROUGE_L, METEOR, CIDER, SPICE)
