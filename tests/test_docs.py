"""Every code block of README.md and docs/ runs as it stands, and prints what stands below it.

Blocks of one page run in order, in one folder: `python` blocks share their names, `bash` blocks are commands. A `text`
block right below shows their output, in which `...` stands for anything. A comment `<!-- not run: REASON -->` above a
block leaves it out. Below `<!-- sampled -->` each number stands for any: draws differ between releases of torch.
"""

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from examples.research import draw_pictures
from reward.cli.app import app
from reward.cli.main import main

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
PAGES = {page.name: page for page in sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])}
TEXTS = {name: page.read_text(encoding="utf-8") for name, page in PAGES.items()}
BLOCK = re.compile(
    r"(?P<skip><!-- not run: [^\n]+ -->\n)?^```(?P<language>python|bash)\n(?P<code>.*?)^```\n"
    r"(?:\n?(?P<sampled><!-- sampled -->\n)?```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)


@pytest.mark.parametrize("page", PAGES)
def test_code_blocks_print_what_the_page_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    names = {"__name__": "__main__"}
    for block in BLOCK.finditer(TEXTS[page]):
        if block["skip"]:
            continue
        line = TEXTS[page].count("\n", 0, block.start("code"))
        if block["language"] == "bash":
            printed = run_bash(block["code"])
        else:  # the empty lines make tracebacks name the line of the page
            printed = run_python("\n" * line + block["code"], page, names)
        shown = printed if block["output"] is None else block["output"]
        told = f"{page}:{line + 1} shows\n{shown}\nbut prints\n{printed}"
        if block["sampled"]:
            shown, printed = (re.sub(r"-?\d+(\.\d+)?(e-\d+)?", "#", text) for text in (shown, printed))
        assert doctest.OutputChecker().check_output(shown, printed, doctest.ELLIPSIS), told


def run_python(code, page, names):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, page, "exec"), names)
    return printed.getvalue()


def run_bash(code):
    """Commands of capreward run in this process, which has torch loaded; whatever else a shell can do, in a shell."""
    belong_together = re.search(r"<<|trap |[^&]&$", code, re.MULTILINE)
    printed = ""
    for line in [code] if belong_together else code.replace("\\\n", " ").splitlines():
        if re.fullmatch(r"capreward [^|&;<>$`#]+", line):
            printed += run_command(line)
        else:
            options = {"capture_output": True, "text": True, "timeout": 250}
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", line], **options)
            assert done.returncode == 0, f"{line} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
            printed += done.stdout
    return printed


def run_command(line):
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
        patch.setattr(sys, "argv", shlex.split(line))
        with pytest.raises(SystemExit) as stop:
            main()
    assert not stop.value.code, f"{line} ended with {stop.value.code}"
    return printed.getvalue()


def test_pictures_are_drawn_from_the_stored_results(tmp_path):
    def labels(folder):
        """The texts of pictures, which matplotlib keeps as comments; outlines may differ between its releases."""
        return {file.name: re.findall(r"<!-- (.*?) -->", file.read_text()) for file in folder.iterdir()}

    draw_pictures.main(["--output", str(tmp_path)])
    assert labels(tmp_path) == labels(ROOT / "docs" / "images")


@pytest.mark.parametrize("page", PAGES)
def test_links_within_the_docs_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", TEXTS[page], flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text) + re.findall(r'(?:src|srcset)="([^":]+)"', text)
    assert [target for target in targets if not (PAGES[page].parent / target).exists()] == []


def test_every_command_on_the_pages_exists_with_its_options():
    """Also those that need data or models, and so are not run."""
    commands = typer.main.get_command(app).commands
    checked = 0
    for page, whole in TEXTS.items():
        text = whole.replace("\\\n", " ")
        blocks = re.findall(r"^```(?:bash)?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        inline = re.findall(r"`([^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
        lines = [line for block in blocks for line in block.splitlines()] + [code.replace("\n", " ") for code in inline]
        for command in filter(None, (re.match(r"capreward ([a-z][a-z-]*)(.*?)( #|$)", line) for line in lines)):
            assert command[1] in commands, f"{page}: {command[0]}"
            options = {name for parameter in commands[command[1]].params for name in parameter.opts} | {"--help"}
            assert set(re.findall(r"(?<= )--?[a-z][a-z-]*", command[2])) <= options, f"{page}: {command[0]}"
            checked += 1
        for script in re.findall(r"python (?:-m (examples[\w.]+)|(examples/\w+)\.py)", text):
            assert (ROOT / ("".join(script).replace(".", "/") + ".py")).is_file(), f"{page}: {script}"
    assert checked > 30


def test_readme_and_the_guide_are_short():
    words = {page: len(text.split()) for page, text in TEXTS.items()}
    assert words.pop("README.md") <= 900
    assert sum(words.values()) <= 13_500
