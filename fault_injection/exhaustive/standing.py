"""Where code stands, as a value that is equal for code that will do the same from here on.

Two processes that got other answers on their way may yet be in one state, since what was of interest
in the answers is no more.  A state is told by the frames of the code that runs, and by all that their
variables hold.  Not all that a frame knows are variables: there are the iterators of its loops, and the
parts of an expression that are already computed while it calls for the next one.  Those were made
since the statement (or the outermost loop around it) began, before the call that is under way.  So to a
frame also belongs what its variables were as that statement began, and which answers have come
since then up to that call.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import Enum
from functools import cached_property, lru_cache
from types import (
    BuiltinMethodType,
    FrameType,
    FunctionType,
    GeneratorType,
    MappingProxyType,
    MethodType,
    ModuleType,
)
from typing import Any

from fault_injection.exhaustive.statements import Hold, hold


class Unknown(Exception):
    """A value that can't be told from another one of its type."""


@dataclass(frozen=True, slots=True)
class Level:
    """A frame, by what can't be seen in its variables."""

    hold: Hold
    began: int
    """How many answers there were when what it holds began to be made."""
    turn: int
    """How many there were when the loop around went on to its next turn."""
    entered: int
    """How many there were when the frame began."""
    known: bytes
    """What the variables were then that it was made from."""
    everything: bytes
    """What all variables were."""


def levels_of(
    frames: list[FrameType], before: list[FrameType], levels: tuple[Level, ...], answers: int, opaque: Opaque
) -> tuple[Level, ...]:
    """The frames of code that has got one more answer, the outermost first."""
    found: list[Level] = []
    common = 0
    while common < min(len(frames), len(before)) and frames[common] is before[common]:
        common += 1
    for depth, frame in enumerate(frames):
        held = hold(frame.f_code, frame.f_lasti, frame.f_lineno or 0)
        if depth >= common:
            found.append(_level(frame, held, answers, answers, opaque))
            continue
        level = levels[depth]
        if held.place != level.hold.place:
            found.append(_level(frame, held, answers, level.entered, opaque))
        elif depth + 1 < common:
            found.append(level)  # it still waits for the same call
        else:
            goes_on = held.position <= level.hold.position
            # What is made from other variables than before began with all of them.
            known = level.known if held.names == level.hold.names else level.everything
            turn = answers if goes_on else level.turn
            found.append(replace(level, hold=held, known=known, turn=turn))
    return tuple(found)


def _level(frame: FrameType, held: Hold, answers: int, entered: int, opaque: Opaque) -> Level:
    everything = known = b""
    if not held.nothing or not held.alone:
        everything = known = _variables(frame, opaque)
        if held.names is not None:
            known = _variables(frame, opaque, held.names)
    return Level(held, answers, answers, entered, known, everything)


def _variables(frame: FrameType, opaque: Opaque, names: frozenset[str] | None = None) -> bytes:
    teller = Teller(opaque)
    teller.variables(frame, names)
    return teller.digest()


def where(frames: list[FrameType], levels: tuple[Level, ...], answers: list[Any], opaque: Opaque) -> bytes:
    """Equal for code that will do the same from here on."""
    teller = Teller(opaque)
    for depth, (frame, level) in enumerate(zip(frames, levels, strict=True)):
        called = levels[depth + 1].entered if depth + 1 < len(levels) else len(answers)
        code = frame.f_code
        teller.parts.append(f"{code.co_filename} {code.co_firstlineno} {code.co_name} {frame.f_lasti}")
        teller.tell(_held(level, answers, called))
        teller.variables(frame)
    return teller.digest()


def _held(level: Level, answers: list[Any], called: int) -> Any:
    """What decides about all that a frame holds besides its variables."""
    if level.hold.nothing:
        return ()
    if level.hold.loops:
        return level.known, tuple(answers[level.began : level.turn])
    since = tuple(answers[level.began : called])
    return (level.everything if since else level.known), since


def digest(value: Any, opaque: Opaque = ()) -> bytes:
    teller = Teller(opaque)
    teller.tell(value)
    return teller.digest()


Opaque = tuple[type, ...]
"""Types whose values do not differ within a world, as far as code can tell."""


class Teller:
    """Tells all that values hold; the same for values that code can't tell from each other."""

    def __init__(self, opaque: Opaque) -> None:
        self.opaque = opaque
        self.parts: list[str] = []
        self._seen: dict[int, int] = {}

    def digest(self) -> bytes:
        text = "\n".join(self.parts)
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()

    def variables(self, frame: FrameType, names: frozenset[str] | None = None) -> None:
        for name, value in frame.f_locals.items():
            if names is None or name in names:
                self.parts.append(name)
                self.tell(value)

    def tell(self, value: Any) -> None:
        kind = type(value)
        how = _HOW.get(kind)
        if how is None:
            how = _HOW[kind] = _how(kind, self.opaque)
        how(self, value)

    # -- by type -----------------------------------------------------------------------------------------

    def plain(self, value: Any) -> None:
        self.parts.append(repr(value))

    def nothing(self, value: Any) -> None:
        self.parts.append(type(value).__name__)

    def named(self, value: Any) -> None:
        self.parts.append(value.__qualname__ if isinstance(value, type) else value.__name__)

    def value(self, value: Any) -> None:
        """One that never changes, so that what is told of it doesn't either."""
        known = _values.get(id(value))
        if known is None:
            inner = Teller(self.opaque)
            for name in _fields_of(value.__class__):
                inner.tell(getattr(value, name))
            if len(_values) > _VALUES:
                _values.clear()
            # With the value itself, so that no other one gets its id.
            known = _values[id(value)] = f"{type(value).__name__} {inner.digest().hex()}", value
        self.parts.append(known[0])

    def new(self, value: Any) -> bool:
        known = self._seen.setdefault(id(value), len(self._seen))
        self.parts.append(f"{type(value).__name__} {known}")
        return known == len(self._seen) - 1

    def each(self, value: Any) -> None:
        if self.new(value):
            self.parts.append(f"({len(value)}")
            for one in value:
                self.tell(one)

    def unordered(self, value: Any) -> None:
        if self.new(value):
            self.parts.extend(sorted(digest(one, self.opaque).hex() for one in value))

    def mapping(self, value: Any) -> None:
        if self.new(value):
            self.parts.append(f"({len(value)}")
            for name, held in value.items():
                self.tell(name)
                self.tell(held)

    def function(self, value: FunctionType) -> None:
        if self.new(value):
            self.parts.append(f"{value.__qualname__} {value.__code__.co_firstlineno}")
            for cell in value.__closure__ or ():
                try:
                    held = cell.cell_contents
                except ValueError:  # not bound yet
                    continue
                self.tell(held)
            self.tell(value.__defaults__)
            self.tell(value.__kwdefaults__)

    def method(self, value: Any) -> None:
        self.parts.append(value.__name__)
        self.tell(value.__self__)

    def generator(self, value: Any) -> None:
        if self.new(value):
            frame = value.gi_frame
            self.parts.append(f"{value.__qualname__} {frame and frame.f_lasti}")
            if frame is not None:
                self.variables(frame)

    def error(self, value: BaseException) -> None:
        self.parts.append(f"{type(value).__name__} {value}")

    def content(self, value: Any) -> None:
        self.parts.append(repr(bytes(value)))

    def attributes(self, value: Any) -> None:
        if self.new(value):
            caches = _caches(value.__class__)
            for name, held in value.__dict__.items():
                if name not in caches:
                    self.parts.append(name)
                    self.tell(held)
            if isinstance(value, (list, dict)):
                self.tell(list(value.items() if isinstance(value, dict) else value))

    def slots(self, value: Any) -> None:
        if self.new(value):
            for name in _slots(value.__class__):
                self.tell(getattr(value, name, None))

    def reduced(self, value: Any) -> None:
        if self.new(value):
            found = value.__reduce_ex__(2)
            if not isinstance(found, tuple):
                raise TypeError(f"what a {type(value).__qualname__} holds can't be told")
            self.tell(found[1:])


_How = Callable[[Teller, Any], None]
_VALUES = 200_000
_HOW: dict[type, _How] = {}
_values: dict[int, tuple[str, Any]] = {}


def _how(kind: type, opaque: Opaque) -> _How:
    """How values of a type are told."""
    ways: list[tuple[tuple[type, ...], _How]] = [
        (opaque, Teller.nothing),
        ((type, ModuleType), Teller.named),
        ((Enum, str, bytes, int, float, type(None)), Teller.plain),
        ((FunctionType,), Teller.function),
        ((MethodType, BuiltinMethodType), Teller.method),
        ((GeneratorType,), Teller.generator),
        ((BaseException,), Teller.error),
        ((bytearray, memoryview), Teller.content),
    ]
    for kinds, how in ways:
        if issubclass(kind, kinds):
            return how
    if kind in (list, tuple, deque):
        return Teller.each
    if kind in (set, frozenset):
        return Teller.unordered
    if kind in (dict, MappingProxyType):
        return Teller.mapping
    parameters = getattr(kind, "__dataclass_params__", None)
    if parameters is not None and parameters.frozen:
        return Teller.value
    if getattr(kind, "__dictoffset__", 0):
        return Teller.attributes
    return Teller.slots if _slots(kind) else Teller.reduced


@lru_cache(None)
def _fields_of(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


@lru_cache(None)
def _slots(kind: Any) -> tuple[str, ...]:
    return tuple(name for base in kind.__mro__ for name in getattr(base, "__slots__", ()))


@lru_cache(None)
def _caches(kind: Any) -> frozenset[str]:
    """What is computed from the rest, when it is first asked for."""
    return frozenset(
        name
        for base in kind.__mro__
        for name, held in vars(base).items()
        if isinstance(held, cached_property)
    )
