"""What users would take instead of this library's metrics, as functions of the same captions, on the same weights."""

import numpy as np
import torch

BATCH = 32  # captions of a batch of theirs that has no default


def ngrams(samples):
    """pycocoevalcap: splits the texts into words; then {metric: scores}, of these words."""
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.meteor.meteor import Meteor
    from pycocoevalcap.rouge.rouge import Rouge
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    references = {row: [{"caption": text} for text in sample.references] for row, sample in enumerate(samples)}
    candidates = {row: [{"caption": sample.candidate}] for row, sample in enumerate(samples)}
    words = []

    def split():
        words[:] = [PTBTokenizer().tokenize(texts) for texts in (references, candidates)]

    split()
    meteor = Meteor()
    return split, {
        "bleu4": lambda: Bleu(4).compute_score(*words, verbose=0)[1][3],
        "rouge_l": lambda: Rouge().compute_score(*words)[1],
        "cider": lambda: Cider().compute_score(*words)[1],
        "meteor": lambda: meteor.compute_score(*words)[1],
    }


def bert_folder(folder, texts, *, width, layers):
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


def bert_score(folder, samples, *, layer):
    """bert-score: F1 of each caption."""
    from bert_score import BERTScorer

    scorer = BERTScorer(model_type=str(folder), num_layers=layer, device="cpu")
    candidates = [sample.candidate for sample in samples]
    references = [list(sample.references) for sample in samples]
    return lambda: scorer.score(candidates, references)[2].numpy()


def clip_folder(folder):
    """A CLIP ViT-B/32 of transformers with random weights and OpenAI's tokens."""
    from open_clip import SimpleTokenizer
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, CLIPProcessor, CLIPTokenizer

    simple = SimpleTokenizer()
    vocab = {word: number for word, number in simple.encoder.items() if "_of_text" not in word}
    vocab |= {"<|startoftext|>": simple.sot_token_id, "<|endoftext|>": simple.eot_token_id}
    merges = sorted(simple.bpe_ranks, key=simple.bpe_ranks.__getitem__)
    tokens = CLIPTokenizer(vocab=vocab, merges=merges, model_max_length=77)
    torch.manual_seed(0)
    CLIPModel(CLIPConfig()).save_pretrained(folder)
    CLIPProcessor(CLIPImageProcessor(), tokens).save_pretrained(folder)
    return folder


def torchmetrics_clip(folder, samples):
    """CLIPScore of torchmetrics, as it gives it for one image and one caption each; `folder` is of `clip_folder`."""
    from torchmetrics.functional.multimodal.clip_score import _clip_score_update
    from transformers import CLIPModel, CLIPProcessor

    class Features(CLIPModel):
        """What torchmetrics 1.9 expects; those of transformers 5 give more than the features."""

        def get_image_features(self, *arguments, **named):
            return super().get_image_features(*arguments, **named).pooler_output

        def get_text_features(self, *arguments, **named):
            return super().get_text_features(*arguments, **named).pooler_output

    model, processor = Features.from_pretrained(folder).eval(), CLIPProcessor.from_pretrained(folder)
    images = {id(sample.image): torch.from_numpy(np.array(sample.image)).permute(2, 0, 1) for sample in samples}

    def score():
        found = []
        for start in range(0, len(samples), BATCH):
            part = samples[start : start + BATCH]
            pixels = [images[id(sample.image)] for sample in part]
            with torch.no_grad():
                found.append(_clip_score_update(pixels, [sample.candidate for sample in part], model, processor)[0])
        return torch.cat(found).numpy()

    return score


def padded_vela(scorer, samples):
    """A VELA in batches of whole prompts, padded, in the order of the data, as COMET's `predict` runs its models."""
    from reward.metrics.vela.training import VelaCollator

    model, collate = scorer.model, VelaCollator(scorer.model)
    rows = [
        {"sample": sample, "aspect": aspect, "target": 0.0}
        for sample in samples
        for aspect in range(len(scorer.spec.aspects))
    ]

    def score():
        found = []
        for start in range(0, len(rows), BATCH):
            inputs = collate(rows[start : start + BATCH])
            inputs.pop("labels")
            with torch.inference_mode():
                found.append(model(**inputs).scores.flatten())
        return torch.cat(found).view(len(samples), -1).numpy()

    return score
