"""Everything that can happen in a small world: every order of calls, and a stop of anybody at each of them.

A state is what lies in the store, what the auditor knows, and where each process stands.  A process
that is paused, or dead, is one that is not chosen any more: so each state is one in which any of them
may have died.  States are visited in the order of how many calls led to them, so that what is found is
found by a shortest way.

In every state the auditor looks at the table; from every state of the table a writer that comes
when nobody else is left must succeed, and leave nothing behind; and what drivers have told must be so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import Any

from fault_injection.exhaustive.lives import Lives, Moment, Process, no_memory
from fault_injection.exhaustive.tables import Tables
from fault_injection.simulation.actors import Told
from fault_injection.simulation.audit import Violation
from sparkrobust.errors import RobustWriteError

_PAIR = 1 << 32

State = tuple[int, ...]
"""The table's number, then for each process the number of its moment, or ``NOT_BEGUN``."""
NOT_BEGUN = -1


@dataclass(kw_only=True)
class SmallRun:
    """A small world that is about to begin."""

    tables: Tables
    lives: Lives
    processes: list[Process]
    """Who is there from the beginning."""
    begun_later: tuple[str, ...] = ()
    """Names of those whom they begin."""
    alone_first: tuple[str, ...] = ()
    """Those who come as far as they wait for others, or to their ends, before anybody else begins."""
    last: tuple[Process, ...] = ()
    """Writers that come when nobody is left."""
    gives_up: bool = False
    """The write stage may fail at any time, whatever its tasks do."""
    freezes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Who does nothing any more once somebody has begun."""
    waits_for: dict[str, str] = field(default_factory=dict)
    """Who begins only once somebody else has ended."""


@dataclass(kw_only=True)
class Found:
    """What came of it."""

    states: int = 0
    edges: int = 0
    tables: int = 0
    moments: int = 0
    seconds: float = 0.0
    complete: bool = False
    depth: int = 0
    violation: str | None = None
    trace: list[str] = field(default_factory=list)


class _Ends(Exception):
    """The time is over."""


class _Wrong(Exception):
    """A violation, and the state that the step to it began in."""

    def __init__(self, what: str, state: State | None, step: str) -> None:
        super().__init__(what)
        self.state, self.step = state, step


def explore(make: Callable[[], SmallRun], *, minutes: float | None = None) -> Found:
    """Go everywhere; after a violation once more, remembering the way."""
    started = time.monotonic()
    deadline = None if minutes is None else started + 60 * minutes
    with no_memory():
        explorer = Explorer(make())
        found = explorer.run(deadline)
        if found.violation is not None:
            again = Explorer(make(), ways={})
            found.trace = again.run(None).trace
    found.seconds = time.monotonic() - started
    return found


class Explorer:
    """One world, everywhere.

    Parameters
    ----------
    ways
        Where it is to be remembered from which state each was reached first, for a trace.
    """

    def __init__(self, world: SmallRun, ways: dict[State, State | None] | None = None) -> None:
        self.world, self._ways = world, ways
        self._tables, self._lives = world.tables, world.lives
        self._moments = world.lives.moments
        names = [process.name for process in world.processes] + list(world.begun_later)
        self._slots = {name: slot for slot, name in enumerate(names, 1)}
        self._names = dict(enumerate(names, 1))
        self._next: dict[int, tuple[int, Moment]] = {}
        self._ends: dict[int, tuple[int, Moment]] = {}
        self._peaceful: set[tuple[int, ...]] = set()
        self._closed: set[tuple[int, ...]] = set()
        self.found = Found()

    # -- the search --------------------------------------------------------------------------------------

    def run(self, deadline: float | None) -> Found:
        found = self.found
        try:
            self._everywhere(deadline)
            found.complete = True
        except _Ends:
            pass
        except _Wrong as wrong:
            found.violation = str(wrong)
            if self._ways is not None:
                found.trace = [*self._way_to(wrong.state), wrong.step]
        finally:
            self._lives.end()
        found.tables, found.moments = len(self._tables), len(self._moments)
        return found

    def _everywhere(self, deadline: float | None) -> None:
        found, ways = self.found, self._ways
        pack = Struct(f">{1 + len(self._slots)}i").pack
        level = [self._beginning()]
        seen = {pack(*level[0])}
        if ways is not None:
            ways[level[0]] = None
        while level:
            found.depth += 1
            below: list[State] = []
            for state in level:
                found.states += 1
                if not found.states & 1023 and deadline is not None and time.monotonic() > deadline:
                    raise _Ends
                self._look_at(state)
                for to in self._from(state):
                    found.edges += 1
                    packed = pack(*to)
                    if packed not in seen:
                        seen.add(packed)
                        below.append(to)
                        if ways is not None:
                            ways[to] = state
            level = below

    def _beginning(self) -> State:
        state = [self._tables.take()] + [NOT_BEGUN] * len(self._slots)
        for process in self.world.processes:
            self._joins(state, self._slots[process.name], self._lives.first(process))
        for name in self.world.alone_first:
            slot = self._slots[name]
            while not (moment := self._moments[state[slot]]).over and not moment.waits:
                state[0], moment = self._step(tuple(state), moment)
                self._joins(state, slot, moment)
        return tuple(state)

    def _joins(self, state: list[int], slot: int, moment: Moment) -> None:
        state[slot] = moment.number
        for process in moment.begun:
            state[self._slots[process.name]] = self._lives.first(process).number

    def _from(self, state: State) -> Iterator[State]:
        """The states that one more call leads to."""
        table = state[0]
        frozen = self._frozen(state) if self.world.freezes or self.world.waits_for else ()
        for slot in range(1, len(state)):
            number = state[slot]
            if number == NOT_BEGUN or slot in frozen:
                continue
            moment = self._moments[number]
            if moment.over:
                continue
            if moment.waits:
                for answer in self._awaited(state, moment):
                    after = self._after(state, moment, answer)
                    yield self._with(state, slot, table, after)
                continue
            reached = self._next.get(table * _PAIR + number)
            if reached is None:
                reached = self._step(state, moment)
            to, after = reached
            if after.begun:
                yield self._with(state, slot, to, after)
            else:
                yield (to, *state[1:slot], after.number, *state[slot + 1 :])

    def _with(self, state: State, slot: int, table: int, after: Moment) -> State:
        new = [table, *state[1:]]
        self._joins(new, slot, after)
        return tuple(new)

    def _frozen(self, state: State) -> set[int]:
        slots = set()
        for name, others in self.world.freezes.items():
            number = state[self._slots[name]]
            if number != NOT_BEGUN and self._moments[number].depth:
                slots |= {self._slots[other] for other in others}
        for name, other in self.world.waits_for.items():
            if not self._moments[state[self._slots[other]]].over:
                slots.add(self._slots[name])
        return slots

    def _awaited(self, state: State, moment: Moment) -> list[str]:
        """How the write stage may end now that a driver waits for."""
        driver = moment.process.name
        tasks = [self._moments[number] for number in self._tasks(state, driver)]
        answers = []
        if any(task.over and task.error is None for task in tasks):
            answers.append("done")
        if self.world.gives_up or all(task.over and task.error is not None for task in tasks):
            answers.append("failed")
        return answers

    def _tasks(self, state: State, driver: str) -> list[int]:
        return [state[slot] for name, slot in self._slots.items() if name.startswith(f"{driver}.")]

    def _step(self, state: State | None, moment: Moment, table: int | None = None) -> tuple[int, Moment]:
        """One call, and what is no turn after it."""
        now = state[0] if state is not None else table
        assert now is not None
        start = now * _PAIR + moment.number
        known = self._next.get(start)
        if known is not None:
            return known
        after = moment
        while True:
            assert after.effect is not None
            try:
                now, answer = self._tables.done(now, after.effect, changes=after.changes)
            except Violation as violation:
                raise _Wrong(str(violation), state, _told(moment, None)) from violation
            after = self._after(state, after, answer)
            if not after.asks:
                break
        self._next[start] = now, after
        return now, after

    def _after(self, state: State | None, moment: Moment, answer: Any) -> Moment:
        after = self._lives.after(moment, answer)
        if after.error is not None and not isinstance(after.error, RobustWriteError):
            raise _Wrong(f"{after.process.name} ended with {after.error!r}", state, _told(moment, answer))
        return after

    # -- the ends ----------------------------------------------------------------------------------------

    def _look_at(self, state: State) -> None:
        """Nobody goes on from here; a writer comes, and all is well."""
        table = state[0]
        told = tuple(
            number
            for number in state[1:]
            if number != NOT_BEGUN and isinstance(self._moments[number].result, Told)
        )
        key = (table, *told)
        if key in self._peaceful:
            return
        self._peaceful.add(key)
        results = [self._moments[number].result for number in told]
        for process in self.world.last:
            table, end = self._to_the_end(state, table, process)
            result = end.result
            if not isinstance(result, Told) or result.outcome != "committed":
                said = result.error if isinstance(result, Told) else repr(end.error)
                raise _Wrong(f"a write in peace did not succeed: {said}", state, "(then a writer in peace)")
            told = (*told, end.number)
            results.append(result)
        if (table, *told) in self._closed:
            return
        self._closed.add((table, *told))
        self._tables.be(table)
        try:
            self._tables.auditor.close(results)
        except Violation as violation:
            raise _Wrong(str(violation), state, "(then a writer in peace)") from violation

    def _to_the_end(self, state: State, table: int, process: Process) -> tuple[int, Moment]:
        """Where a process comes to alone."""
        moment, passed = self._lives.first(process), []
        while not moment.over:
            key = table * _PAIR + moment.number
            if key in self._ends:
                table, moment = self._ends[key]
                break
            passed.append(key)
            try:
                table, moment = self._step(None, moment, table)
            except _Wrong as wrong:
                raise _Wrong(str(wrong), state, f"(then a writer in peace) {wrong.step}") from wrong
        self._ends.update(dict.fromkeys(passed, (table, moment)))
        return table, moment

    # -- traces ------------------------------------------------------------------------------------------

    def _way_to(self, state: State | None) -> list[str]:
        assert self._ways is not None
        steps: list[str] = []
        while state is not None:
            before = self._ways[state]
            if before is not None:
                slot = next(i for i in range(1, len(state)) if state[i] != before[i])
                steps.append(self._way(before, self._moments[before[slot]], self._moments[state[slot]]))
            state = before
        return steps[::-1]

    def _way(self, state: State, before: Moment, after: Moment) -> str:
        """The step that led from one moment of a process to another."""
        if before.waits or before.effect is None:
            return _told(before, None)
        _, answer = self._tables.done(state[0], before.effect, changes=before.changes)
        return _told(before, answer)


def _told(moment: Moment, answer: Any) -> str:
    said = f"{moment.process.name}: {moment.call}"
    return f"{said} -> {type(answer).__name__}" if isinstance(answer, Exception) else said
