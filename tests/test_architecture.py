"""Rules that no linter holds: no import of TRL on load, a true drawing of the house, a true list of slow tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import reward

ROOT = Path(__file__).parents[1]


def imports_on_load(node: ast.AST) -> Iterator[str]:
    """Names of the top-level packages that a file imports when it is loaded: not in functions, not for types only."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module and not child.level:
            yield child.module.partition(".")[0]
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        elif not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from imports_on_load(child)


@pytest.mark.slow
def test_reward_does_not_load_trl_by_itself() -> None:
    folder = Path(reward.__file__).parent
    files = sorted(folder.rglob("*.py"))
    assert len(files) > 10
    loads = [path for path in files if "trl" in imports_on_load(ast.parse(path.read_text(encoding="utf-8")))]
    assert [str(path.relative_to(folder)) for path in loads] == []


def drawn_layers() -> dict[str, int]:
    """{package or module: its layer} in the drawing of CONTRIBUTING, whose layers are a number and what is below it."""
    _, _, drawing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("```text\n")
    layers, layer, inside = {}, -1, ""
    for line in drawing.partition("```")[0].splitlines():
        number, names = line[:3].strip(), re.split(" {2,}", line[3:])[0].split()
        if number:
            layer, (inside,) = int(number), names
            layers[inside.strip("/")] = layer
        else:
            layers |= {f"{inside}{name}".replace("/", "."): layer for name in names if name not in ("|", "v")}
    return {name.replace("/", "."): layer for name, layer in layers.items() if name != "reward"}


def contract_layers() -> dict[str, int]:
    """{package or module: how many layers are below it} in the contract of import-linter."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition('type = "layers"\nlayers = [\n')[2]
    lines = text.partition("\n]")[0].splitlines()
    return {name: -place for place, line in enumerate(lines) for name in re.findall(r"[\w.]+", line)}


def test_the_drawing_of_the_house_has_every_package_in_the_layer_of_the_contract() -> None:
    drawn, contract = drawn_layers(), contract_layers()
    there = {
        f"{folder}.{path.stem}"
        for folder in ("reward", "integrations")
        for path in (ROOT / folder).iterdir()
        if (path / "__init__.py").is_file() or (path.suffix == ".py" and path.stem != "__init__")
    }
    assert len(there) > 20
    assert there | {"integrations"} == set(drawn)
    assert {name for name in there if name.startswith("reward.")} | {"integrations"} == set(contract)
    assert {drawn[name] for name in there if name.startswith("integrations.")} == {drawn["integrations"]}
    levels = sorted((contract[name], drawn[name]) for name in contract)
    assert [layer for _, layer in levels] == sorted(layer for _, layer in levels)
    assert len({layer for _, layer in levels}) == max(drawn.values()) + 1 == 7
