"""Small files in published layouts, by the names that docs/RESEARCH.md has for them, and models and a Hub for them."""

import json
from dataclasses import replace
from functools import partial
from itertools import combinations, product

from PIL import Image

from reward.metaeval.benchmarks import load_benchmark
from reward.metaeval.benchmarks.rated_tables import CRITERIA
from reward.metrics.fleur.prompt import FleurPrompt
from reward.metrics.vela.prompts import DEFAULT_PROMPTS
from reward.metrics.vela.scorer import VelaScorer
from tests import test_hub
from tests.benchmarks.peers import bert_folder
from tests.reward.metaeval.arena.made_arenas import BASELINES, TABLE_8, WORDS
from tests.reward.metaeval.benchmarks.published_layouts import POLARIS, parquet, scores_of_fleur, write_layout
from tests.reward.metaeval.small_benchmarks import write_files
from tests.reward.metrics import tiny_vela
from tests.reward.metrics.beitscore import tiny_beitscore
from tests.reward.metrics.beitscore.test_training import published
from tests.reward.training.small_runs import small_data
from tests.toys.json_lines import write_lines
from tests.toys.loopback_judge import LoopbackJudge
from tests.toys.toy_clips import small_clip
from tests.toys.toy_judges import save_rating_judge

_ORDERS = list(product(("1.png", "2.png"), ("A dog runs.", "Two dogs.")))
_TASKS = {"REG": {"box": [4, 4, 16, 16]}, "IC": {}}
_TASKS |= {task: {"question": "Who runs?"} for task in ("VQA", "VDU")}
_RATED = [
    {"image": image, "candidate": text, "references": [f"Dog {n}."], "ratings": [n % 4, 2, n]}
    for n, (image, text) in enumerate(_ORDERS)
]
_MMHE = [
    {"image": "1.png", "candidate": f"{n} dogs.", "item": task, "category": task, "best": n, **fields}
    | {"references": [f"Dog {n} of {task}."]}
    | {"ratings": {name: [n, n + 1, 5] for name in CRITERIA}}
    for task, fields in _TASKS.items()
    for n in range(3)
]
_MODELS = list(TABLE_8)[:4]
_BATTLES = [
    {"img": f"{n % 3 + 1}.png", "source1": one, "source2": two, "caption1": f"A dog runs {n}.", "caption2": "A dog."}
    | {"ref": f"A dog runs {n % 3} times.", "winner": (one, two, "equal")[n % 5 % 3], "cluster": f"level {1 + n % 4}"}
    | {"in-400": n < 12}
    for n, (one, two) in enumerate(list(combinations(_MODELS, 2)) * 4)
]
_JUDGED = [{**battle, "judge": WORDS[n % 3 / 2]} for n, battle in enumerate(_BATTLES)]


def _auto(model):
    """The judged battles of a model as the authors publish them."""
    pair = {"source1": model, "caption1": "A dog.", "caption2": "A cat.", "ref": "A dog.", "judge": WORDS[1.0]}
    return [{**pair, "img": f"{n}.png", "source2": name, "ref_model": name} for n, name in enumerate(BASELINES)]


def _write_pictures(folder):
    folder.mkdir(exist_ok=True)
    for number in range(4):
        Image.new("RGB", (32, 32), (60 * number, 0, 90)).save(folder / f"{number}.png")


_IN_FOLDERS = ("flickr8k-expert", "flickr8k-cf", "pascal-50s", "foil", "nocaps-foil", "sugarcrepe", "valse", "vicr")
_IN_FOLDERS += ("genai-bench", "longcapvlcp")
# What a command names as a file, or as FILE or FOLDER of a benchmark or an option: content, or a function that writes.
FILES = {
    "flickr8k.jsonl": _RATED,
    "mmhe.jsonl": _MMHE,
    "captions.jsonl": [{"image": "1.png", "caption": "A red dog lies on grass. " * 15 + "It guards a red ball."}],
    "prompt.yaml": {**FleurPrompt.of().to_json(), "version": "mine", "rubric": "0.0: bad. 0.3: poor. 1.0: good."},
    "beit3.yaml": lambda file: file.write_text(json.dumps({"model": published(file.parent), "max_steps": 1})),
    "caparena_annots_eval.json": _BATTLES,
    "caparena_annots_eval_gpt.json": _JUDGED,
    "annotator": _BATTLES[:12],
    "caparena-auto": TABLE_8,
    "docci": TABLE_8,
    "caparena_auto_600.json": {
        f"{n}.png": {"captions": {"human": "A dog.", **dict.fromkeys(BASELINES, "Dogs.")}, "ref_model": name}
        for n, name in enumerate(BASELINES)
    },
    "A.json": {f"{n}.png": "A dog runs." for n in range(3)},
    "B.json": {f"{n}.png": "A cat." for n in range(3)},
    "data/caparena_auto": lambda folder: write_files(
        folder, {"caparena_auto_600.json": {}, **{f"{name}.json": _auto(name) for name in ("mine", "other")}}
    ),
    "images": _write_pictures,
    "train": lambda folder: small_data().save_to_disk(folder),
    "people.jsonl": [{"image": f"{n}.png", "candidate": "A dog runs."} for n in range(4)],
    "results/*.txt": lambda file: file.write_text(
        "\n".join(scores_of_fleur(number, 0.5, 0.1, label=0) for number in range(4))
    ),
    **{name: partial(write_layout, name=name) for name in _IN_FOLDERS},
    "longcap-arena": [
        {**row, "ratings": {name: [n / 6, 0.5, n % 2] for name in tiny_vela.ASPECTS}} for n, row in enumerate(_RATED)
    ],
}


def write(here, name):
    """Writes what `name` stands for into a folder, with all images that it names; KeyError if nothing does."""
    content, path = FILES[name], here / name
    path.parent.mkdir(exist_ok=True)
    if callable(content):
        content(path)
    elif isinstance(content, list) and not name.startswith(("caparena", "annotator")):
        path = write_lines(path.with_suffix(".jsonl"), content)
        _write_pictures(here)
    else:
        path.write_text(json.dumps(content))
    if path.is_dir() and name not in ("images", "train", "data/caparena_auto"):
        for (image,) in load_benchmark(name, path).rows["images"]:
            image.parent.mkdir(exist_ok=True)
            Image.new("RGB", (32, 32), (len(image.name), 0, 90)).save(image.with_suffix(image.suffix or ".png"))
    return path


def write_models(folder):
    """Checkpoints of both metrics, one of a VELA with one score, and a CLIP."""
    small_clip(folder / "clip")
    config = tiny_vela.make_config(prompts={**DEFAULT_PROMPTS, "overall": DEFAULT_PROMPTS["relevance"]})
    for name, aspects in {"vela": tiny_vela.ASPECTS, "vela-overall": ("overall",)}.items():
        VelaScorer(tiny_vela.make_model(replace(config, aspects=aspects))).save_pretrained(folder / name)
    tiny_beitscore.make_scorer().save_pretrained(folder / "beitscore")


def fill(hub, folder):
    """What the page has from the Hub, small and under its real name."""
    from transformers import AutoConfig, AutoModelForCausalLM

    test_hub.add_language_model(hub, folder / "qwen2")
    test_hub.add_clip(hub)
    test_hub.add_data(hub, scenes=2)
    hub.add_repo("BeichenZhang/LongCLIP-B", {"longclip-B.pt": hub.files(test_hub.CLIP)["longclip-L.pt"]})
    for kind, name in {"llama": "meta-llama/Llama-3.2-3B-Instruct", "phi3": "microsoft/Phi-3.5-mini-instruct"}.items():
        settings = {**tiny_vela.language_architecture(), "pad_token_id": 0}
        settings.pop("model_type")
        AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **settings)).save_pretrained(folder / kind)
        tiny_vela.make_tokenizer().save_pretrained(folder / kind)
        hub.add_folder(name, folder / kind)
    bert_folder(folder / "bert", ["A dog runs."], width=64, layers=17)
    hub.add_folder("FacebookAI/roberta-large", folder / "bert")
    for size in ("7b", "13b"):
        hub.add_folder(f"llava-hf/llava-1.5-{size}-hf", save_rating_judge(folder / size, "0"))
    rows = {**POLARIS, "refs": [["A dog."], ["A cat."]] * 2}
    for name in ("yuwd/Polaris", "yuwd/Composite", "Ka2ukiMatsuda/Nebula"):
        hub.add_repo(name, {"data/test-00000-of-00001.parquet": parquet(rows, "img")}, kind="datasets")
    hub.add_folder("facebook/winoground", write_layout(folder / "winoground", "winoground"), kind="datasets")


class Server(LoopbackJudge):
    """A judge that also compares captions and rewrites them, in words that are always the same."""

    def complete(self, body):
        done = super().complete(body if body.get("logprobs") else {**body, "max_tokens": 1})
        if not body.get("logprobs"):
            asked = body["messages"][-1]["content"]
            text = asked if isinstance(asked, str) else asked[-1]["text"]
            caption = text.strip().splitlines()[-1]
            answer = json.dumps(json.loads(caption).replace("ball", "cat")) if caption.startswith('"') else "Verdict: 1"
            done["choices"][0] |= {"finish_reason": "stop", "message": {"role": "assistant", "content": answer}}
        return done
