"""The notebook runs from top to bottom, and its captioner still writes captions after its training."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.slow

NOTEBOOK = Path(__file__).parents[2] / "examples" / "first_steps.ipynb"


def test_the_notebook_runs_and_chooses_good_captions_before_and_after_training(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=250, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output["text"] for cell in notebook.cells for output in cell.get("outputs", []) if "text" in output]
    chosen = [text for text in outputs if re.match(r"\d\.\d\d [A-Z]", text)]
    assert [float(text[:4]) > 0.6 for text in chosen] == [True, True], chosen
