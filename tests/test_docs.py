"""Every code block of README.md and docs/ runs as it stands, and prints what stands below it.

Blocks of one page run in order, in one folder: `python` blocks share their names, `bash` blocks are commands. A `text`
block right below shows their output, in which `...` stands for anything. A comment `<!-- not run: REASON -->` above a
block leaves it out. Below `<!-- sampled -->`, `...` stands for anything within its line, or for lines if it is alone in
one, and each number may differ by 0.3, above 1 by its own size: random draws differ between releases of torch.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer

from examples.research import draw_pictures
from reward.cli.app import app
from reward.cli.main import main
from reward.registry import list_metrics, metric_spec

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
_BLOCK = re.compile(
    r"(?P<skip><!-- not run: [^\n]+ -->\n)?^```(?P<language>python|bash)\n(?P<code>.*?)^```\n"
    r"(?:\n?(?P<sampled><!-- sampled -->\n)?```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-\d+)?")


@dataclass(frozen=True)
class Block:
    """A block of code that is run, and the output that the page shows; None where it shows none."""

    line: int
    language: str
    code: str
    output: str | None
    sampled: bool

    def prints(self, printed: str) -> bool:
        if self.output is None:
            return True
        if not self.sampled:
            return doctest.OutputChecker().check_output(self.output, printed, doctest.ELLIPSIS)
        shown = [
            re.sub(r"(?m)^\.\*\n", "(?:.*\\n)*", re.escape(part).replace(r"\.\.\.", ".*").replace("\\\n", "\n"))
            for part in _NUMBER.split(self.output)
        ]
        found = re.fullmatch(f"({_NUMBER.pattern})".join(shown), printed)
        return found is not None and all(
            abs(float(number) - float(own)) <= (0.3 if abs(float(own)) <= 1 else abs(float(own)))
            for number, own in zip(found.groups(), _NUMBER.findall(self.output), strict=True)
        )


def blocks_of(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for match in _BLOCK.finditer(text):
        if match["skip"] is None:
            line = text.count("\n", 0, match.start("code")) + 1
            yield Block(line, match["language"], match["code"], match["output"], match["sampled"] is not None)


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_code_blocks_print_what_the_page_shows(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks_of(page):
        printed = run_python(block, page, namespace) if block.language == "python" else run_bash(block, page)
        assert block.prints(printed), f"{page.name}:{block.line} shows\n{block.output}\nbut prints\n{printed}"


def run_python(block: Block, page: Path, namespace: dict[str, object]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        # the empty lines make tracebacks name the line of the page
        exec(compile("\n" * (block.line - 1) + block.code, str(page), "exec"), namespace)
    return printed.getvalue()


def run_bash(block: Block, page: Path) -> str:
    """Commands of capreward run in this process, which has torch loaded; whatever else a shell can do, in a shell."""
    lines = block.code.replace("\\\n", " ").splitlines()
    if all(re.fullmatch(r"capreward [^|&;<>$`#]+", line) for line in lines):
        return "".join(run_command(line, page) for line in lines)
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "100",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.code], env=environment, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, f"{page.name}:{block.line} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


def run_command(line: str, page: Path) -> str:
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(sys, "argv", shlex.split(line))
        patch.setenv("COLUMNS", "100")
        with pytest.raises(SystemExit) as stop:
            main()
    assert not stop.value.code, f"{page.name}: {line} ended with {stop.value.code}"
    return printed.getvalue()


def test_pictures_are_drawn_from_the_stored_results(tmp_path: Path) -> None:
    draw_pictures.main(["--output", str(tmp_path)])
    stored = ROOT / "docs" / "images"
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(file.name for file in stored.iterdir())
    for file in tmp_path.iterdir():
        assert labels(file) == labels(stored / file.name)  # outlines may differ between releases of matplotlib


def labels(file: Path) -> list[str]:
    """The texts of a picture, which matplotlib keeps as comments."""
    return re.findall(r"<!-- (.*?) -->", file.read_text(encoding="utf-8"))


def test_links_within_the_docs_lead_somewhere() -> None:
    missing = []
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        targets = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text) + re.findall(r'(?:src|srcset)="([^":]+)"', text)
        missing += [f"{page.name}: {target}" for target in targets if not (page.parent / target).exists()]
    assert not missing


def test_every_command_on_the_pages_exists_with_its_options() -> None:
    """Also those that need data or models, and so are not run."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    checked = 0
    for page in PAGES:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        blocks = re.findall(r"^```(?:bash)?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        inline = re.findall(r"`([^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
        lines = [line for block in blocks for line in block.splitlines()] + [code.replace("\n", " ") for code in inline]
        for line in lines:
            command = re.match(r"capreward ([a-z-]+)(.*?)( #|$)", line)
            if command is None or command[1].startswith("-"):
                continue
            assert command[1] in commands, f"{page.name}: {line}"
            options = {name for parameter in commands[command[1]].params for name in parameter.opts} | {"--help"}
            assert set(re.findall(r"(?<= )--?[a-z][a-z-]*", command[2])) <= options, f"{page.name}: {line}"
            checked += 1
        for script in re.findall(r"python (?:-m (examples[\w.]+)|(examples/\w+)\.py)", text):
            assert (ROOT / ("".join(script).replace(".", "/") + ".py")).is_file(), f"{page.name}: {script}"
    assert checked > 30


def test_readme_and_the_guide_are_short() -> None:
    readme, *guide = (len(page.read_text(encoding="utf-8").split()) for page in PAGES)
    assert readme <= 1150
    assert sum(guide) <= 15_200


# What names a metric in a snippet, with what stands behind it: options of commands, and calls of Python.
_OF_COMMANDS = re.compile(r"(?:--metric|-m)[ =]([\w.-]+)(=\S+)?")
_OF_PYTHON = re.compile(r"\b(MetricReward|load_scorer|VelaReward|BeitScoreReward)\(([^()]*)\)")


def unsourced(snippet: str) -> list[str]:
    """The metrics in a snippet that would score with the small weights for drawings."""
    found = []
    for line in snippet.replace("\\\n", " ").splitlines():
        for name, source in _OF_COMMANDS.findall(line) if "capreward" in line or "--metric" in line else ():
            plain = name.split(":")[0]
            named = source or "--judge" in line
            if plain in list_metrics() and not named and metric_spec(plain).checkpoints:
                found.append(line.strip())
    for call, arguments in _OF_PYTHON.findall(snippet):
        given = [each.strip() for each in arguments.split(",") if each.strip()]
        needed = 2 if call in ("MetricReward", "load_scorer") else 1
        names = [each for each in given if "=" not in each or each.startswith("source=")]
        if len(names) < needed and not (given and metric_without_weights(given[0])):
            found.append(f"{call}({arguments})")
    return found


def metric_without_weights(written: str) -> bool:
    name = written.strip("\"'")
    return name in list_metrics() and not metric_spec(name).checkpoints


def snippets() -> Iterator[tuple[str, str]]:
    """(place, text) of every block of code on the pages, every docstring, and so the help of every command."""
    for page in PAGES:
        for block in re.findall(r"^```\w*\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            yield page.name, block
    for package in ("reward", "integrations", "examples"):
        for file in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and (text := ast.get_docstring(node)):
                    yield str(file.relative_to(ROOT)), text


def test_examples_with_photos_name_a_checkpoint_that_knows_them() -> None:
    with_photos = [(place, text) for place, text in snippets() if re.search(r"photo", text, re.IGNORECASE)]
    assert len(with_photos) > 15
    assert [(place, line) for place, text in with_photos for line in unsourced(text)] == []


@pytest.mark.parametrize(
    ("snippet", "count"),
    [
        ("capreward score a.jsonl --metric vela -o b.jsonl", 1),
        ("capreward score a.jsonl \\\n  -m vela -m beitscore=x -o b.jsonl", 1),
        ("capreward score a.jsonl --metric vela=my-vela -o b.jsonl", 0),
        ("capreward score a.jsonl -m clipscore=ViT-L-14:openai -m length -o b.jsonl", 0),
        ("VelaReward(); VelaReward(weights=w); MetricReward('clipscore'); load_scorer('vela')", 4),
        ("VelaReward('my-vela'); VelaReward(source=x); MetricReward('clipscore', x); load_scorer('length')", 0),
    ],
)
def test_metrics_without_a_checkpoint_are_found(snippet: str, count: int) -> None:
    assert len(unsourced(snippet)) == count
