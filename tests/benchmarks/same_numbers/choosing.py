"""What chooses among captions, what other frameworks call, and functions of users."""

import asyncio
import json

from same_numbers.book import ASK, RUN, flat, part, scenes

FUNCTIONS = """
def length(samples):
    return [float(len(sample.caption.split())) for sample in samples]

def overlap(samples):
    return [len({*sample.caption.split()} & {*" ".join(sample.references).split()}) / 7 for sample in samples]

def redness(samples):
    return [sum(sample.image.resize((4, 4)).getpixel((1, 2))) / len(sample.caption) for sample in samples]

redness.needs_image = True

def of_lists(images, captions):
    return [image.getpixel((3, 3))[0] + len(text) / 9 for image, text in zip(images, captions)]

def of_one(image, caption):
    return None if "star" in caption else image.getpixel((5, 5))[2] / (1 + len(caption))
"""


@part
def decoding(book):
    """`BestOfN` in the `generate` of the embedded policy, and `rerank`."""
    import torch

    from integrations.hf_generate import BestOfN, rerank
    from integrations.trl import load_policy
    from reward import BeitScoreReward, CombinedReward, VelaReward

    model, processor = load_policy("embedded")
    images = [scene["image"] for scene in scenes()[:3]]
    references = [scene["references"] for scene in scenes()[:3]]
    turn = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": ASK}]}
    prompt = processor.apply_chat_template([turn], add_generation_prompt=True, tokenize=False)
    inputs = processor(images=images, text=[prompt] * 3, return_tensors="pt", padding=True)
    vela = VelaReward()
    choices = {
        "vela": (vela, {"n": 4}, {}),
        "in parts": (vela, {"n": 4, "chunk": 6}, {}),
        "beitscore": (BeitScoreReward(), {"n": 3}, {}),
        "two best": ("length", {"n": 4}, {"num_return_sequences": 2, "do_sample": True}),
        "combined": (CombinedReward([vela, "unigram"], "min"), {"n": 2}, {"references": references}),
    }
    for key, (reward, options, columns) in choices.items():
        torch.manual_seed(7)
        strategy = BestOfN(reward, processor=processor, **options)
        out = model.generate(**inputs, custom_generate=strategy, images=images, max_new_tokens=40, **columns)
        book.note(f"{key}, tokens", out)
        for field in ("captions", "rewards", "best"):
            book.note(f"{key}, {field}", getattr(strategy.last, field))
    for number, scene in enumerate(scenes()[:8]):
        texts = [text for text in scene["captions"].values() if text is not None]
        for name, reward in (("vela", vela), ("beitscore", "beitscore"), ("unigram", "unigram"), ("length", "length")):
            order = rerank(texts, image=scene["image"], references=scene["references"], reward=reward)
            book.note(f"rerank {number} by {name}", order)


@part
def adapters(book):
    """verl, ms-swift and OpenRLHF, without these frameworks."""
    from integrations.ms_swift import CaptionORM
    from integrations.openrlhf import make_reward_func
    from integrations.verl import compute_score

    names, images, captions, references = flat(3, "good, rated, other, dots, long, chinese, thought")
    folder = RUN.folder / "photos"
    folder.mkdir()
    files = [f"{name.split()[0]}.png" for name in names]
    for file, image in zip(files, images, strict=True):
        image.save(folder / file)

    async def by_verl(**settings):
        calls = []
        for file, text, truths in zip(files, captions, references, strict=True):
            info = {"image": str(folder / file), "references": truths}
            calls.append(compute_score("a", text, "A star.", info, **settings))
        return await asyncio.gather(*calls)

    prompt = "<|im_start|>user\n<|image_pad|>Describe.<|im_end|>\n<|im_start|>assistant\n"
    queries = [prompt.replace("<|image_pad|>", "<|image_pad|>" * 9) + text + "<|im_end|>" for text in captions]
    labels = [json.dumps({"image": a, "references": b}) for a, b in zip(files, references, strict=True)]
    cells = [[{"bytes": (folder / file).read_bytes(), "path": None}] for file in files]
    turns = [[{"role": "user", "content": "<image>Describe."}]] * len(names)
    for settings in (
        {"metric": "vela", "weights": "desc=1,rel=3"},
        {"metric": "beitscore", "missing": -1.0},
        {"metric": "refclipscore"},
        {"metric": "unigram", "missing": 0.25},
    ):
        swift = CaptionORM(**settings)(captions, images=cells, references=references, messages=turns)
        rlhf = make_reward_func(image_root=folder, **settings)(queries, [prompt] * len(names), labels)
        book.note(f"verl, {settings['metric']}", dict(zip(names, asyncio.run(by_verl(**settings)), strict=True)))
        book.note(f"ms-swift, {settings['metric']}", dict(zip(names, swift, strict=True)))
        book.note(f"OpenRLHF, {settings['metric']}", rlhf)


@part
def functions(book):
    """A function as a metric, in each way that one may be written, as itself and by its place in a file."""
    from reward import CaptionSample, MetricReward, load_scorer, rerank

    file = RUN.folder / "my_metric.py"
    file.write_text(FUNCTIONS)
    module = {"__name__": "my_metric"}
    exec(compile(FUNCTIONS, str(file), "exec"), module)
    names, images, captions, references = flat(4)
    chats = [[{"role": "assistant", "content": text}] for text in captions]
    rows = zip(images, captions, references, strict=True)
    samples = [CaptionSample(b, a, c) for a, b, c in rows if b is not None and b.strip(" \n\u200b")]
    texts = [text for text in scenes()[0]["captions"].values() if text]
    for name in ("length", "overlap", "redness", "of_lists", "of_one"):
        for way, metric in {"itself": module[name], "place": f"{file}:{name}"}.items():
            key = f"{name}, {way}"
            reward = MetricReward(metric)
            book.table(key, load_scorer(metric).score(images, captions, references), names)
            columns = {"image": images, "references": references}
            book.note(f"{key}, chats", reward([ASK] * len(names), chats, **columns))
            book.note(f"{key}, rewards(samples)", reward.rewards(samples))
            book.note(f"{key}, name", [reward.__name__, *reward.spec.aspects])
        order = rerank(texts, image=images[0], references=references[0], reward=module[name])
        book.note(f"{name}, order", order)
