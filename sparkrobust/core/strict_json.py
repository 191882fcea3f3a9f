"""JSON as we write it, and nothing that merely resembles it: what comes from storage may be anything."""

from __future__ import annotations

import json
import reprlib
from typing import Any, NoReturn

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 200


def dumps(value: object) -> str:
    """Compact text; equal values give equal text."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True, allow_nan=False, ensure_ascii=False)


def loads(text: str | bytes) -> Any:
    """The value; ``ValueError`` for a key that stands twice, ``NaN``, or a nesting without end."""
    try:
        return json.loads(text, object_pairs_hook=_no_duplicates, parse_constant=_no_constants)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def shown(value: object) -> str:
    """What an error says of a value that may be of any size and depth."""
    return _REPR.repr(value)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _no_constants(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")
