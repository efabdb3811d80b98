"""A captioner writes for a hardening, as it is and after steps of GRPO; and the command."""

from __future__ import annotations

from pathlib import Path

import typer
from typer.testing import CliRunner

from integrations.hardening.command import harden
from integrations.hardening.policy import Policy
from reward.errors import CheckpointError, ConfigError
from reward.scenes import make_dataset

ROWS = [{"image": row["image"], "references": row["refs"]} for row in make_dataset(2, seed=3)]


def test_a_policy_writes_and_is_first_trained_if_asked(
    captioner_folder: Path, scene_beitscore_folder: Path, tmp_path: Path
) -> None:
    files = []
    for place, row in enumerate(ROWS):
        row["image"].save(tmp_path / f"{place}.png")
        files.append({**row, "image": str(tmp_path / f"{place}.png")})
    options = {"metric": "beitscore", "source": captioner_folder, "samples": 3, "max_new_tokens": 6}
    plain = Policy(**options)(str(scene_beitscore_folder), tmp_path, files, 0)
    assert [len(own) for own in plain] == [3, 3]
    assert not (tmp_path / "policy").exists()
    trained = Policy(**options, steps=1, learning_rate=1e-2)
    texts = trained(str(scene_beitscore_folder), tmp_path, files, 0)
    assert texts != plain
    assert (tmp_path / "policy" / "checkpoint-1").is_dir()
    assert trained(str(scene_beitscore_folder), tmp_path, files, 0) == texts  # goes on at the last step


def test_the_command_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(harden)
    for line, kind, message in (
        ("vela --policy ./absent", CheckpointError, "'./absent' does not exist"),
        ("vela --rater vela", ConfigError, "the rater is the metric itself"),
        ("vela --rule disagreement", ConfigError, "needs a second metric"),
        ("unigram", ConfigError, "cannot be trained"),
    ):
        result = CliRunner().invoke(app, [*line.split(), "-o", str(tmp_path / "out")])
        assert isinstance(result.exception, kind)
        assert message in str(result.exception)
    assert not (tmp_path / "out").exists()
