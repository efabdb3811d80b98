"""Every command of docs/RESEARCH.md on small files in the layout of their authors, and the tables that it names.

A new command needs an entry in PROMISES, and a new FILE or FOLDER one in `research_files.FILES`. What a command names
on the Hub or behind a server is on a Hub and behind a server of this process. A small CLIP stands in for those of
open_clip, and SMALLER is added to a command.
"""

import json
import re
import shlex
import shutil
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.reward.cli import research_files
from tests.toys.loopback_http import serving
from tests.toys.loopback_hub import loopback_hub
from tests.toys.toy_judges import strict_llava

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs" / "RESEARCH.md").read_text(encoding="utf-8")
PAPERS = {"VELA": (8, 5), "FLEUR": (8, 7), "HarmonicEval": (9, 5), "CapArena": (8, 8), "BEiTScore": (10, 5)}

# Rows of the papers' tables that no metric of ours gives: each has a reason in the section of the paper.
ROWS_OF_OTHERS = {
    "VELA": "Polos DENEB G-VEval GPT-4o",
    "FLEUR": "Polos TIGEr ViLBERTScore InfoMetIC MiniGPT-v2 InstructBLIP",
    "HarmonicEval": "BART-S TIGEr ViLBERTS-F FAIEr Polos UMIC InfoCLIP InfoMetIC GPT-FLEUR",
    "CapArena": "Polos CAPTURE VDC-Score",
    "BEiTScore": "EXPERT SPECS GPT-4o ALOHa 12-in-1 FLAVA VinVL Human CLIP-FlanT5",
}

_NUMBERS = re.compile(r"\b(table|figure)s? ((?:\d+[ab]?(?:, | to |(?=\W|$)))+)")


def shown(text):
    """("table" or "figure", number) of all that a text names."""
    found = set()
    for kind, numbers in _NUMBERS.findall(text):
        for first, last in re.findall(r"(\d+)[ab]?(?: to (\d+))?", numbers):
            found |= {(kind, number) for number in range(int(first), int(last or first) + 1)}
    return found


class Row(NamedTuple):
    """A comment in a block of the page, which names tables or figures, and commands that follow each other."""

    paper: str
    name: str
    commands: list[str]


def varied(commands, comment):
    """The commands, the first of them with the first option that a comment names."""
    option = re.findall("--[^,]+", comment)[0]
    kept = re.sub(r" --preset \S+", "", commands[0]) if "--preset" in option else commands[0]
    return [f"{kept} {option}", *commands[1:]]


def read_rows():
    rows = []
    for section in re.split("^## ", TEXT, flags=re.MULTILINE)[1:]:
        paper = section.split()[0]
        for block in re.findall(r"^```bash\n(.*?)^```", section, re.MULTILINE | re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                if line.startswith("# or "):
                    rows.append(Row(paper, f"{rows[-1].name}, or", varied(rows[-1].commands, line)))
                elif base := re.match(r"# .*: as (table \d+) with ", line):
                    first = next(row for row in rows if row.paper == paper and shown(base[1]) <= shown(row.name))
                    rows.append(Row(paper, line, varied(first.commands, line)))
                elif line.startswith("# "):
                    rows.append(Row(paper, line, []))
                else:
                    reads_what_is_judged = "=judged.jsonl" in line and not rows[-1].commands
                    rows[-1].commands.extend([*(rows[-2].commands[:1] if reads_what_is_judged else []), line])
    return rows


ROWS = read_rows()
ASPECTS = ("descriptiveness", "relevance", "fluency")
# What a command must print that holds the text on the left; each command holds one of them.
PROMISES = {
    "longcap-arena": ASPECTS,
    "--part TestA": ("TestA", "TestB", "ms/caption"),
    "train vela": ("dci_val", "dci_test"),
    "--seed 0": ("mean ± standard deviation of 2 runs",),  # instead of five
    "--threshold 0.25": ("0.25", "report: "),
    "train beitscore": ("Stage 1a:", "Stage 1b:", "Stage 1c:", "Stage 2:"),
    "flickr8k-expert=": ("Flickr8k-Expert: tau-c x 100",),
    "flickr8k-cf=": ("Flickr8k-CF: tau-b x 100",),
    "--benchmark composite": ("Composite: tau-c x 100",),
    "pascal-50s=": ("Pascal-50S: accuracy x 100",),
    "--part 1-ref": ("FOIL (1-ref): accuracy x 100",),
    " foil=": ("FOIL (4-ref): accuracy x 100",),
    "mmhe-pairs=": ("MMHE (pairs): accuracy x 100", "REG", "VQA", "VDU", "IC"),
    "mmhe=": ("MMHE: tau-c x 100", "correctness", "completeness", "clarity", "conciseness"),
    "--benchmark polaris": tuple(f"{name} (test): tau-c x 100" for name in ("Polaris", "Nebula", "VICR")),
    "nocaps-foil": ("nocaps-FOIL: accuracy x 100", "near-domain"),
    "sugarcrepe": ("SugarCrepe: accuracy x 100", "swap_att"),
    "valse": ("VALSE (without coreference): accuracy x 100", "plurals"),
    "winoground": ("Winoground: group x 100", "text", "image"),
    "longcapvlcp": ("LongCapVLCP: accuracy x 100", "counting", "report: "),
    "genai-bench": ("GenAI-Bench: tau-c x 100",),
    "score flickr8k.jsonl": ("scored 4 rows",),
    "score mmhe.jsonl": ("scored 12 rows",),
    "--output battles.json --one-order": ("judged 24 battles",),
    "--judged": ("level 4", "gpt-4o", "mine", "Spearman", "Kendall", "Bias"),
    "--annotator": ("annotator", "level 4"),
    "--leaderboard": ("Spearman", "94.3", "Kendall", "82.4"),
    "--pair-weights": ("Ratings by people", "each battle counts 1 / P"),
    "--auto": ("CapArena-Auto by judge",),
    "data/caparena_auto": ("CapArena-Auto by judge", "mean words"),
    "caption images": ("4 images",),
    "compare llava.jsonl": ("Images won, %", "people"),
    "--size": ("222.32", "83.85", "674.74", "296.96"),
    "--words shuffle_words": ("noun_attribute: ", "shuffle_words: "),
    "long_caption_pairs captions.jsonl": ("action",),
    "score captions.jsonl": ("1 captions", "length"),
    "report lengths.jsonl": ("report on 1 rows -> lengths.html",),
}
SMALLER = {"bench": "--resamples 20 --reference-draws 1", "arena": "--resamples 20", "vela": "--config few.json"}


def words_of(command, here, models):
    """The words of a command, with small files for those it names; KeyError for a file that nobody has described."""
    words = shlex.split(re.sub(" --seed [234]", "", command))
    asked = next((name.partition("=")[0] for option, name in pairwise(words) if option == "--benchmark"), words[1])
    for place, word in enumerate(words):
        before, equals, last = word.rpartition("=")
        key = before or words[place - 1].strip("-")
        if word in ("FILE", "FOLDER") and key == "output":
            words[place] = str(here / "out")
        elif last == "FOLDER" and key in ("vela", "beitscore"):
            words[place] = f"{key}={models / (key + '-overall' * ((key, asked) == ('vela', 'composite')))}"
        elif last in ("FILE", "FOLDER"):
            name = asked if key == "data" or (key == "images" and asked in ("sugarcrepe", "valse")) else key
            words[place] = before + equals + str(research_files.write(here, name))
        elif last in research_files.FILES and key != "benchmark" and not (here / last).exists():
            research_files.write(here, last)
        elif last.endswith(":openai"):
            words[place] = f"{before}={models / 'clip'}"
    if smaller := next((SMALLER[word] for word in words[1:3] if word in SMALLER), None):
        words += smaller.split()
    model = {"image": {"backbone": str(models / "clip")}} if re.search("paper-(clip|pacs)", command) else {}
    if "paper-image-only" not in command:
        model["text"] = {"max_prefix_tokens": 640, "max_candidate_tokens": 64}
    (here / "few.json").write_text(json.dumps({"max_steps": 1, "precision": "fp32", "model": model}))
    return words


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    research_files.write_models(folder)
    return folder


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    with loopback_hub() as hub:
        research_files.fill(hub, tmp_path_factory.mktemp("hub"))
        yield hub


@pytest.fixture
def online(filled, models, monkeypatch):
    """Points all clients at the Hub and the server of this process; gives the server's address."""
    filled.point_client(monkeypatch, models / "hub-cache")
    judge = research_files.Server(*strict_llava("12345"))
    judge.models = ("gpt-4o-2024-08-06", "Qwen/Qwen3-30B-A3B-Instruct-2507")
    with serving(judge.reply) as address:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{address}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        yield f"{address}/v1"


# Trainings with another preset, of which `training/test_presets.py` makes the models, are not run once more.
RUN = [row for row in ROWS if not ("train" in row.commands[0] and ("--preset" in row.name or row.name.endswith("or")))]


@pytest.mark.parametrize("commands", [pytest.param(row.commands, id=f"{row.paper}, {row.name[2:]}") for row in RUN])
def test_each_command_does_what_its_row_promises(commands, models, online, run, tmp_path, monkeypatch, capsys):
    if shutil.which("java") is None and re.search("cider|meteor", " ".join(commands)):
        pytest.skip("needs Java")
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    for command in commands:
        words = words_of(re.sub(r"https?://(localhost:8000|api\.openai\.com)/v1", online, command), here, models)
        if words[0] == "python":
            import_module(words[2]).main(words[3:])
            said = capsys.readouterr().out
        else:
            said = " ".join(run(*words[1:]))
        named = re.findall(r"(?:--metric|--score-column) (\w+)", command) if " bench " in command else []
        for text in [*(text for key, texts in PROMISES.items() if key in command for text in texts), *named]:
            assert text in said, f"{command} does not print {text!r}:\n{said}"


def test_every_table_and_figure_has_a_command_or_a_reason():
    commands = {command for row in ROWS for command in row.commands}
    assert [command for command in commands if not any(key in command for key in PROMISES)] == []
    assert all(row.commands for row in ROWS)
    for paper, (tables, figures) in PAPERS.items():
        [section] = re.findall(rf"^## {paper} .*?(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
        reasons = re.findall(r"^- (?:No results|Not possible): (.*?)(?=^- |\Z)", section, re.MULTILINE | re.DOTALL)
        named = set().union(*(shown(row.name) for row in ROWS if row.paper == paper), *map(shown, reasons))
        assert [row for row in ROWS_OF_OTHERS[paper].split() if row not in section] == []
        every = {("table", n + 1) for n in range(tables)} | {("figure", n + 1) for n in range(figures)}
        assert named == every, paper
