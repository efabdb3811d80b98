"""What users would take instead of this library's metrics, as functions of the same captions, on the same weights."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from reward import CaptionSample

__all__ = ["bert_folder", "bert_score", "clip_folder", "ngrams", "padded_vela", "torchmetrics_clip"]

Scores = Callable[[], Any]


def ngrams(samples: Sequence[CaptionSample]) -> tuple[Callable[[], None], dict[str, Scores]]:
    """pycocoevalcap: splits the texts into words; then {metric: scores}, of these words."""
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.meteor.meteor import Meteor
    from pycocoevalcap.rouge.rouge import Rouge
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    references = {row: [{"caption": text} for text in sample.references] for row, sample in enumerate(samples)}
    candidates = {row: [{"caption": sample.candidate}] for row, sample in enumerate(samples)}
    words: list[dict[int, list[str]]] = []

    def split() -> None:
        words[:] = [PTBTokenizer().tokenize(texts) for texts in (references, candidates)]

    split()
    meteor = Meteor()
    return split, {
        "bleu4": lambda: Bleu(4).compute_score(*words, verbose=0)[1][3],
        "rouge_l": lambda: Rouge().compute_score(*words)[1],
        "cider": lambda: Cider().compute_score(*words)[1],
        "meteor": lambda: meteor.compute_score(*words)[1],
    }


def bert_folder(folder: Path, texts: Sequence[str], *, width: int, layers: int) -> Path:
    """A BERT with random weights, whose vocabulary is the words of the texts and the beginnings and rests of words."""
    from transformers import BertConfig, BertModel, BertTokenizer

    words = {word.strip(".,") for text in texts for word in text.lower().split()}
    letters = sorted({letter for word in words for letter in word} | set(".,"))
    most = sorted(words, key=lambda word: (len(word), word))[: len(words) * 4 // 5]  # the others are split
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters), *most]
    tokenizer = BertTokenizer(vocab={word: row for row, word in enumerate(dict.fromkeys(vocab))}, model_max_length=512)
    torch.manual_seed(0)
    sizes = {"hidden_size": width, "num_attention_heads": width // 64, "intermediate_size": 4 * width}
    model = BertModel(BertConfig(vocab_size=len(tokenizer), num_hidden_layers=layers, **sizes), add_pooling_layer=False)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def bert_score(folder: Path, samples: Sequence[CaptionSample], *, layer: int) -> Scores:
    """bert-score: F1 of each caption."""
    from bert_score import BERTScorer

    scorer = BERTScorer(model_type=str(folder), num_layers=layer, device="cpu")
    candidates = [sample.candidate for sample in samples]
    references = [list(sample.references) for sample in samples]
    return lambda: scorer.score(candidates, references)[2].numpy()


def clip_folder(folder: Path, name: str = "ViT-B-32-quickgelu") -> Path:
    """A CLIP of open_clip with random weights."""
    import open_clip
    from safetensors.torch import save_file

    torch.manual_seed(0)
    config = open_clip.get_model_config(name)
    weights = open_clip.create_model(name).state_dict()
    save_file({key: value.contiguous() for key, value in weights.items()}, folder / "open_clip_model.safetensors")
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": config, "preprocess_cfg": {}}))
    return folder


def torchmetrics_clip(folder: Path, samples: Sequence[CaptionSample], *, batch: int) -> Scores:
    """CLIPScore of torchmetrics, as it gives it for one image and one caption each; `folder` is of `clip_folder`."""
    from torchmetrics.functional.multimodal.clip_score import _clip_score_update

    model, processor = _hugging_clip(folder)
    images = {id(sample.image): torch.from_numpy(np.array(sample.image)).permute(2, 0, 1) for sample in samples}

    def score() -> np.ndarray:
        found = []
        for start in range(0, len(samples), batch):
            part = samples[start : start + batch]
            pixels = [images[id(sample.image)] for sample in part]
            with torch.no_grad():
                found.append(_clip_score_update(pixels, [sample.candidate for sample in part], model, processor)[0])
        return torch.cat(found).numpy()

    return score


def _hugging_clip(folder: Path) -> tuple[Any, Any]:
    """The same CLIP as transformers has it, which torchmetrics takes."""
    from open_clip import SimpleTokenizer
    from safetensors.torch import load_file
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, CLIPProcessor, CLIPTokenizer

    class Features(CLIPModel):
        """What torchmetrics 1.9 expects; those of transformers 5 give more than the features."""

        def get_image_features(self, *arguments: Any, **named: Any) -> torch.Tensor:
            return super().get_image_features(*arguments, **named).pooler_output

        def get_text_features(self, *arguments: Any, **named: Any) -> torch.Tensor:
            return super().get_text_features(*arguments, **named).pooler_output

    own = load_file(folder / "open_clip_model.safetensors")
    model = Features(CLIPConfig(projection_dim=own["text_projection"].shape[1])).eval()  # the sizes of ViT-B/32
    state = {"logit_scale": own["logit_scale"]}
    names = {
        "visual.class_embedding": "vision_model.embeddings.class_embedding",
        "visual.positional_embedding": "vision_model.embeddings.position_embedding.weight",
        "visual.conv1.weight": "vision_model.embeddings.patch_embedding.weight",
        "visual.ln_pre.": "vision_model.pre_layrnorm.",
        "visual.ln_post.": "vision_model.post_layernorm.",
        "visual.transformer.resblocks.": "vision_model.encoder.layers.",
        "token_embedding.": "text_model.embeddings.token_embedding.",
        "positional_embedding": "text_model.embeddings.position_embedding.weight",
        "ln_final.": "text_model.final_layer_norm.",
        "transformer.resblocks.": "text_model.encoder.layers.",
    }
    parts = {
        "ln_1": "layer_norm1",
        "ln_2": "layer_norm2",
        "c_fc": "fc1",
        "c_proj": "fc2",
        "attn.out_proj": "self_attn.out_proj",
    }
    for key, value in own.items():
        if key in ("visual.proj", "text_projection"):
            state["visual_projection.weight" if "visual" in key else "text_projection.weight"] = value.T
            continue
        start = next((start for start in names if key.startswith(start)), None)
        if start is None:
            continue
        name = key.replace(start, names[start], 1)
        for old, new in parts.items():
            name = name.replace(old, new)
        if "attn.in_proj_" in name:
            kind = name.rpartition("_")[2]
            for which, third in zip("qkv", value.chunk(3), strict=True):
                state[name.replace(f"attn.in_proj_{kind}", f"self_attn.{which}_proj.{kind}")] = third
        else:
            state[name] = value
    model.load_state_dict(state, strict=True)
    simple = SimpleTokenizer()
    vocab = {word: number for word, number in simple.encoder.items() if "_of_text" not in word}
    vocab |= {"<|startoftext|>": simple.sot_token_id, "<|endoftext|>": simple.eot_token_id}
    merges = sorted(simple.bpe_ranks, key=simple.bpe_ranks.__getitem__)
    return model, CLIPProcessor(CLIPImageProcessor(), CLIPTokenizer(vocab=vocab, merges=merges, model_max_length=77))


def padded_vela(scorer: Any, samples: Sequence[CaptionSample], *, batch: int) -> Scores:
    """A VELA in batches of whole prompts, padded, in the order of the data, as COMET's `predict` runs its models."""
    from reward.metrics.vela.training import VelaCollator

    model, collate = scorer.model, VelaCollator(scorer.model)
    rows = [
        {"sample": sample, "aspect": aspect, "target": 0.0}
        for sample in samples
        for aspect in range(len(scorer.spec.aspects))
    ]

    def score() -> np.ndarray:
        found = []
        for start in range(0, len(rows), batch):
            inputs = collate(rows[start : start + batch])
            inputs.pop("labels")
            with torch.inference_mode():
                found.append(model(**inputs).scores.flatten())
        return torch.cat(found).view(len(samples), -1).numpy()

    return score
