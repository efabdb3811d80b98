"""Metrics that wrap a model of any kind, beside what users would write with the model's own library."""

import torch
from torch import nn

from reward import load_scorer
from reward.metrics.vlmreward.scorer import VlmRewardScorer
from tests.benchmarks import peers
from tests.toys import toy_judges
from tests.toys.toy_captioners import build_llava, text_sizes

PATCH = 2  # pixels: the image of 32 x 32 has 256 tokens


def embedding_model(folder):
    """A CLIP ViT-B/32 with random weights as a folder of sentence-transformers."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer

    clip = peers.clip_folder(folder / "embedding-clip")
    model = SentenceTransformer(modules=[Transformer(str(clip))], device="cpu")
    model.save_pretrained(str(folder / "embedding"))
    return folder / "embedding"


def embedscore(model, samples):
    """Cosines of sentence-transformers' `encode`, and ours."""
    from sentence_transformers import SentenceTransformer

    library, scorer = SentenceTransformer(str(model), device="cpu"), load_scorer("embedscore", model, device="cpu")

    def theirs():
        images = library.encode([sample.image for sample in samples])
        captions = library.encode([sample.candidate for sample in samples])
        return library.similarity_pairwise(images, captions).numpy()

    return theirs, lambda: scorer.score(samples).scores[:, 0]


def reward_model():
    """A LLaVA with random weights and a head, as a scorer."""
    tokens = toy_judges.byte_tokenizer("<image>")
    heads = {"num_attention_heads": 8, "num_key_value_heads": 8}
    sizes = text_sizes(tokens, width=512, layers=6, positions=2048) | heads
    model, processor = build_llava(tokens, sizes, toy_judges.LINE_TEMPLATE, patch_size=PATCH)
    toy_judges.with_random_weights(model, tokens)
    # With the toys' wide weights rounding grows from layer to layer.
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data.mul_(0.1)
    return VlmRewardScorer(model, processor, nn.Linear(512, 1))


def vlmreward(scorer, samples):
    """Numbers of a plain loop over the model, one caption a pass, and ours."""
    turns = [[("user", scorer.prompt), ("assistant", sample.candidate.strip())] for sample in samples]
    texts = [scorer.writer.chat(chat, with_image=True) for chat in turns]

    def theirs():
        rewards = []
        for text, sample in zip(texts, samples, strict=True):
            inputs = scorer.processor(text=[text], images=[sample.image], return_tensors="pt", add_special_tokens=False)
            with torch.inference_mode():
                state = scorer.model(**inputs, output_hidden_states=True).hidden_states[-1][0, -1]
                rewards.append(float(scorer.head(state)))
        return rewards

    return theirs, lambda: scorer.score(samples).scores[:, 0]
