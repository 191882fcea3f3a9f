"""What a process has lived through, and what it does next.

The code under test runs in greenlets, as in the random worlds, and can't be copied.  It need not be:
with a clock and ids of its own a process is a function of the answers that it got.  So the lives of
a process are a tree, whose edges are answers, and each moment of it has one next call.  The code runs
only where a new edge is made: on from where it stands, or again from the beginning with the answers
of before.  Everything else about a world of many processes is then a matter of looking up.
"""

from __future__ import annotations

import copy
import random
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, TypeVar
from unittest import mock
from weakref import WeakKeyDictionary

from greenlet import getcurrent, greenlet

from fault_injection.exhaustive.standing import Level, digest, levels_of, where
from fault_injection.simulation.actors import Pipelines
from fault_injection.simulation.scheduler import EPOCH_MS, Choices, Killed, OneHand, Rates, World
from sparkrobust.coordinator import table as tables
from sparkrobust.errors import RobustWriteError
from sparkrobust.storage.contract import Storage
from sparkrobust.world import Clock, Ids

T = TypeVar("T")

_STANDING = 1500
"""How many greenlets are kept where they stand; others run again from the beginning when needed."""
_APART_MS = 10_000_000
"""Between the clocks of two processes: they must not take the same time for an instant by chance."""

WAIT = "wait"
ASK = "ask"
"""A call that is no turn: what the world knows without looking at the store."""


@dataclass(eq=False, kw_only=True)
class Process:
    """One process of a small world."""

    name: str
    run: Callable[[], Any]
    number: int
    """Its ids and its clock are made from it."""
    hour: int = 0
    """Its clock, in steps that are far from each other."""


@dataclass(eq=False, slots=True, kw_only=True)
class Moment:
    """A process after certain answers."""

    number: int
    process: Process
    before: Moment | None = None
    answer: Any = None
    depth: int = 0
    call: str = ""
    effect: Callable[[], Any] | None = None
    changes: bool = False
    over: bool = False
    result: Any = None
    error: BaseException | None = None
    begun: tuple[Process, ...] = ()
    """Processes that this one has begun since the moment before."""
    after: dict[Hashable, Moment] = field(default_factory=dict)
    levels: tuple[Level, ...] = ()

    @property
    def waits(self) -> bool:
        return self.call.startswith(WAIT)

    @property
    def asks(self) -> bool:
        """Goes on in the same turn."""
        return self.call.startswith(ASK)


class _Run:
    """Code that stands somewhere, or is about to go on."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.random = random.Random(process.number)
        self.ids = 0
        self.dead = self.over = False
        self.call, self.effect, self.changes = "", None, False  # type: tuple[str, Callable[[], Any] | None, bool]
        self.result: Any = None
        self.error: BaseException | None = None
        self.begun: list[Process] = []
        self.frames: list[FrameType] = []
        self.greenlet: Any = greenlet(self._body)

    def _body(self) -> None:
        try:
            self.result = self.process.run()
        except Killed:
            return
        except Exception as error:
            self.error = error
        self.over = True

    def stops(self) -> tuple[list[FrameType], list[FrameType]]:
        """The frames as they stand, and as they stood before, the outermost first."""
        before, self.frames = self.frames, []
        frame = self.greenlet.gr_frame
        while frame is not None:
            self.frames.append(frame)
            frame = frame.f_back
        self.frames.reverse()
        return self.frames, before


class _OwnChoices(Choices):
    """Each process draws its own."""

    def __init__(self, world: SmallWorld) -> None:
        self._world = world

    @property
    def random(self) -> random.Random:  # type: ignore[override]
        return self._world.mine.random


class _OwnIds(Ids):
    """Ids that depend on the process and on what it has done, not on what others have."""

    def __init__(self, world: SmallWorld) -> None:
        self._world = world

    def number(self) -> int:
        run = self._world.mine
        run.ids += 1
        return run.process.number * 1000 + run.ids

    def nonce(self) -> str:
        return f"{self.number():016x}"

    def uuid(self) -> str:
        # Were the first eight digits decimal, they would say that all file groups are of one bucket.
        return f"{'f' * 8}-0000-0000-0000-{self.number():012x}"


class _OwnClock(Clock):
    """Time stands still; processes disagree about it."""

    def __init__(self, world: SmallWorld) -> None:
        self._world = world

    def now_ms(self) -> int:
        run = self._world.standing
        return EPOCH_MS + (_APART_MS * run.process.hour if run else 0)

    def elapsed(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        """Whoever sleeps is not scheduled for a while, as at any other call."""


class SmallWorld(World):
    """A world without a scheduler of its own: each call comes back to whoever explores it."""

    def __init__(self) -> None:
        super().__init__(Choices(0), Rates())
        self.choices = _OwnChoices(self)
        self.clock, self.ids, self.hands = _OwnClock(self), _OwnIds(self), _NoBeats(self)  # type: ignore[assignment]
        self.standing: _Run | None = None

    @property
    def mine(self) -> _Run:
        """Of the process that runs now."""
        assert self.standing is not None
        return self.standing

    def call(self, name: str, path: str, effect: Callable[[], T], *, changes: bool, **faults: object) -> T:
        run = self.standing
        if run is None:
            return effect()
        if run.dead:
            raise Killed
        run.call, run.effect, run.changes = f"{name} {path}", effect, changes
        answer: T = self._main.switch()
        return answer

    def ask(self, what: str, effect: Callable[[], T], *, changes: bool = False) -> T:
        """What is no call of the store, and takes no time."""
        return self.call(ASK, what, effect, changes=changes)

    def begin(self, process: Process) -> None:
        """A process that the running one begins."""
        self.mine.begun.append(process)

    def go(self, run: _Run, answer: object) -> None:
        """Let code go on up to its next call."""
        self.standing, self._main = run, getcurrent()
        run.effect = None
        try:
            if isinstance(answer, Exception):
                run.greenlet.throw(answer)
            elif isinstance(answer, Killed):
                run.dead = True
                run.greenlet.throw(answer)
            else:
                run.greenlet.switch(*(() if answer is _NOTHING else (answer,)))
        finally:
            self.standing = None


class _NoBeats(OneHand):
    """A heartbeat is put once: nobody in a small world looks how old one is."""

    def every(self, seconds: float, work: Callable[[], object]) -> Callable[[], None]:
        return _nothing


def _nothing() -> None:
    pass


_NOTHING = object()
OPAQUE = (World, Storage, Clock, Ids, OneHand, Choices, Pipelines, WeakKeyDictionary, _Run)
"""There is one of them in a world, or each does the same."""


class _Forgetful:
    """Remembers nothing: what one process has read another one does not know."""

    def get(self, key: object) -> None:
        return None

    def keep(self, key: object, value: object) -> None:
        """Nothing."""


class Lives:
    """The trees of all processes, in which equal moments are one.

    Parameters
    ----------
    merges
        Without it no two are: then a process is all that it was ever answered.
    """

    def __init__(self, world: SmallWorld, *, merges: bool = True) -> None:
        self._world, self.merges = world, merges
        self.moments: list[Moment] = []
        self._roots: dict[Process, Moment] = {}
        self._standing: OrderedDict[Moment, _Run] = OrderedDict()
        self._known: dict[tuple[Process, bytes], Moment] = {}
        self.replayed = 0

    def first(self, process: Process) -> Moment:
        """Before its first call."""
        found = self._roots.get(process)
        if found is None:
            run = _Run(process)
            self._world.go(run, _NOTHING)
            found = self._roots[process] = self._stands(run, None, None)
        return found

    def after(self, moment: Moment, answer: Any) -> Moment:
        """Once it has got this answer."""
        key = key_of(answer)
        found = moment.after.get(key)
        if found is None:
            run = self._standing.pop(moment, None) or self._again(moment)
            self._world.go(run, _own(answer))
            found = moment.after[key] = self._stands(run, moment, answer)
        return found

    def _stands(self, run: _Run, before: Moment | None, answer: Any) -> Moment:
        moment = Moment(
            number=len(self.moments),
            process=run.process,
            before=before,
            answer=answer,
            depth=0 if before is None else before.depth + 1,
            call="" if run.over else run.call,
            effect=None if run.over else run.effect,
            changes=run.changes,
            over=run.over,
            result=run.result,
            error=run.error,
            begun=tuple(run.begun),
        )
        key = self._where(run, moment)
        known = self._known.setdefault((run.process, key), moment)
        if known is moment:
            self.moments.append(moment)
        run.begun.clear()
        if not run.over and known in self._standing:
            self._world.go(run, Killed())
        elif not run.over:
            self._standing[known] = run
            if len(self._standing) > _STANDING:
                _, old = self._standing.popitem(last=False)
                self._world.go(old, Killed())
        return known

    def _where(self, run: _Run, moment: Moment) -> bytes:
        if not self.merges:
            return len(self.moments).to_bytes(4, "big")
        if run.over:
            return digest((run.result, type(run.error)), OPAQUE)
        frames, before = run.stops()
        answers: list[Any] = []
        at: Moment | None = moment
        while at is not None and at.before is not None:
            answers.append(key_of(at.answer))
            at = at.before
        answers.reverse()
        levels = moment.before.levels if moment.before else ()
        moment.levels = levels_of(frames, before, levels, moment.depth, OPAQUE)
        return where(frames, moment.levels, answers, OPAQUE) + run.ids.to_bytes(4, "big")

    def _again(self, moment: Moment) -> _Run:
        """The same once more, up to this moment."""
        self.replayed += 1
        run = _Run(moment.process)
        path = [moment]
        while path[-1].before is not None:
            path.append(path[-1].before)
        self._world.go(run, _NOTHING)
        for known in reversed(path[:-1]):
            assert known.before is not None
            if run.call != known.before.call:
                raise AssertionError(f"{run.process.name} did {run.call}, and {known.before.call} before")
            self._world.go(run, _own(known.answer))
        run.begun.clear()
        run.stops()
        return run

    def end(self) -> None:
        """Nobody stands anywhere any more."""
        while self._standing:
            _, run = self._standing.popitem()
            self._world.go(run, Killed())


@contextmanager
def no_memory() -> Iterator[None]:
    """Processes don't remember in common what they have read."""
    with mock.patch.object(tables, "_commits", _Forgetful()):
        yield


def key_of(answer: Any) -> Hashable:
    """Equal for answers that are."""
    if isinstance(answer, Exception):
        return type(answer).__name__, str(answer)
    if isinstance(answer, (list, tuple)):
        return tuple(map(key_of, answer))
    return answer  # type: ignore[no-any-return]


def _own(answer: Any) -> Any:
    """An answer that its receiver may change."""
    if isinstance(answer, list):
        return list(answer)
    if isinstance(answer, tuple):
        return tuple(map(_own, answer))
    return copy.copy(answer) if isinstance(answer, RobustWriteError) else answer
