"""Tiny vision-language models that can judge, with random weights and real processors: LLaVA and Qwen2-VL."""

import re

import numpy as np
import torch
import transformers as tf
from PIL import Image
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from reward.data.images import load_image
from reward.judges import ScriptedJudge
from tests.toys.toy_models import QWEN_TOKENS, build_llava, build_qwen, special_ids, text_sizes

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
    tokens = byte_tokenizer(*QWEN_TOKENS)
    sizes = {"patch_size": 4, "temporal_patch_size": 1, "merge_size": 2, "min_pixels": 16 * 16, "max_pixels": 48 * 48}
    processor = tf.Qwen2VLProcessor(
        tf.Qwen2VLImageProcessor(**sizes),
        tokens,
        tf.Qwen2VLVideoProcessor(**sizes),
        chat_template=TEMPLATE.replace("IMAGE", "<|vision_start|><|image_pad|><|vision_end|>"),
    )
    text = text_sizes(tokens, width=32, layers=2, positions=2048)
    vision = {"embed_dim": 16, "hidden_size": 32, "mlp_ratio": 2}
    model = build_qwen(tf.Qwen2VLForConditionalGeneration, tf.Qwen2VLConfig, tokens, text, **vision)
    return with_random_weights(model, tokens), processor


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
