"""Published figures run again: those whose data and weights are here; of the others, what is missing."""

import json
import re
from dataclasses import replace

import pytest

from examples.research.reproduce import DATA, WEIGHTS, main, reproduce
from reward.errors import DataError, UnknownMetricError
from reward.metaeval.published import Figure
from tests.reward.metaeval.benchmarks.published_layouts import parquet
from tests.reward.metaeval.small_benchmarks import write_rated

ONE = Figure(50.0, ("PAPER table 1",), "LEN", "length", "formula", False, "polaris", "test", "overall", "tau-c")
FLEUR = replace(ONE, metric="fleur", checkpoint="llava-hf/llava-1.5-13b-hf")
SMALL = (
    ONE,
    replace(ONE, figure=-100.0, coefficient="tau-b"),
    replace(ONE, benchmark="nebula"),
    replace(ONE, benchmark="pascal-50s", split="", column="mean", coefficient="accuracy"),
    replace(ONE, benchmark="caparena", split="", coefficient="agreement"),
    FLEUR,
    replace(FLEUR, references=True),
    replace(ONE, metric="clipscore", checkpoint="ViT-B-32:openai"),
    replace(ONE, metric="pacscore", checkpoint="clip_ViT-B-32.pth"),
    replace(ONE, metric="vela", checkpoint="Ka2ukiMatsuda/vela", references=True),
    replace(ONE, metric="bertscore", checkpoint="not stated"),
    replace(ONE, metric="harmoniceval", checkpoint="gpt-4o"),
    replace(ONE, metric="beitscore", checkpoint="not published", variant="train beitscore"),
    replace(FLEUR, metric="fleur_raw"),
)


@pytest.fixture
def polaris(tmp_path, monkeypatch):
    """Data of one's own, and few figures."""
    data = write_rated(tmp_path / "polaris", 40, change=lambda row: row.update(fleur=row["good"]))
    monkeypatch.setattr("examples.research.reproduce.published_figures", lambda: SMALL)
    return f"polaris={data}"


def lacks(found, kind):
    return {name: missing for what, name, missing in found.missing if what == kind}


def test_what_is_here_runs_and_the_others_are_told_what_to_fetch(polaris):
    found = reproduce(["ALL", polaris])
    assert {(label, title) for label, title, _ in found.compared} == {
        ("length", "Polaris (test)"),
        ("column:fleur", "Polaris (test)"),  # its authors' scores, of the figure without references only
    }
    assert [each.published.metric for *_, each in found.compared].count("fleur") == 1
    assert {each.verdict for *_, each in found.compared if each.published.figure == -100} == {"differs"}
    data = lacks(found, DATA)
    assert list(data) == ["nebula", "pascal-50s", "caparena"]
    assert data["nebula"] == "hf download --repo-type dataset Ka2ukiMatsuda/Nebula"
    assert data["pascal-50s"].startswith("give pascal-50s=PATH; from: the repository of FLEUR")
    assert lacks(found, WEIGHTS) == {
        "fleur=llava-hf/llava-1.5-13b-hf": "hf download llava-hf/llava-1.5-13b-hf",
        "clipscore=ViT-B-32:openai": "hf download timm/vit_base_patch32_clip_224.openai",
        "pacscore=clip_ViT-B-32.pth": "a file of its authors: give pacscore=clip_ViT-B-32.pth",
        "vela=Ka2ukiMatsuda/vela": "its authors' weights cannot be read here: train vela --preset paper, and give "
        "vela=FOLDER",
        "bertscore=not stated": "the source does not say which weights: give bertscore=CHECKPOINT",
        "harmoniceval=gpt-4o": "a model behind a server: give harmoniceval=http://ADDRESS/v1#gpt-4o",
        "beitscore=not published": "not published: capreward train beitscore",
        "fleur_raw=llava-hf/llava-1.5-13b-hf": "scores of its authors, in a column fleur_raw of the benchmark's file",
    }
    assert re.fullmatch("14 published figures: .* 11 not run", found.summary())


def test_words_choose_and_a_checkpoint_of_ones_own_stands_for_weights_that_nobody_has(polaris):
    found = reproduce(["length", polaris])
    assert found.total == len(found.compared) == 2
    found = reproduce(["vela=somewhere/else", polaris])
    [(kind, name, problem)] = found.missing
    assert (found.total, kind, name) == (1, WEIGHTS, "vela=somewhere/else")
    assert "somewhere/else" in problem  # it was asked for, and is not there
    with pytest.raises(DataError, match="no published figure is known of crossencoder"):
        reproduce(["crossencoder"])
    with pytest.raises(UnknownMetricError):
        reproduce(["lenght"])


def test_data_of_the_hub_are_fetched_if_asked_for_or_taken_from_the_cache(polaris, hub, monkeypatch, tmp_path):
    from huggingface_hub import snapshot_download

    monkeypatch.setattr("datasets.config.HF_ENDPOINT", hub.endpoint)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    rows = {"file_name": [f"{n}.jpg" for n in range(6)], "mt": ["dog " * (n + 1) for n in range(6)]}
    table = parquet({**rows, "human_score": [n / 5 for n in range(6)], "refs": [["a dog"]] * 6})
    files = {"README.md": b"# Data\n", "data/test-00000-of-00001.parquet": table}
    hub.add_repo("Ka2ukiMatsuda/Nebula", files, kind="datasets")
    assert not reproduce(["length", "nebula"]).compared
    assert hub.requests == []
    [(_, title, found)] = reproduce(["length", "nebula"], download=True).compared
    assert (title, found.value) == ("Nebula (test)", pytest.approx(100))
    snapshot_download("Ka2ukiMatsuda/Nebula", repo_type="dataset")
    assert len(reproduce(["length", "nebula"]).compared) == 1


def test_the_script_prints_and_writes_what_came_out(polaris, tmp_path, capsys):
    assert main(["length", polaris, "--output", str(tmp_path / "table.md")]) == 0
    printed = capsys.readouterr()
    assert "Beside published figures" in printed.out
    assert "2 published figures: " in printed.err
    assert "| length | Polaris (test) | tau-c |" in (tmp_path / "table.md").read_text(encoding="utf-8")
    main(["length", polaris, "--json", "--quiet"])
    printed = capsys.readouterr()
    assert [value["coefficient"] for value in json.loads(printed.out)["compared"]] == ["tau-c", "tau-b"]
    assert printed.err == ""
    assert main(["pacscore", polaris]) == 1  # its weights are not here
