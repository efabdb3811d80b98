"""Small checkpoints made here, with `tests.toys` of the tree. Each is made once; `--toys FOLDER` keeps them."""

from same_numbers.book import RUN


def toy(name):
    """The folder of a checkpoint: of `tests.toys.toy_clips`, `tests.toys.toy_judges`, or of a text model."""
    import torch

    from tests.toys import toy_judges
    from tests.toys.toy_clips import small_clip, toy_clip

    makers = {
        "open clip": small_clip,
        "bert": save_bert,
        "reranker": lambda folder: save_bert(folder, head=True),
        "reward model": save_reward_model,
        "judge of decimals": lambda folder: toy_judges.save_rating_judge(folder, "0"),
        "judge of grades": lambda folder: toy_judges.save_rating_judge(folder, "12345"),
        "judge of words": toy_judges.save_yes_judge,
        "judge of pairs": toy_judges.save_choosing_judge,
    }
    folder = RUN.toys / name.replace(" ", "_").replace("'", "")
    if not folder.exists():
        torch.manual_seed(0)
        unfinished = folder.with_name(f"{folder.name}.unfinished")
        unfinished.mkdir(parents=True)
        makers.get(name, lambda folder: toy_clip(folder, name))(unfinished)
        unfinished.rename(folder)
    return str(folder)


def save_bert(folder, head=False):
    """A BERT, a reranker of texts if it has a head; its weights are the same with every PyTorch."""
    import torch
    import transformers as tf

    from tests.toys.toy_clips import bert_tokenizer

    tokens = bert_tokenizer(62)
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}
    config = tf.BertConfig(vocab_size=len(tokens), max_position_embeddings=64, num_labels=1, **sizes)
    model = tf.BertForSequenceClassification(config) if head else tf.BertModel(config, add_pooling_layer=False)
    matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    with torch.no_grad():
        for number, weight in enumerate(matrices):
            noise = torch.sin(torch.arange(weight.numel(), dtype=torch.float64) * 12.9898 + number) * 43758.5453
            weight.copy_(noise.frac().view_as(weight))
    model.save_pretrained(folder)
    tokens.save_pretrained(folder)


def save_reward_model(folder):
    """A small LLaVA with the head for values of TRL."""
    import torch
    from safetensors.torch import load_file, save_file

    from tests.toys.toy_judges import llava

    for half in llava():
        half.save_pretrained(folder)
    head = {"v_head.summary.weight": torch.randn(1, 32), "v_head.summary.bias": torch.randn(1)}
    save_file(load_file(folder / "model.safetensors") | head, folder / "model.safetensors", {"format": "pt"})
