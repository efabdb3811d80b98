"""What chooses among captions, what other frameworks call, and functions of one's own."""

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

def polite(prompts, completions, **columns):
    return [text.count("a") / 3 for text in completions]

def known(prompts, completions, references=None, image=None, **columns):
    return [len(text) / (1 + len(some or [])) for text, some in zip(completions, references)]

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
    turn = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": ASK}]}
    prompt = processor.apply_chat_template([turn], add_generation_prompt=True, tokenize=False)
    inputs = processor(images=images, text=[prompt] * 3, return_tensors="pt", padding=True)
    vela, truths = VelaReward(), [scene["references"] for scene in scenes()[:3]]
    choices = {
        "vela": (vela, {"n": 4}, {}),
        "in parts": (vela, {"n": 4, "chunk": 6}, {}),
        "beitscore": (BeitScoreReward(), {"n": 3}, {}),
        "two best": ("length", {"n": 4}, {"num_return_sequences": 2, "do_sample": True}),
        "clipscore": ("clipscore", {"n": 4}, {}),
        "combined": (CombinedReward([vela, "unigram"], "min"), {"n": 2}, {"references": truths}),
    }
    for key, (reward, options, given) in choices.items():
        torch.manual_seed(7)
        strategy = BestOfN(reward, processor=processor, **options)
        out = model.generate(**inputs, custom_generate=strategy, images=images, max_new_tokens=40, **given)
        book.note(f"{key}, tokens", out)
        for field in ("captions", "rewards", "best"):
            book.note(f"{key}, {field}", getattr(strategy.last, field))
    for place, scene in enumerate(scenes()[:8]):
        texts = [text for text in scene["captions"].values() if text is not None]
        given = {"image": scene["image"], "references": scene["references"]}
        for name, reward in (("vela", vela), ("beitscore", "beitscore"), ("unigram", "unigram"), ("length", "length")):
            book.note(f"rerank {place} by {name}", rerank(texts, reward=reward, **given))


@part
def adapters(book):
    """verl, ms-swift and OpenRLHF, without these frameworks, and data sets for TRL."""
    from integrations.ms_swift import CaptionORM
    from integrations.openrlhf import make_reward_func
    from integrations.trl import make_preference_dataset, make_prompt_dataset
    from integrations.verl import compute_score
    from reward import MetricReward

    names, images, captions, references = flat(3, "good, rated, other, dots, long, chinese, thought")
    (RUN.folder / "photos").mkdir()
    files = [f"{name.split()[0]}.png" for name in names]
    for file, image in zip(files, images, strict=True):
        image.save(RUN.folder / "photos" / file)

    async def by_verl(**settings):
        asked = []
        for file, text, truths in zip(files, captions, references, strict=True):
            info = {"image": str(RUN.folder / "photos" / file), "references": truths}
            asked.append(compute_score("a", text, "A star.", info, **settings))
        return await asyncio.gather(*asked)

    prompt = "<|im_start|>user\n<|image_pad|>Describe.<|im_end|>\n<|im_start|>assistant\n"
    queries = [prompt.replace("<|image_pad|>", "<|image_pad|>" * 9) + text + "<|im_end|>" for text in captions]
    labels = [json.dumps({"image": a, "references": b}) for a, b in zip(files, references, strict=True)]
    chosen = {
        "vela": {"metric": "vela", "weights": "desc=1,rel=3"},
        "beitscore": {"metric": "beitscore", "missing": -1.0},
        "refclipscore": {"metric": "refclipscore"},
        "unigram": {"metric": "unigram", "missing": 0.25},
    }
    for key, settings in chosen.items():
        given = asyncio.run(by_verl(**settings))
        book.note(f"verl, {key}", dict(zip(names, given, strict=True)))
        cells = [[{"bytes": (RUN.folder / "photos" / file).read_bytes(), "path": None}] for file in files]
        turns = [[{"role": "user", "content": "<image>Describe."}]] * len(names)
        swift = CaptionORM(**settings)(captions, images=cells, references=references, messages=turns)
        book.note(f"ms-swift, {key}", dict(zip(names, swift, strict=True)))
        rlhf = make_reward_func(image_root=RUN.folder / "photos", **settings)(queries, [prompt] * len(names), labels)
        book.note(f"OpenRLHF, {key}", rlhf)
    rows = [{"picture": a, "refs": b, "number": n} for n, (a, b) in enumerate(zip(images, references, strict=True))]
    asks = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Describe the picture."}]
    data = make_prompt_dataset(rows, asks, image_column="picture")
    book.note("prompts", [row["prompt"] for row in data])
    columns = {"image": list(data["image"]), "references": list(data["references"])}
    book.note("rewards of prompts", MetricReward("refclipscore")(list(data["prompt"]), captions, **columns))
    groups = []
    for n in range(0, len(names), 7):  # seven captions of an image
        given = MetricReward("vela")([ASK] * 7, captions[n : n + 7], image=images[n : n + 7])
        groups.append({"image": images[n], "candidates": captions[n : n + 7], "rewards": given})
    from datasets import Dataset

    pairs = make_preference_dataset(Dataset.from_list(groups), ASK)
    book.note("pairs", pairs.remove_columns("images").to_list())


@part
def functions(book):
    """A function as a metric, in each way that one may be written, given as itself and by its place."""
    from reward import CaptionSample, CombinedReward, MetricReward, load_scorer, rerank

    file = RUN.folder / "my_metric.py"
    file.write_text(FUNCTIONS)
    space = {"__name__": "my_metric"}
    exec(compile(FUNCTIONS, str(file), "exec"), space)
    names, images, captions, references = flat(4)
    calls = {"image": images, "references": references}
    rows = zip(images, captions, references, strict=True)
    samples = [CaptionSample(b, a, c) for a, b, c in rows if b is not None and b.strip(" \n\u200b")]
    for name in ("length", "overlap", "redness", "polite", "known", "of_lists", "of_one"):
        for way, metric in {"itself": space[name], "place": f"{file}:{name}"}.items():
            key = f"{name}, {way}"
            book.table(key, load_scorer(metric).score(images, captions, references), names)
            reward = MetricReward(metric)
            book.note(f"{key}, reward", reward([ASK] * len(names), captions, **calls))
            chats = [[{"role": "assistant", "content": text}] for text in captions]
            book.note(f"{key}, chats", reward([ASK] * len(names), chats, **calls))
            book.note(f"{key}, rewards(samples)", reward.rewards(samples))
            book.note(f"{key}, name", [reward.__name__, *reward.spec.aspects])
            both = CombinedReward([metric, "length"], weights=[0.7, 0.3])
            book.note(f"{key}, combined", both.rewards(samples))
        texts = [text for text in scenes()[0]["captions"].values() if text]
        book.note(f"{name}, order", rerank(texts, image=images[0], references=references[0], reward=space[name]))
