"""Who goes next, and what goes wrong: one choice after the other, all of them from one source.

Every actor is a greenlet that runs ordinary code.  It gives way at each of its storage calls; the
scheduler then picks an actor, decides on a fault, lets the call happen, and hands out the answer.
So a whole run is a function of its choices, and the same seed gives the same run to the letter.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

from fault_injection.faults import Fault
from sparkrobust.errors import UnavailableError
from sparkrobust.world import Clock, Hands, Ids

T = TypeVar("T")
R = TypeVar("R")

EPOCH_MS = 1_704_067_200_000
_MS_OF_A_STEP = 7


_ALWAYS = frozenset((Fault.KILLED_BEFORE, Fault.KILLED_AFTER, Fault.DROPPED, Fault.ANSWER_LOST))
_CHANGING_ONLY = frozenset((Fault.LATE, Fault.TWICE))
_REPEATED_ONLY = frozenset((Fault.BUSY, Fault.BUSY_AFTER))
_POSSIBLE = {
    (changes, repeats): _ALWAYS
    | (_CHANGING_ONLY if changes else frozenset())
    | (_REPEATED_ONLY if repeats else frozenset())
    for changes in (False, True)
    for repeats in (False, True)
}
_NOTHING: frozenset[Fault] = frozenset()


class Killed(BaseException):
    """The process is gone.  Nothing of it runs any more, whatever its code would like to do."""


class Busy(Exception):
    """What an object store answers that wants the request to be repeated.

    Parameters
    ----------
    done
        What the request came to all the same, and nobody is told: only the store knows.
    """

    def __init__(self, done: Any = None) -> None:
        super().__init__("busy")
        self.done = done


class Stuck(Exception):
    """The actors did not come to an end in the steps that they had."""


class Choices:
    """Where choices come from."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def among(self, options: list[T]) -> T:
        return options[0] if len(options) == 1 else self.random.choice(options)

    def happens(self, chance: float) -> bool:
        return chance > 0 and self.random.random() < chance


@dataclass(eq=False)
class Actor:
    """One process of the simulated world."""

    name: str
    ready: Callable[[], bool] | None = None
    """Whether it may be chosen, if that depends."""
    dead: bool = False
    ended: bool = False
    result: Any = None
    error: BaseException | None = None
    asleep: int = 0
    """Steps for which it is frozen."""
    awake: bool = True
    """It was not frozen since its last step."""
    call: str = ""
    waits_for: Actor | None = None
    """Whose end it sleeps until."""
    maker: Actor | None = None
    """The process that this one is a thread of."""
    stopped: bool = False
    _effect: Callable[[], Any] | None = None
    _changes: bool = False
    _other: dict[Fault, Callable[[], Any]] = field(default_factory=dict)
    _repeats: bool = False
    _greenlet: Any = None

    @property
    def alive(self) -> bool:
        if self.dead or self.ended:
            return False
        return self.maker is None or not (self.stopped or not self.maker.alive)

    @property
    def failed(self) -> bool:
        return self.dead or self.error is not None

    @property
    def may_meet(self) -> frozenset[Fault]:
        """What can go wrong with the call that it is about to make."""
        if self._effect is None or self.call.startswith("pause"):
            return _NOTHING
        possible = _POSSIBLE[self._changes, self._repeats]
        return possible | self._other.keys() if self._other else possible


@dataclass(frozen=True, kw_only=True)
class Patience:
    """Who is about to make a call (by its parts) sleeps until another one has ended."""

    who: str
    call: tuple[str, ...]
    until: str


@dataclass
class Rates:
    """How often what goes wrong."""

    faults: dict[Fault, float] = field(default_factory=dict)
    freeze: float = 0.0
    longest_freeze: int = 0
    sleepy: str = ""
    """Who is about to make a call like this one is frozen every other time."""
    deadly: str = ""
    """Who is about to make a call like this one dies every other time."""
    fate: tuple[str, ...] = ()
    """Who (by name) dies before which call of his (by its parts), the first time."""
    patient: tuple[Patience, ...] = ()
    """Each of them once."""


class SimulatedClock(Clock):
    """Time that passes by steps."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now_ms(self) -> int:
        return EPOCH_MS + (0 if self._world.time_stands else self._world.ms)

    def elapsed(self) -> float:
        return self._world.ms / 1000

    def sleep(self, seconds: float) -> None:
        self._world.pause()
        self._world.ms += math.ceil(seconds * 1000)  # however short: who waits for a time meets it


class SimulatedIds(Ids):
    """Names from the world's choices."""

    def __init__(self, choices: Choices) -> None:
        self._random = choices.random

    def nonce(self) -> str:
        return f"{self._random.getrandbits(64):016x}"

    def uuid(self) -> str:
        digits = f"{self._random.getrandbits(128):032x}"
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    def number(self) -> int:
        return self._random.getrandbits(31)


class OneHand(Hands):
    """One thing after the other; what is done again and again is an actor that shares its maker's fate."""

    def __init__(self, world: World) -> None:
        self._world = world

    def every(self, seconds: float, work: Callable[[], object]) -> Callable[[], None]:
        world, maker = self._world, self._world.running
        assert maker is not None

        def beat() -> None:
            while True:
                due = world.ms + int(seconds * 1000)
                world.wait(lambda due=due: world.ms >= due)  # type: ignore[misc]
                work()

        part = world.spawn(f"{maker.name} beats", beat)
        part.maker = maker
        return lambda: setattr(part, "stopped", True)

    def map(self, work: Callable[[T], R], items: Iterable[T], *, most: int) -> list[R]:
        return [work(item) for item in items]


class World:
    """Actors, and the one who decides about them.

    Parameters
    ----------
    look
        Called after every step that may have changed the store; raises if something is not as it must be.
    """

    def __init__(self, choices: Choices, rates: Rates, look: Callable[[], None] = lambda: None) -> None:
        self.choices, self.rates, self.look = choices, rates, look
        self.ms = 0
        self.time_stands = False
        self.steps = 0
        self.actors: list[Actor] = []
        self._living: list[Actor] = []
        self._touched = False
        """The store may be another one since the last look."""
        self.late: list[tuple[str, str, Callable[[], Any]]] = []
        """What is still on its way: whose it is, what, and what it does."""
        self._granted: set[Patience] = set()
        self.planned: dict[int, Fault] = {}
        """Faults at the calls of certain steps."""
        self.watches = False
        self.possible: dict[int, frozenset[Fault]] = {}
        """What could go wrong at each step, if somebody wants to know."""
        self.whose = ""
        """Who made the call of the last step, though the network may have been slow about it."""
        self.log: list[tuple[int, str, str, str, str]] = []
        """Step, who, call, fault, and the error that it was answered."""
        self.injected: dict[Fault, int] = {}
        self.clock, self.ids, self.hands = SimulatedClock(self), SimulatedIds(choices), OneHand(self)
        self._main = getcurrent()
        self._running: Actor | None = None

    # -- in an actor -------------------------------------------------------------------------------------

    def call(
        self,
        name: str,
        path: str,
        effect: Callable[[], T],
        *,
        changes: bool,
        other: Mapping[Fault, Callable[[], Any]] = MappingProxyType({}),
        repeats: bool = False,
    ) -> T:
        """A storage call of the actor that runs: its turn ends here, and comes again with the answer.

        Parameters
        ----------
        other
            What happens in place of the effect, by the fault that it takes.
        repeats
            The caller is one that knows what to do if the store is :class:`Busy`.
        """
        actor = self._running
        if actor is None:
            return effect()
        if actor.dead:
            raise Killed
        actor.call, actor._effect, actor._changes = f"{name} {path}", effect, changes
        actor._other, actor._repeats = dict(other), repeats
        answer: T = self._main.switch()
        return answer

    def pause(self) -> None:
        """A turn that does nothing."""
        self.call("pause", "", lambda: None, changes=False)

    def wait(self, condition: Callable[[], bool]) -> None:
        """Not to be chosen before the condition holds."""
        actor = self._running
        assert actor is not None
        actor.ready = condition
        try:
            self.pause()
        finally:
            actor.ready = None

    @property
    def running(self) -> Actor | None:
        """Whose turn it is."""
        return self._running

    # -- outside of actors -------------------------------------------------------------------------------

    def spawn(self, name: str, function: Callable[[], Any]) -> Actor:
        """A new process; it does nothing before it is chosen."""
        actor = Actor(name=name, call="begins")

        def body() -> None:
            try:
                actor.result = function()
            except Killed:
                pass
            except Exception as error:
                actor.error = error
            actor.ended = True

        actor._greenlet = greenlet(body, parent=self._main)
        self.actors.append(actor)
        self._living.append(actor)
        return actor

    def run(self, *, steps: int, until: Callable[[], bool] = lambda: False) -> None:
        """Go on until all have ended, or wait for each other in vain."""
        left = steps
        while left > 0:
            if until():
                return
            able, sleepers = self._who_is_able()
            # While all sleep nothing changes until the first one wakes up.
            nobody = not able and not self.late
            if nobody and not sleepers:
                return
            passed = min(left, min(actor.asleep for actor in sleepers)) if nobody else 1
            for actor in sleepers:
                actor.asleep -= passed
            left -= passed
            if not nobody:
                self._turn(able)
        raise Stuck(
            f"not at an end after {steps} steps: {[a.name + ': ' + a.call for a in self.actors if a.alive]}"
        )

    def _who_is_able(self) -> tuple[list[Actor], list[Actor]]:
        """Who may be chosen, and who is frozen; whoever has ended is not asked again."""
        able, sleepers, gone = [], [], 0
        for actor in self._living:  # whoever is asked may begin another one
            if not actor.alive:
                gone += 1
            elif actor.waits_for is not None and actor.waits_for.alive:
                continue
            elif actor.asleep:
                sleepers.append(actor)
            elif not (actor.maker is not None and actor.maker.asleep) and (
                actor.ready is None or actor.ready()
            ):
                able.append(actor)
        if gone:
            self._living = [actor for actor in self._living if actor.alive]
        return able, sleepers

    def _turn(self, able: list[Actor]) -> None:
        self.steps += 1
        self.ms += _MS_OF_A_STEP
        self._touched = False
        if self.late and (not able or self.choices.happens(0.1)):
            sender, what, effect = self.late.pop(self.choices.among(list(range(len(self.late)))))
            self.whose = sender
            self._note("network", f"{sender}: {what}", "arrives late", tried(effect))
            self._touched = True
        else:
            actor = self.choices.among(self._first_of(able))
            sleepy = self.rates.sleepy and self.rates.sleepy in actor.call and actor.awake
            if self.choices.happens(0.5 if sleepy else self.rates.freeze):
                actor.awake = False
                actor.asleep = self.choices.random.randint(1, self.rates.longest_freeze)
                return
            actor.awake = True
            if self._waits(actor):
                return
            self._step(actor, self._fault(actor))
        if self._touched:
            self.look()

    def _first_of(self, able: list[Actor]) -> list[Actor]:
        """In peace whoever has a heartbeat to send: no driver is taken for dead for want of a turn."""
        if self.rates.faults or self.rates.freeze:
            return able
        return [actor for actor in able if actor.maker is not None] or able

    def _waits(self, actor: Actor) -> bool:
        """Whether somebody has to end before this one makes its call."""
        for wish in self.rates.patient:
            mine = wish.who == actor.name and all(part in actor.call for part in wish.call)
            if mine and wish not in self._granted:
                self._granted.add(wish)
                actor.waits_for = next(other for other in self.actors if other.name == wish.until)
                return True
        return False

    def _fault(self, actor: Actor) -> Fault:
        possible = actor.may_meet
        if not possible:
            return Fault.NONE
        if self.watches:
            self.possible[self.steps] = possible
        if self.steps in self.planned:
            fault = self.planned[self.steps]
            return fault if fault in possible else Fault.NONE
        if (actor.name,) == self.rates.fate[:1] and all(part in actor.call for part in self.rates.fate[1:]):
            return Fault.KILLED_BEFORE
        if self.rates.deadly and self.rates.deadly in actor.call and self.choices.happens(0.5):
            return Fault.KILLED_BEFORE
        for fault, chance in self.rates.faults.items():
            if fault in possible and self.choices.happens(chance):
                return fault
        return Fault.NONE

    def _step(self, actor: Actor, fault: Fault) -> None:
        effect, actor._effect = actor._effect, None
        self.whose = actor.name
        assert actor._greenlet is not None
        if effect is None:
            self._switch(actor, actor._greenlet.switch)
            return
        if fault is not Fault.NONE:
            self.injected[fault] = self.injected.get(fault, 0) + 1
        answer: Any = None
        if fault is Fault.KILLED_BEFORE:
            self._note(actor.name, actor.call, fault.value, None)
            self.kill(actor)
            return
        if fault in (Fault.DROPPED, Fault.LATE):
            answer = UnavailableError(f"no answer to {actor.call}")
            if fault is Fault.LATE:
                self.late.append((actor.name, actor.call, effect))
        elif fault is Fault.BUSY:
            answer = Busy()
        else:
            answer = tried(actor._other.get(fault, effect))
            self._touched = actor._changes
            if fault is Fault.TWICE:
                answer = tried(effect)
            if fault is Fault.ANSWER_LOST:
                answer = UnavailableError(f"no answer to {actor.call}")
            if fault is Fault.BUSY_AFTER:
                answer = Busy(answer)
        self._note(actor.name, actor.call, fault.value, answer)
        if fault in (Fault.KILLED_AFTER, Fault.TORN):
            self.kill(actor)
            return
        if isinstance(answer, Exception):
            self._switch(actor, actor._greenlet.throw, answer)
        else:
            self._switch(actor, actor._greenlet.switch, answer)

    def _switch(self, actor: Actor, switch: Callable[..., object], *answer: object) -> None:
        """Let an actor go on, up to its next call."""
        self._running = actor
        try:
            switch(*answer)
        finally:
            self._running = None

    def kill(self, actor: Actor) -> None:
        """End a process where it stands."""
        actor.dead = True
        if actor._greenlet:  # it has begun, and not ended
            self._switch(actor, actor._greenlet.throw, Killed())

    def end(self) -> None:
        """Nobody goes on."""
        for actor in self.actors:
            if not (actor.dead or actor.ended):
                self.kill(actor)

    def _note(self, who: str, call: str, fault: str, answer: object) -> None:
        told = type(answer).__name__ if isinstance(answer, Exception) else ""
        self.log.append((self.steps, who, call, fault, told))


def tried(effect: Callable[[], Any]) -> Any:
    """What comes of it, or the error that does."""
    try:
        return effect()
    except Exception as error:
        return error
