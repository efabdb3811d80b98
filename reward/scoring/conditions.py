"""Conditions on columns, such as `reward >= 0.6 and error is None`: read as text, checked, and run by Arrow."""

from __future__ import annotations

import ast
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from reward.errors import ConfigError, DataError
from reward.samples import find_column

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Condition", "parse_condition"]

_COMPARE: dict[type[ast.cmpop], Any] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_FORM = (
    "write comparisons of columns with numbers or texts, joined by and, or, not: "
    "reward >= 0.6 and source in ['coco', 'cc12m'] and error is None"
)
_LONGEST = 10_000  # characters; deeper nesting than fits into them would stop Python's parser


@dataclass(frozen=True, eq=False)
class Condition:
    """A condition that was read and checked.

    Args:
        text: as it was written.
        columns: that it looks at.
        expression: of `pyarrow.compute`, which Arrow's readers also take as a filter; they do not count NaN as null.
    """

    text: str
    columns: tuple[str, ...]
    expression: Any

    def mask(self, table: pa.Table) -> np.ndarray:
        """Whether each row meets it, bool (N,). A null or NaN value meets neither a comparison nor its negation.

        Raises:
            DataError: a column's type does not go with what it is compared with.
        """
        import pyarrow as pa

        row = max(self.columns, key=len) + " row"  # no name of theirs
        numbers = pa.table({name: _without_nan(table.column(name)) for name in self.columns})
        numbers = numbers.append_column(row, pa.array(np.arange(table.num_rows)))
        try:
            met = numbers.filter(self.expression).column(row).to_numpy()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            kinds = ", ".join(f"{name} holds {table.schema.field(name).type}" for name in self.columns)
            raise DataError(f"the condition {self.text!r} does not fit the columns ({kinds}): {error}") from error
        mask = np.zeros(table.num_rows, dtype=bool)
        mask[met] = True
        return mask


def parse_condition(text: str, columns: Sequence[str], *, option: str = "--keep") -> Condition:
    """Reads a condition; nothing in it is run as code.

    There are comparisons (`<`, `<=`, `>`, `>=`, `==`, `!=`, also chained), `in [...]`, `is None` and `is not None`
    (NaN counts as None), `len(column)` for the characters of a text, `and`, `or`, `not` and parentheses. A column whose
    name is no word is written `column("its name")`.

    Args:
        text: the condition.
        columns: the columns there are.
        option: how the user gives it; named in the errors.

    Raises:
        ConfigError: it is not of this form.
        DataError: it names a column that is not there.

    Example:
        >>> import pyarrow as pa
        >>> rows = pa.table({"reward": [0.9, 0.2, None], "source": ["a", "b", "b"]})
        >>> parse_condition("reward > 0.5 or source == 'b' and reward is None", rows.column_names).mask(rows).tolist()
        [True, False, True]
    """
    try:
        if len(text) > _LONGEST:
            raise ValueError(f"longer than {_LONGEST:,} characters")
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = getattr(error, "msg", error)
        raise ConfigError(f"{option} {text!r:.200} cannot be read ({why}): {_FORM}") from None
    reader = _Reader(text, columns, option)
    expression = reader.truth(tree.body)
    if not reader.used:
        raise ConfigError(f"{option} {text!r} looks at no column: {_FORM}")
    return Condition(text, tuple(dict.fromkeys(reader.used)), expression)


def _without_nan(column: pa.ChunkedArray) -> pa.ChunkedArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.if_else(pc.is_nan(column), None, column) if pa.types.is_floating(column.type) else column


class _Reader:
    def __init__(self, text: str, columns: Sequence[str], option: str) -> None:
        self.text, self.columns, self.option = text, columns, option
        self.used: list[str] = []

    def refuse(self, node: ast.AST) -> ConfigError:
        part = ast.get_source_segment(self.text.strip(), node) or ast.dump(node)
        return ConfigError(f"{self.option} {self.text!r}: {part!r} is not allowed there; {_FORM}")

    def truth(self, node: ast.expr) -> Any:
        if isinstance(node, ast.BoolOp):
            join = operator.and_ if isinstance(node.op, ast.And) else operator.or_
            return reduce(join, map(self.truth, node.values))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return ~self.truth(node.operand)
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            return reduce(operator.and_, map(self.compare, sides, node.ops, sides[1:]))
        return self.column(node)

    def compare(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Any:
        if isinstance(right, ast.Constant) and right.value is None and isinstance(op, (ast.Is, ast.IsNot)):
            null = self.column(left).is_null(nan_is_null=True)
            return null if isinstance(op, ast.Is) else ~null
        if isinstance(op, (ast.In, ast.NotIn)) and isinstance(right, (ast.List, ast.Tuple)) and right.elts:
            found = self.column(left).isin([self.constant(value) for value in right.elts])
            return found if isinstance(op, ast.In) else ~found
        if type(op) not in _COMPARE:
            raise self.refuse(right)
        return _COMPARE[type(op)](self.value(left), self.value(right))

    def value(self, node: ast.expr) -> Any:
        import pyarrow.compute as pc

        is_text = isinstance(node, (ast.Constant, ast.UnaryOp))
        return pc.scalar(self.constant(node)) if is_text else self.column(node)

    def constant(self, node: ast.expr) -> Any:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self.constant(node.operand)
            if not isinstance(value, (str, bool)):
                return -value
        if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float, str)):
            return node.value
        raise self.refuse(node)

    def column(self, node: ast.expr) -> Any:
        import pyarrow.compute as pc

        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1 and not node.keywords:
            (given,) = node.args
            if node.func.id == "len":
                return pc.utf8_length(self.column(given))
            if node.func.id == "column" and isinstance(given, ast.Constant) and isinstance(given.value, str):
                node = ast.Name(given.value)
        if not isinstance(node, ast.Name):
            raise self.refuse(node)
        find_column("column", self.columns, node.id, option=self.option)
        self.used.append(node.id)
        return pc.field(node.id)
