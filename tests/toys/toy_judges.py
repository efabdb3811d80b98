"""Tiny vision-language models that can judge: random weights, real processors, and answers in a format on request."""

import re

import numpy as np
import torch
import transformers as tf
from PIL import Image
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from reward.data.images import load_image
from reward.judges import ScriptedJudge
from tests.toys.toy_captioners import QWEN_TOKENS, build_llava, build_qwen, special_ids, text_sizes

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% for c in m.content %}{% if c.type == 'image' %}IMAGE"
    "{% else %}{{ c.text }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LINE_TEMPLATE = TEMPLATE.replace("IMAGE", "<image>\n")
# As LLaVA-1.5 has it: nothing stands between the colon and the answer, and the tokenizer puts a blank there.
LLAVA_TEMPLATE = (
    "{% for m in messages %}{% if m.role != 'system' %}{{ m.role | upper }}: {% endif %}{% for c in m.content %}"
    "{% if c.type == 'image' %}<image>\n{% else %}{{ c.text }} {% endif %}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)
# Besides single bytes: a digit with a space before it, as most tokenizers have.
MERGES = [("Ġ", digit) for digit in "12345"]


def byte_tokenizer(*special, merges=MERGES):
    """One token a byte, and the merges given."""
    names = ["<|pad|>", "<|im_start|>", "<|im_end|>", *special]
    vocabulary = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in merges)]
    inner = Tokenizer(models.BPE({token: index for index, token in enumerate([*names, *vocabulary])}, list(merges)))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([AddedToken(name, special=True) for name in names])
    return tf.PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="<|pad|>",
        eos_token="<|im_end|>",
        bos_token="<|im_start|>",
        padding_side="left",
        extra_special_tokens={"image_token": "<image>"} if "<image>" in special else {},
    )


def llama_tokenizer():
    """A BPE in the manner of sentencepiece, as Llama's: words begin with "\u2581"; before a digit it stands alone."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    merges = [("\u2581", letter) for letter in letters + letters.upper()] + [("\u2581", "\u2581")]
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    single = ["\u2581", *"0123456789", *letters, *letters.upper(), *".,:;!?'\"()>-"]
    vocabulary = [*names, *("".join(pair) for pair in merges), *single]
    tokens = tf.LlamaTokenizer({token: index for index, token in enumerate(vocabulary)}, merges, legacy=False)
    tokens.add_special_tokens({"pad_token": "<pad>", "additional_special_tokens": ["<image>"]})
    tokens.image_token, tokens.padding_side = "<image>", "left"
    return tokens


def without_blanks(model, processor):
    """The same model, which never writes white space: what is next is then what one forward pass says."""
    bias = torch.zeros(model.lm_head.out_features)
    tokenizer = processor.tokenizer
    bias[[token for token in range(len(tokenizer)) if not tokenizer.decode([token]).strip()]] = -1e4
    head = torch.nn.Linear(model.lm_head.in_features, len(bias), dtype=model.dtype)
    head.weight, head.bias = model.lm_head.weight, torch.nn.Parameter(bias.to(model.dtype))
    model.lm_head = head
    return model, processor


def with_random_weights(model, tokens):
    """Random weights with which the next token depends on the image and on every word."""
    torch.manual_seed(0)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1 and "norm" in name and name.endswith("weight"):
            torch.nn.init.ones_(parameter)
        else:
            torch.nn.init.normal_(parameter, std=0.3)
    model.generation_config = tf.GenerationConfig(**special_ids(tokens))
    return model.eval()


def llava(merges=MERGES, length=2048, *, tokens=None, template=LINE_TEMPLATE, **text):
    """`text`: further settings of the decoder."""
    tokens = tokens or byte_tokenizer("<image>", merges=merges)
    sizes = text_sizes(tokens, width=32, layers=2, positions=length)
    model, processor = build_llava(tokens, {**sizes, **text}, template, patch_size=8)
    return with_random_weights(model, tokens), processor


def qwen2_vl():
    vision = {"embed_dim": 16, "hidden_size": 32, "mlp_ratio": 2}
    return _qwen(tf.Qwen2VLForConditionalGeneration, tf.Qwen2VLConfig, tf.Qwen2VLProcessor, {}, vision)


def qwen3_vl():
    vision = {"hidden_size": 16, "out_hidden_size": 32, "intermediate_size": 32, "deepstack_visual_indexes": [0]}
    parts = tf.Qwen3VLForConditionalGeneration, tf.Qwen3VLConfig, tf.Qwen3VLProcessor
    return _qwen(*parts, {"head_dim": 8}, vision)


def _qwen(model, config, processor, text, vision):
    """A model of the class `model` with its `config` and `processor`, and what the decoder and the vision tower add."""
    tokens = byte_tokenizer(*QWEN_TOKENS)
    sizes = {"patch_size": 4, "temporal_patch_size": 1, "merge_size": 2, "min_pixels": 16 * 16, "max_pixels": 48 * 48}
    template = TEMPLATE.replace("IMAGE", "<|vision_start|><|image_pad|><|vision_end|>")
    parts = tf.Qwen2VLImageProcessor(**sizes), tokens, tf.Qwen2VLVideoProcessor(**sizes)
    decoder = text_sizes(tokens, width=32, layers=2, positions=2048) | text
    made = with_random_weights(build_qwen(model, config, tokens, decoder, **vision), tokens)
    return made, processor(*parts, chat_template=template)


def shown_captions(question):
    """The two captions of a question of PairwiseJudge, unquoted."""
    texts = re.search(r"Caption 1:\n(.*?)\n\nCaption 2:\n(.*?)\n\nWhich", question.text, re.DOTALL)
    assert texts is not None
    return [re.sub("^> ", "", text, flags=re.MULTILINE) for text in texts.groups()]


class RecordingJudge(ScriptedJudge):
    """A ScriptedJudge that keeps its questions in `asked`; its functions may also be the one answer they give."""

    def __init__(self, answer=None, distribution=None, **options):
        self.asked = []
        super().__init__(self._noting(answer), self._noting(distribution), **options)

    def _noting(self, reply):
        def noted(question):
            self.asked.append(question)
            return reply(question) if callable(reply) else reply

        return None if reply is None else noted


def plain_inputs(processor, question, written="", *, add_special_tokens=False):
    """What the processor makes of one question and the beginning of an answer: the inputs of an unbatched pass."""
    turns = [{"role": role, "content": [{"type": "text", "text": text}]} for role, text in question.turns()]
    if question.image is not None:
        next(turn for turn in turns if turn["role"] == "user")["content"].insert(0, {"type": "image"})
    prompt = processor.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    images = None if question.image is None else [load_image(question.image)]
    text = [prompt + written]
    return processor(images=images, text=text, return_tensors="pt", add_special_tokens=add_special_tokens)


def plain_pass(model, **inputs):
    """The probabilities (V,) of the next token."""
    with torch.inference_mode():
        return model(**inputs).logits[0, -1].double().softmax(-1)


def spellings(processor, digits):
    """The ids of each digit, bare and after a space."""
    ids = processor.tokenizer.convert_tokens_to_ids
    return [[token for token in ids([digit, f"Ġ{digit}"]) if token is not None] for digit in digits]


def pictures(count, *, size=(32, 32)):
    """Different noisy images of one size."""
    generator = np.random.default_rng(0)
    return [Image.fromarray(generator.integers(0, 256, (*size[::-1], 3), dtype=np.uint8)) for _ in range(count)]


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


def save_choosing_judge(folder):
    """Writes the files of a LLaVA whose answer is 1, 2 or 0; nearly all probability goes to these three digits."""
    model, processor = strict_llava("120")
    answers = processor.tokenizer.convert_tokens_to_ids(list("120"))
    with torch.no_grad():
        # direction 0 says that the answer begins: nothing but the three digits may follow
        model.lm_head.weight[:, 0] = -100
        model.lm_head.weight[answers, 0] = 100
    return _save(folder, model, processor)


def save_rating_judge(folder, first):
    """Writes the files of `strict_llava` as those of any model of transformers."""
    return _save(folder, *strict_llava(first))


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
