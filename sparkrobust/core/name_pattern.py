"""A glob that picks some files of many by their names: those of a snapshot, out of all that lie beside them.

A folder may hold older versions of a file group, and files of writes that are not committed.  Spelling
out thousands of names makes a pattern that takes longer to apply than the listing itself; most names
are told apart by their instant and the first characters of their file id.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_SPECIAL = frozenset("{}[]*?,\\^!-")


def name_pattern(wanted: Iterable[str], others: Iterable[str]) -> str:
    """A Hadoop glob that matches each of ``wanted``, which are base files, and none of ``others``."""
    chosen, rest = _by_ending(wanted), _by_ending(others)
    return _either([_beginnings(names, rest.get(end, ())) + _literal(end) for end, names in chosen.items()])


def _by_ending(names: Iterable[str]) -> dict[str, list[str]]:
    """From the last underscore on, a base file's name has the instant that wrote it."""
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        begin, underscore, end = name.rpartition("_")
        found.setdefault(underscore + end, []).append(begin)
    return found


def _beginnings(wanted: Sequence[str], others: Sequence[str]) -> str:
    if not others:
        return "*"
    chosen, rest = _by_first(wanted), _by_first(others)
    return _either(
        [
            "" if not first else _literal(first) + _beginnings(tails, rest.get(first, ()))
            for first, tails in chosen.items()
        ]
    )


def _by_first(texts: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for text in texts:
        found.setdefault(text[:1], []).append(text[1:])
    return found


def _either(patterns: Sequence[str]) -> str:
    return patterns[0] if len(patterns) == 1 else "{" + ",".join(patterns) + "}"


def _literal(text: str) -> str:
    return "".join(f"\\{char}" if char in _SPECIAL else char for char in text)
