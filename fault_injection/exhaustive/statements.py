"""What a frame knows besides its variables, by the text of its code.

A frame that waits for a call to return may hold what no variable does: iterators of the loops around,
the parts of an expression that were computed before the call, the result of a comprehension so far.
Most calls stand where there is nothing of the kind.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_MADE_WHOLE = {"range", "list", "sorted", "enumerate", "zip", "reversed", "tuple", "set", "dict"}
"""What a loop may go over without running code in between."""
_NEVER_REPLACED = {"storage", "table", "_table", "plan", "folder", "_control", "control", "clock", "hands"}
"""Attributes that stay what they are as long as their object lives."""


@dataclass(frozen=True, slots=True)
class Hold:
    """What is held at a place in the code."""

    place: int
    """The line on which the statement or the loop begins since when it is held; 0 for the function."""
    position: tuple[int, int]
    nothing: bool = False
    names: frozenset[str] | None = None
    """The variables that it was made from, ``None`` for any."""
    loops: bool = False
    """It is a loop's iterator, and nothing else."""
    alone: bool = False
    """Wherever else the statement calls, nothing is held either."""


@dataclass(frozen=True)
class _Text:
    """A module's text."""

    parents: dict[ast.AST, ast.AST]
    functions: dict[tuple[str, int], ast.AST]
    calls: dict[tuple[int, int, int, int], ast.AST]


@lru_cache(None)
def hold(code: CodeType, last: int, line: int) -> Hold:
    text = _text(code.co_filename)
    call = _call(text, code, last)
    function = text.functions.get((code.co_name, code.co_firstlineno))
    if call is None or (function is None and code.co_name not in ("<genexpr>", "<lambda>")):
        return Hold(0, (line, last))
    position = (call.lineno, call.col_offset)  # type: ignore[attr-defined]
    inner, comprehension = _climb(text.parents, call)
    if isinstance(inner, (ast.GeneratorExp, ast.Lambda)) and code.co_name.startswith("<"):
        return Hold(0, position, nothing=True)
    if function is None:
        return Hold(0, position)
    statement: ast.AST = call
    while not isinstance(statement, ast.stmt):
        statement = text.parents[statement]
    holders = [one for one in _around(text.parents, statement, function) if _holds(text.parents, *one)]
    free = inner is statement and comprehension is None
    if not holders:
        names = None
        if inner is statement and comprehension is not None:
            names = _names(comprehension) - _names(call)
        alone = all(_climb(text.parents, one) == (statement, None) for one in _calls_of(statement))
        return Hold(statement.lineno, position, nothing=free, names=names, alone=alone)
    outermost = holders[-1][0]
    assert isinstance(outermost, ast.stmt)
    if len(holders) == 1 and free and isinstance(outermost, ast.For) and _is_whole(outermost.iter):
        return Hold(outermost.lineno, position, names=_names(outermost.iter), loops=True)
    return Hold(outermost.lineno, position)


def _call(text: _Text, code: CodeType, last: int) -> ast.AST | None:
    """The call that an instruction makes; ``None`` where it can't be told (before Python 3.11)."""
    positions = getattr(code, "co_positions", None)
    if positions is None:
        return None
    where = _positions(code)[last // 2]
    return None if None in where else text.calls.get(where)


@lru_cache(None)
def _positions(code: CodeType) -> list[tuple[int, int, int, int]]:
    return [(a, b, c, d) for a, b, c, d in code.co_positions()]  # type: ignore[attr-defined]


@lru_cache(None)
def _text(file: str) -> _Text:
    try:
        tree = ast.parse(Path(file).read_text())
    except (OSError, SyntaxError):
        return _Text({}, {}, {})
    text = _Text({}, {}, {})
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            text.parents[child] = node
        if isinstance(node, _FUNCTIONS):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            text.functions[node.name, first] = node
        if isinstance(node, ast.Call):
            assert node.end_lineno is not None and node.end_col_offset is not None
            text.calls[node.lineno, node.end_lineno, node.col_offset, node.end_col_offset] = node
    return text


def _calls_of(statement: ast.AST) -> Iterator[ast.Call]:
    """Those of the statement itself, not of the statements in it."""
    for child in ast.iter_child_nodes(statement):
        if not isinstance(child, (ast.stmt, ast.ExceptHandler)):
            if isinstance(child, ast.Call):
                yield child
            yield from _calls_of(child)


# -- within a statement ----------------------------------------------------------------------------------


def _climb(parents: dict[ast.AST, ast.AST], node: ast.AST) -> tuple[ast.AST | None, ast.AST | None]:
    """How far up nothing is held but one comprehension: the statement, if all the way; the comprehension."""
    comprehension: ast.AST | None = None
    while not isinstance(node, ast.stmt):
        above = parents[node]
        if isinstance(above, (ast.GeneratorExp, ast.Lambda)) and not _is_first_iterable(above, node):
            return above, comprehension
        if isinstance(above, ast.comprehension):
            whole = parents[above]
            if not _is_first_iterable(whole, above, node):
                if comprehension is not None or len(whole.generators) != 1:  # type: ignore[attr-defined]
                    return None, None
                if isinstance(whole, ast.GeneratorExp):
                    return whole, None
                comprehension = whole
            node = whole
            continue
        if isinstance(above, _COMPREHENSIONS):
            if comprehension is not None or len(above.generators) != 1:
                return None, None
            comprehension = above
        elif not _is_first(above, node):
            return None, None
        node = above
    return node, comprehension


def _is_first_iterable(whole: ast.AST, part: ast.AST, inner: ast.AST | None = None) -> bool:
    """Whether a part is what the comprehension goes over, which is made before it begins."""
    if not isinstance(whole, _COMPREHENSIONS) or part is not whole.generators[0]:
        return False
    return inner is None or inner is whole.generators[0].iter


def _is_first(above: ast.AST, node: ast.AST) -> bool:
    """Whether all that was computed for ``above`` before ``node`` is to be seen in variables."""
    transparent = (
        *(ast.Expr, ast.Return, ast.Assign, ast.AnnAssign, ast.If, ast.While, ast.Assert, ast.For, ast.Raise),
        *(ast.UnaryOp, ast.BoolOp, ast.IfExp, ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Starred),
        *(ast.Attribute, ast.keyword, ast.FormattedValue, ast.withitem),
    )
    if isinstance(above, transparent):
        return True
    if isinstance(above, ast.With):
        return above.items[0] is node
    if isinstance(above, ast.Call):
        if above.func is node:
            return True
        before = [*above.args, *above.keywords]
        return _is_seen(above.func, called=True) and _all_seen(before[: _index(before, node)])
    if isinstance(above, ast.Compare):
        return above.left is node or _all_seen(
            [above.left, *above.comparators[: _index(above.comparators, node)]]
        )
    if isinstance(above, ast.BinOp):
        return above.left is node or _is_seen(above.left)
    if isinstance(above, ast.Subscript):
        return above.value is node or _is_seen(above.value)
    if isinstance(above, (ast.Tuple, ast.List, ast.Set)):
        return _all_seen(above.elts[: _index(above.elts, node)])
    if isinstance(above, ast.JoinedStr):
        return _all_seen(above.values[: _index(above.values, node)])
    return False


def _index(nodes: list[ast.AST] | list[ast.expr], node: ast.AST) -> int:
    return next(i for i, one in enumerate(nodes) if one is node)


def _all_seen(nodes: list[ast.AST] | list[ast.expr]) -> bool:
    return all(_is_seen(node.value if isinstance(node, ast.keyword) else node) for node in nodes)


def _is_seen(node: ast.AST, *, called: bool = False) -> bool:
    """A constant or a variable; or, of what is called, a method of one."""
    if isinstance(node, (ast.Constant, ast.Name)):
        return True
    if not called or not isinstance(node, ast.Attribute):
        return False
    inner = node.value
    while isinstance(inner, ast.Attribute) and inner.attr in _NEVER_REPLACED:
        inner = inner.value
    return isinstance(inner, ast.Name)


# -- around a statement ----------------------------------------------------------------------------------


def _around(
    parents: dict[ast.AST, ast.AST], statement: ast.AST, function: ast.AST
) -> list[tuple[ast.AST, ast.AST]]:
    """The statements that a statement lies in, the innermost first, each with its part that it lies in."""
    found = []
    while statement is not function:
        above = parents[statement]
        if above is not function:
            found.append((above, statement))
        statement = above
    return found


def _holds(parents: dict[ast.AST, ast.AST], statement: ast.AST, part: ast.AST) -> bool:
    if isinstance(statement, ast.For):
        return True
    if isinstance(statement, ast.With):
        return not all(_is_suppress(item.context_expr) for item in statement.items)
    if isinstance(statement, ast.Try):
        return part in statement.finalbody or (isinstance(part, ast.ExceptHandler) and part.name is None)
    return False


def _is_suppress(manager: ast.expr) -> bool:
    """It keeps nothing but which errors it is for."""
    return isinstance(manager, ast.Call) and ast.unparse(manager.func) in ("contextlib.suppress", "suppress")


def _is_whole(iterable: ast.expr) -> bool:
    """It is made before the loop begins, and runs no code in between."""
    if isinstance(iterable, (ast.Name, ast.Attribute, ast.Constant, ast.ListComp)):
        return True
    if isinstance(iterable, (ast.Tuple, ast.List)):
        return all(map(_is_whole, iterable.elts))
    if isinstance(iterable, ast.BinOp):
        return True
    if isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name):
        return iterable.func.id in _MADE_WHOLE and all(map(_is_whole, iterable.args))
    return False


def _names(node: ast.AST) -> frozenset[str]:
    return frozenset(one.id for one in ast.walk(node) if isinstance(one, ast.Name))
