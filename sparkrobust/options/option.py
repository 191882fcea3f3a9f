"""What is said about one key."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """How a value is spelled."""

    TEXT = "text"
    FIELDS = "fields"
    """Names separated by commas; the empty text is no field."""
    BOOL = "bool"
    INT = "int"
    WORD = "word"
    """One of an enum's spellings, in any case."""
    CLASS = "class"
    """A Java class, with or without its package."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """One key that we act on."""

    key: str
    field: str
    """The attribute of the parsed options that carries it."""
    kind: Kind
    doc: str
    default: object = None
    unit: str = ""
    aliases: tuple[str, ...] = ()
    words: type[Enum] | None = None
    """The values of a ``WORD``."""
    minimum: float = 0
    not_yet: tuple[str, ...] = ()
    """Values that Hudi takes and we do not, or not yet: refused, and called so."""

    @property
    def values(self) -> tuple[str, ...]:
        """What may stand there, where that can be listed."""
        if self.kind is Kind.BOOL:
            return ("true", "false")
        return tuple(str(word.value) for word in self.words) if self.words else ()

    @property
    def default_text(self) -> str:
        """The default as one would write it, empty where there is none."""
        if self.default is None:
            return ""
        if isinstance(self.default, Enum):
            return str(self.default.value)
        return str(self.default).lower() if isinstance(self.default, bool) else str(self.default)


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A key of Hudi that would change what is stored or promised, and that we can't serve."""

    key: str
    reason: str
    harmless: tuple[str, ...] = ("",)
    """The values (lower case) under which nothing is asked of us; the empty one always is."""
    aliases: tuple[str, ...] = ()
