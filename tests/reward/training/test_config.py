"""Training configurations: layers, files, and settings that are refused."""

import json
from dataclasses import replace

import pytest

from reward.errors import ConfigError
from reward.training.config import make_config, read_config_file


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"epochs": True}, "training config: epochs must be a valid integer, got True"),
        ({"max_steps": 0}, "max_steps must be greater than or equal to 1, got 0"),
        ({"learning_rate": float("nan")}, "learning_rate must be a finite number, got nan"),
        ({"learning_rate": "1e-4"}, "learning_rate must be a valid number, got '1e-4'; YAML .* write 1.0e-4"),
        ({"warmup_ratio": 1}, "warmup_ratio must be less than 1, got 1"),
        ({"precision": "int8"}, "precision must be 'fp32', 'bf16' or 'fp16', got 'int8'"),
        ({"categories": ["noun", "noun"]}, "categories must be a list of different names"),
        ({"learning_rat": 1.0}, "unknown setting learning_rat; known: .*learning_rate"),
        ({"stages": [1]}, "stages must be a valid dictionary"),
        ({"stages": {"a": {"model": {}}}}, "stage 'a' cannot set model"),
        ({"stages": {"../a": {}}}, "the name of a stage is a text of letters, digits, _, . and -, got '../a'"),
        ({"stages": {"a": {"epochs": 0}}}, "stage 'a': training config: epochs must be greater than or equal to 1"),
        ({"loss": "bradley_terry", "eval_batch_size": 3}, r"eval_batch_size must be divisible by 2 \(two captions"),
        ({"loss": "bce", "batch_size": 3}, r"batch_size must be divisible by 2 \(two captions per pair\), got 3"),
    ],
)
def test_bad_settings_are_refused_by_name(setting, message):
    with pytest.raises(ConfigError, match=message):
        make_config(setting)


def test_later_layers_win_and_model_tables_merge_and_survive_json():
    preset = {"epochs": 3, "patience": 2, "model": {"text": {"lora": {"r": 16, "alpha": 16}}, "image": {}}}
    config = make_config(preset, {"epochs": 5, "model": {"text": {"lora": {"r": 4}}, "image": None}}, {"seed": 7})
    assert (config.epochs, config.patience, config.seed) == (5, 2, 7)
    assert config.model == {"text": {"lora": {"r": 4, "alpha": 16}}, "image": None}
    named = replace(config, test_parts=("a", "b"), data="one", pairs=["a", "b"])
    assert (named.data, named.pairs) == (("one",), ("a", "b"))
    assert make_config(json.loads(json.dumps(named.to_dict()))) == named


def test_a_file_is_a_table_in_yaml_or_json(tmp_path):
    (tmp_path / "a.yaml").write_text("learning_rate: 5.0e-5\nmodel:\n  image: null\n")
    (tmp_path / "a.json").write_text('{"learning_rate": 5e-5, "model": {"image": null}}')
    for name in ("a.yaml", "a.json"):
        assert read_config_file(tmp_path / name) == {"learning_rate": 5e-5, "model": {"image": None}}
    for name, text, message in (
        ("c.toml", "", "ends in .yaml"),
        ("c.json", "{", "cannot read the config file .*c.json: Expecting"),
        ("c.yaml", "a: [", "cannot read the config file .*c.yaml: while parsing"),
        ("c.yml", "- 1", "must hold a table"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(ConfigError, match=message):
            read_config_file(tmp_path / name)
