"""Code that lies in a judge's folder does not run, whatever is answered to transformers' question."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from reward.errors import CapRewardError
from reward.judges import LocalJudge
from reward.metrics.fleur.scorer import FleurScorer
from tests.toy_judges import llava

CODE = """
from pathlib import Path
Path({marker!r}).touch()
from transformers import LlavaConfig, LlavaProcessor
class Config(LlavaConfig):
    model_type = "unheard-of"
class Processor(LlavaProcessor):
    pass
"""


@pytest.fixture(params=["config.json", "processor_config.json"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A judge one of whose files names code in the folder; the question whether it may run is answered with yes."""
    model, processor = llava()
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    (tmp_path / "mine.py").write_text(CODE.format(marker=str(tmp_path / "ran")))
    path = tmp_path / request.param
    content: dict[str, Any] = json.loads(path.read_text())
    if request.param == "config.json":
        content |= {"model_type": "unheard-of", "auto_map": {"AutoConfig": "mine.Config"}}
    else:
        content |= {"processor_class": "UnheardOf", "auto_map": {"AutoProcessor": "mine.Processor"}}
    path.write_text(json.dumps(content))
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    return tmp_path


@pytest.mark.parametrize("load", [LocalJudge.from_pretrained, FleurScorer.from_pretrained])
def test_code_of_a_checkpoint_does_not_run(folder: Path, load: Any) -> None:
    with pytest.raises(CapRewardError):
        load(folder, device="cpu")
    assert not (folder / "ran").exists()


def test_code_runs_where_python_says_so(folder: Path) -> None:
    with suppress(CapRewardError):  # the code has no model of its own
        LocalJudge.from_pretrained(folder, device="cpu", trust_remote_code=True)
    assert (folder / "ran").exists()
