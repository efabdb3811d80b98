"""Rules that no linter holds: where in a file an import of TRL may stand, and that the list of slow tests is true."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import reward


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


def test_the_walk_sees_what_is_loaded_and_only_that() -> None:
    code = (
        "import a.b\nfrom c.d import e\ntry:\n    import f\nexcept ImportError:\n    pass\n"
        "if TYPE_CHECKING:\n    import g\ndef h():\n    import i\nclass J:\n    import k\nfrom . import l"
    )
    assert list(imports_on_load(ast.parse(code))) == ["a", "c", "f", "k"]


def test_reward_does_not_load_trl_by_itself() -> None:
    folder = Path(reward.__file__).parent
    files = sorted(folder.rglob("*.py"))
    assert len(files) > 10
    loads = [path for path in files if "trl" in imports_on_load(ast.parse(path.read_text(encoding="utf-8")))]
    assert [str(path.relative_to(folder)) for path in loads] == []


def test_every_function_on_the_list_of_slow_tests_is_there() -> None:
    root = Path(__file__).parents[1]
    contract = (root / "tests" / "contract.py").read_text(encoding="utf-8")  # whose tests other classes inherit
    for name in (root / "tests" / "slow_tests.txt").read_text(encoding="utf-8").split():
        file, *_, function = name.split("::")
        source = (root / file).read_text(encoding="utf-8") if (root / file).is_file() else ""
        # doctests have dotted names, whose last part is a function, a class, or the module itself
        last = function.rpartition(".")[2]
        assert re.search(rf"(def|class) {last}\b", source + contract) or (source and file.endswith(f"{last}.py")), (
            f"{name} is on the list and nowhere else: `make slow-tests` writes it anew"
        )
