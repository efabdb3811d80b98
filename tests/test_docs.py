"""Every code block of README.md and docs/ runs as it stands, and prints what stands below it.

Blocks of one page run in order, in one folder: `python` blocks share their names, `bash` blocks are commands. A `text`
block right below shows their output, in which `...` stands for anything. A comment `<!-- not run: REASON -->` above a
block leaves it out. Below `<!-- sampled -->`, `...` stands for anything within its line, or for lines if it is alone in
one, and each number may differ by 0.3, above 1 by its own size: random draws differ between releases of torch.
"""

from __future__ import annotations

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

pytestmark = pytest.mark.slow

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
    if re.search(r"<<|trap |[^&]&$", block.code, re.MULTILINE):  # lines that belong together
        return run_shell(block.code, block, page)
    alone = [re.fullmatch(r"capreward [^|&;<>$`#]+", line) is not None for line in lines]
    return "".join(
        run_command(line, page) if own else run_shell(line, block, page) for own, line in zip(alone, lines, strict=True)
    )


def run_shell(code: str, block: Block, page: Path) -> str:
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "100",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code], env=environment, capture_output=True, text=True, timeout=250
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
    assert readme <= 900
    assert sum(guide) <= 13_100
