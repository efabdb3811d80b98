"""Toy judges that keep to the format of an answer; which answer, depends on the question through random weights."""

import torch

from tests.toys.toy_judges import LLAVA_TEMPLATE, MERGES, llama_tokenizer, llava


def strict_llava(first, *, length=4096):
    """A LLaVA whose answer begins with one of the characters `first`; after "0" comes ".", after that digits 1 to 9."""
    model, processor = llava(MERGES, length)
    decimals = list("123456789")
    follows = {"\u010a": list(first), "0": ["."] if first == "0" else ["<|im_end|>"], ".": decimals}
    follows.update({digit: [*decimals, "<|im_end|>"] for digit in decimals})
    if first != "0":  # an answer of one digit, and no number with decimals
        follows.update({digit: ["<|im_end|>"] for digit in decimals})
    kinds = {"\u010a": 0, "0": 1, ".": 2, **dict.fromkeys(decimals, 3)}
    _lead(model, processor.tokenizer, follows, kinds)
    return model, processor


def blank_first_llava(*, strength=3.0):
    """A LLaVA with Llama's tokenizer, whose answer is a token of white space most likely, and then a digit.

    Args:
        strength: how much likelier the white space is than digits right away.
    """
    model, processor = llava(tokens=llama_tokenizer(), template=LLAVA_TEMPLATE)
    digits = list("12345")
    follows = {":": [*digits, "\u2581"], "\u2581": digits, **{digit: ["</s>"] for digit in digits}}
    _lead(model, processor.tokenizer, follows, {":": 0, "\u2581": 1, **dict.fromkeys(digits, 2)})
    with torch.no_grad():
        model.lm_head.weight[processor.tokenizer.convert_tokens_to_ids("\u2581"), 0] += strength
    return model, processor


def _lead(model, tokenizer, follows, kinds):
    """Has certain tokens follow certain others.

    Each of the tokens that matter has a direction of the hidden state of its own, which decides what kind of token is
    next; all other directions, which the image and the texts move, decide which of that kind.
    """
    ids = tokenizer.convert_tokens_to_ids
    embed, head = model.get_input_embeddings().weight, model.lm_head.weight
    with torch.no_grad():
        head.normal_(std=0.5, generator=torch.Generator().manual_seed(0))
        embed[:, :4] = 0
        head[:, :4] = 0
        for token, kind in kinds.items():
            embed[ids(token), kind] = 4
            for after in follows[token]:
                head[ids(after), kind] = 6
        for layer in model.model.language_model.layers:
            for weight in (layer.self_attn.o_proj.weight, layer.mlp.down_proj.weight):
                weight *= 0.3
                weight[:4] = 0  # nothing but the token itself moves these directions


def choosing_llava():
    """A LLaVA whose answer is 1, 2 or 0; nearly all probability goes to these three digits."""
    model, processor = strict_llava("120")
    answers = processor.tokenizer.convert_tokens_to_ids(list("120"))
    with torch.no_grad():
        # direction 0 says that the answer begins: nothing but the three digits may follow
        model.lm_head.weight[:, 0] = -100
        model.lm_head.weight[answers, 0] = 100
    return model, processor


def save_rating_judge(folder, first):
    """Writes the files of `strict_llava` as those of any model of transformers."""
    return _save(folder, *strict_llava(first))


def save_choosing_judge(folder):
    """Writes the files of `choosing_llava`."""
    return _save(folder, *choosing_llava())


def save_yes_judge(folder):
    """Writes a LLaVA whose answer is one token: Yes, No, a letter from A to D or a digit from 1 to 5."""
    model, processor = llava([*MERGES, ("Y", "e"), ("Ye", "s"), ("N", "o")], 4096)
    words = ["Yes", "No", *"ABCD12345"]
    follows = {"\u010a": words, **{word: ["<|im_end|>"] for word in words}}
    _lead(model, processor.tokenizer, follows, {"\u010a": 0, **dict.fromkeys(words, 1)})
    with torch.no_grad():
        model.lm_head.weight[:, 0] = -100
        model.lm_head.weight[processor.tokenizer.convert_tokens_to_ids(words), 0] = 100
        model.lm_head.weight[:, 1] = -100
        model.lm_head.weight[processor.tokenizer.convert_tokens_to_ids("<|im_end|>"), 1] = 100
        model.lm_head.weight[:, 4:] *= 0.1  # no word is hopeless
    return _save(folder, model, processor)


def _save(folder, model, processor):
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
