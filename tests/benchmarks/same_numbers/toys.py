"""Small checkpoints made here, with `tests.toys` of the tree. Each is made once; `--toys FOLDER` keeps them."""

from same_numbers.book import RUN


def toy(name):
    """The folder of a checkpoint of `makers()`, or of a type of `tests.toys.toy_clips`."""
    import torch

    folder = RUN.toys / name.replace(" ", "_").replace("'", "")
    if not folder.exists():
        torch.manual_seed(0)
        unfinished = folder.with_name(f"{folder.name}.unfinished")
        unfinished.mkdir(parents=True)
        makers()[name](unfinished)
        unfinished.rename(folder)
    return str(folder)


def clip_types():
    """Those of transformers."""
    from tests.toys.toy_clips import TYPES

    return list(TYPES)


def makers():
    """What writes each checkpoint into a folder."""
    from tests.toys import toy_judges
    from tests.toys.toy_clips import small_clip, toy_clip

    clips = {kind: lambda folder, kind=kind: toy_clip(folder, kind) for kind in clip_types()}
    return clips | {
        "open clip": small_clip,
        "bert": lambda folder: save_bert(folder, "bert"),
        "roberta": lambda folder: save_bert(folder, "roberta"),
        "reranker": lambda folder: save_bert(folder, "bert", head=True),
        "reward model": save_reward_model,
        "judge of decimals": lambda folder: toy_judges.save_rating_judge(folder, "0"),
        "judge of grades": lambda folder: toy_judges.save_rating_judge(folder, "12345"),
        "judge of words": toy_judges.save_yes_judge,
        "judge of pairs": toy_judges.save_choosing_judge,
    }


def roberta_tokenizer(length):
    """Single letters, as RoBERTa's byte-level BPE."""
    import transformers as tf
    from tokenizers import pre_tokenizers

    tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "\u0120a"]
    vocab = {token: number for number, token in enumerate(tokens)}
    return tf.RobertaTokenizer(vocab=vocab, merges=[("\u0120", "a")], model_max_length=length)


def save_bert(folder, kind, head=False):
    """A BERT or RoBERTa, a reranker of texts if it has a head; its weights are the same with every PyTorch."""
    import torch
    import transformers as tf

    from tests.toys.toy_clips import bert_tokenizer

    tokens = bert_tokenizer(62) if kind == "bert" else roberta_tokenizer(62)
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}
    config = tf.AutoConfig.for_model(kind, vocab_size=len(tokens), max_position_embeddings=64, num_labels=1, **sizes)
    made = tf.AutoModelForSequenceClassification if head else tf.AutoModel
    model = made.from_config(config, **({} if head else {"add_pooling_layer": False}))
    with torch.no_grad():
        for number, weight in enumerate(each for each in model.parameters() if each.ndim > 1):
            noise = torch.sin(torch.arange(weight.numel(), dtype=torch.float64) * 12.9898 + number) * 43758.5453
            weight.copy_(noise.frac().view_as(weight))
    model.save_pretrained(folder)
    tokens.save_pretrained(folder)


def save_reward_model(folder):
    """A small LLaVA with the head for values of TRL."""
    import torch
    from safetensors.torch import load_file, save_file

    from tests.toys.toy_judges import llava

    for each in llava():
        each.save_pretrained(folder)
    head = {"v_head.summary.weight": torch.randn(1, 32), "v_head.summary.bias": torch.randn(1)}
    save_file(load_file(folder / "model.safetensors") | head, folder / "model.safetensors", {"format": "pt"})
