"""The drawing of the house in CONTRIBUTING is that of the contract which import-linter holds."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def drawn_layers():
    """{package or module: its layer} in the drawing, whose layers are a number and what is below it."""
    drawing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("```text\n")[2].partition("```")[0]
    layers, layer, inside = {}, -1, ""
    for line in drawing.splitlines():
        names = re.split(" {2,}", line[3:])[0].split()
        if line[:3].strip():
            layer, inside = int(line[:3]), names[0].replace("/", ".")
            layers[inside.strip(".")] = layer
        else:
            layers |= {inside + name: layer for name in names if name not in ("|", "v")}
    layers.pop("reward")
    return layers


def contract_layers():
    """{package or module: how many layers are below it} in the contract."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition('type = "layers"\nlayers = [\n')[2]
    lines = text.partition("\n]")[0].splitlines()
    return {name: -place for place, line in enumerate(lines) for name in re.findall(r"[\w.]+", line)}


def test_the_drawing_of_the_house_has_every_package_in_the_layer_of_the_contract():
    drawn, contract = drawn_layers(), contract_layers()
    places = [path for folder in ("reward", "integrations") for path in (ROOT / folder).iterdir()]
    modules = {path for path in places if (path / "__init__.py").is_file() or path.suffix == ".py"}
    there = {f"{path.parent.name}.{path.stem}" for path in modules if path.stem != "__init__"} | {"integrations"}
    assert there == set(drawn)
    assert {name for name in there if not name.startswith("integrations.")} == set(contract)
    assert {layer for name, layer in drawn.items() if name.startswith("integrations.")} == {drawn["integrations"]}
    by_contract = [drawn[name] for name in sorted(contract, key=lambda name: (contract[name], drawn[name]))]
    assert by_contract == sorted(by_contract)
    assert {*drawn.values()} == set(range(7))


def test_every_metric_is_in_the_contract_that_none_imports_another():
    folders = {f"reward.metrics.{path.parent.name}" for path in (ROOT / "reward" / "metrics").glob("*/__init__.py")}
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition('type = "independence"')[2]
    listed = set(re.findall(r'"(reward\.metrics\.\w+)"', text.partition("]")[0]))
    assert listed == folders - {"reward.metrics.judge_metric"}  # on which the judged ones are built


def test_every_file_that_the_ways_and_the_table_name_is_there():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:\w+/)+\w+\.\w+)`", text)
    there = [name for name in named if (ROOT / name).exists() or (ROOT / "reward" / name).exists()]
    assert len(named) > 20
    assert set(named) - set(there) == {"runs/gpu.md"}
