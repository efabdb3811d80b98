"""Flickr8k-Expert and Flickr8k-CF: the tables of the Hub, and the published ratings in the common form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from reward.errors import DataError
from reward.metaeval.benchmarks import load_benchmark

DATA = Path(__file__).parents[5] / "shared" / "data" / "flickr8k_expert_fleur.jsonl.gz"
CONFIGS = {"flickr8k-expert": "expert", "flickr8k-cf": "crowdflower"}
RATINGS = {"flickr8k-expert": (1, 2, 2, 4), "flickr8k-cf": (0.5, 0.5, 0.5, 1 / 3)}


def write_tables(folder: Path, name: str) -> Path:
    """A row for each rating, in the folder of the configuration as on the Hub, whose card names it."""
    rows: dict[str, Any] = {"imgid": ["1.jpg"] * 3 + ["2.jpg"], "cand": ["A.", "A.", "A.", "B."]}
    rows |= {"refs": [["C.", "D."]] * 3 + [["E."]], "human_score": list(RATINGS[name])}
    (folder / CONFIGS[name]).mkdir(parents=True, exist_ok=True)
    Dataset.from_dict(rows).to_parquet(folder / CONFIGS[name] / "test-00000-of-00001.parquet")
    here = [config for config in CONFIGS.values() if (folder / config).is_dir()]
    parts = [f"- config_name: {config}\n  data_files:\n  - split: test\n    path: {config}/*\n" for config in here]
    (folder / "README.md").write_text(f"---\nconfigs:\n{''.join(parts)}---\n")
    return folder


@pytest.mark.parametrize("name", CONFIGS)
def test_tables_of_the_hub_are_one_judgment_a_row(tmp_path: Path, name: str) -> None:
    found = load_benchmark(name, write_tables(tmp_path / "hub", name)).rows
    cells = found[["image_id", "captions", "ratings", "references"]].itertuples(index=False, name=None)
    assert list(cells) == [
        ("1.jpg", ("A.",), {"overall": RATINGS[name][:3]}, ("C.", "D.")),
        ("2.jpg", ("B.",), {"overall": RATINGS[name][3:]}, ("E.",)),
    ]
    (other,) = {*CONFIGS} - {name}
    with pytest.raises(DataError, match=f"BuilderConfig '{CONFIGS[other]}' not found"):
        load_benchmark(other, tmp_path / "hub")


@pytest.mark.skipif(not DATA.exists(), reason="the published ratings and scores are not here")
def test_published_data_have_5664_pairs() -> None:
    benchmark = load_benchmark("flickr8k-expert", DATA)
    assert (benchmark.shape, list(benchmark.columns)) == ((5664, 1), ["fleur_raw", "fleur"])
    assert {len(each["overall"]) for each in benchmark.rows["ratings"]} == {3}
    assert not any(item.captions[0] in item.references for item in benchmark.rows.itertuples())
