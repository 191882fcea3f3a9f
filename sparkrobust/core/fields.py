"""Reading plain values that came from storage: each is what it must be, or the object is refused."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Any, NoReturn, TypeVar

from sparkrobust.errors import CorruptTableError

T = TypeVar("T")

_MAX_LONG = (1 << 63) - 1


def has_surrogates(text: str) -> bool:
    """Whether a text has halves of characters, which JSON can spell and nothing can store."""
    return not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)


class Fields:
    """The fields of a plain object of exactly these names; ``CorruptTableError`` for anything else."""

    def __init__(self, plain: object, names: AbstractSet[str], *, path: str) -> None:
        self._path = path
        if not isinstance(plain, dict):
            self.refuse("an object", plain)
        if plain.keys() != names:
            missing, unknown = sorted(names - plain.keys()), sorted(map(str, plain.keys() - names))
            self.refuse("other fields", f"{missing} missing, {unknown} unknown")
        self._plain: dict[str, Any] = plain

    def refuse(self, expected: str, found: object) -> NoReturn:
        """Raise what every method raises."""
        raise CorruptTableError(
            f"{self._path}: expected {expected}, found {str(found)[:200]!r}", path=self._path
        )

    def plain(self, name: str) -> Any:
        """The field as it stands there, for a reader of its own."""
        return self._plain[name]

    def text(self, name: str) -> str:
        value = self._plain[name]
        if not isinstance(value, str) or has_surrogates(value):
            self.refuse(f"text as {name}", value)
        return value

    def count(self, name: str) -> int:
        value = self._plain[name]
        if type(value) is not int or not 0 <= value <= _MAX_LONG:
            self.refuse(f"a count as {name}", value)
        return value

    def flag(self, name: str) -> bool:
        value = self._plain[name]
        if not isinstance(value, bool):
            self.refuse(f"true or false as {name}", value)
        return value

    def optional(self, name: str, read: Callable[[str], T]) -> T | None:
        """What ``read`` makes of the field, ``None`` of a null."""
        return None if self._plain[name] is None else read(name)

    def items(self, name: str) -> list[Any]:
        value = self._plain[name]
        if not isinstance(value, list):
            self.refuse(f"a list as {name}", value)
        return value

    def texts(self, name: str) -> dict[str, str]:
        """An object of texts."""
        value = self._plain[name]
        if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
            self.refuse(f"an object of texts as {name}", value)
        return value
