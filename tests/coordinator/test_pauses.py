"""A driver stands still somewhere in its work, others go on without it, and then it goes on.

Where it can stand still is not written down here: each kind of work is done once, undisturbed, and every
point of the probe that it passes is such a place, as is the moment before each change that it makes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar, cast

import pytest

from sparkrobust import probe
from sparkrobust.coordinator.create import make_table
from sparkrobust.coordinator.recovery import Fate, recover
from sparkrobust.coordinator.rollback import roll_back_failed_writes
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.core.instant import Action, InstantTime
from sparkrobust.errors import CommitUnknownError, RobustWriteError
from sparkrobust.options import FailedWritesPolicy, parse
from sparkrobust.probe import Point
from sparkrobust.storage.contract import Storage
from sparkrobust.storage.memory import MemoryStorage
from sparkrobust.world import Hands, Ids
from tests.clocks import TestClock
from tests.coordinator.audits import Write, ends, is_as_told, slices
from tests.coordinator.writers import LOCK, writer
from tests.coordinator.writes import dead, leftovers, stage, stopped, terms
from tests.moments import Moments, Watched

T, R = TypeVar("T"), TypeVar("R")
EAGER, LAZY = FailedWritesPolicy.EAGER, FailedWritesPolicy.LAZY
LOCK_EXPIRES, NAP, SLEEP = 60.0, 100.0, 1000.0
"""The heartbeat expires in between."""
TRIES = 3
WRITES = ("update", "overwrite", "insert into a new table", "insert that fails")
ENDS_OTHERS = ("rollback", "recovery")
ACTIONS = (*WRITES, *ENDS_OTHERS)
BY_THE_LOCK_ALONE = (".rollback", ".rollback.requested")
"""Nothing but the lock keeps two drivers from putting one each: then a write is rolled back twice, or at two
times, and readers take either.  So it is not asked what comes of a pause right before one is put."""
POINTS = {point.value for point in Point}
OF_TASKS_AND_SPARK = {Point.GATE_SEEN, Point.FILE_BEGUN, Point.FILES_STAGED, Point.SLOT_DONE}
OF_TASKS_AND_SPARK |= {Point.STEP_BEGUN, Point.STAGE_ENDED, Point.OVERTAKEN}


@dataclass(frozen=True, kw_only=True)
class Happening:
    """What happens while a driver stands still."""

    who: str
    """How others take over: they roll back what failed, ``lazy`` or ``eager``, or recover it first."""
    writes: str
    sleeps: float = 0
    """For so many seconds; else its lock is taken away, and it lives."""
    more: bool = False
    """Of a sleeper: its heart beats before it goes on.  Else: somebody has the lock when it does."""

    def __str__(self) -> str:
        more = (" and its heart beats" if self.sleeps else " to somebody") if self.more else ""
        return f"{f'{self.sleeps:.0f} s' if self.sleeps else 'lock lost'}{more}, {self.who} {self.writes}"

    @property
    def policy(self) -> FailedWritesPolicy:
        return EAGER if self.who == "eager" else LAZY


PAUSES = [
    Happening(who=who, writes=writes, sleeps=SLEEP, more=(who == "eager") is (writes == "insert"))
    for who, writes in itertools.product(("lazy", "eager", "recovering"), ("update", "insert"))
]
LOST = [
    Happening(who="lazy", writes=writes, more=more)
    for writes, more in itertools.product(("update", "insert"), (False, True))
]
NAPS = [Happening(who="lazy", writes="update", sleeps=NAP)]


class Names(Ids):
    """The same in every run, as the names of the tests have to be."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def nonce(self) -> str:
        return f"{next(self._numbers):016x}"

    def uuid(self) -> str:
        return f"{next(self._numbers):08x}-0000-0000-0000-000000000000"


class Heart(Hands):
    """Beats when the test says so."""

    def __init__(self) -> None:
        self._works: list[Callable[[], object]] = []

    def map(self, work: Callable[[T], R], items: Iterable[T], *, most: int) -> list[R]:
        return [work(item) for item in items]

    def every(self, seconds: float, work: Callable[[], object]) -> Callable[[], None]:
        self._works.append(work)
        return lambda: self._works.remove(work)

    def beat(self) -> None:
        for work in self._works:
            work()


class World:
    """A table, the driver that is going to stand still, and the others."""

    def __init__(self, action: str, policy: FailedWritesPolicy) -> None:
        self._clock, self._policy = TestClock(), policy
        self._storage = MemoryStorage(Ids().nonce(), clock=self._clock)
        options = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id"}
        options["hoodie.datasource.write.partitionpath.field"] = "p"
        made, _ = make_table(self._storage, parse(options), self._clock, Names())
        self._shared = writer(made, expire_seconds=LOCK_EXPIRES)
        self._heart, self._heart_of_another = Heart(), Heart()
        self._writes: list[Write] = []
        self._dead: list[Write] = []
        self._alive: Write | None = None
        self._fates: dict[InstantTime, Fate] = {}
        """What the driver that ends others' writes says of them."""
        if action != "insert into a new table":
            self._write(self._table(), "insert")
        if action in ENDS_OTHERS:
            self._others_die()
            if policy is LAZY:
                self._alive = self._begun(self._table(hands=self._heart_of_another), "insert")
                stage(self._table(), self._alive.transaction)

    def _table(
        self, policy: FailedWritesPolicy = LAZY, hands: Hands | None = None, moments: Moments | None = None
    ) -> HudiTable:
        watched = cast(Storage, self._storage if moments is None else Watched(self._storage, moments))
        chosen = replace(self._shared.coordination, failed_writes=policy)
        table = replace(self._shared, storage=watched, coordination=chosen, hands=hands or Heart())
        table.reload()
        return table

    def _planned(self, table: HudiTable, how: str) -> Write:
        table.reload()
        saw = slices(table)
        action = Action.REPLACE_COMMIT if how == "overwrite" else Action.COMMIT
        group = min(saw) if how == "update" and saw else None
        write = Write(transaction=Transaction(table, terms(action)), saw=saw, group=group)
        self._writes.append(write)
        return write

    def _begun(self, table: HudiTable, how: str) -> Write:
        write = self._planned(table, how)
        write.transaction.begin(slots=1)
        return write

    def _others_die(self) -> None:
        """One before it wrote, one when all was written, and one when its file could be seen already."""
        table = self._table()
        idle, full = (self._begun(table, how) for how in ("insert", "update"))
        stage(table, full.transaction, group=full.group)
        for write in (idle, full):
            dead(write.transaction)
        seen = Write(saw=slices(table), transaction=stopped(table, "published"))
        self._writes.append(seen)
        self._dead = [idle, full, seen]
        self._clock.sleep(1)

    # -- what they do ------------------------------------------------------------------------------------

    def act(self, action: str, moments: Moments) -> None:
        """What the driver does that may stand still."""
        table = self._table(self._policy, self._heart, moments)
        with probe.listening(moments.listen):
            if action in WRITES:
                self._write(table, action.split()[0], fails="fails" in action)
                return
            try:
                if action == "recovery":
                    self._fates = {one.instant: one.fate for one in recover(table)}
                else:
                    undone = roll_back_failed_writes(table)
                    self._fates = dict.fromkeys((one.time for one in undone), Fate.ROLLED_BACK)
            except RobustWriteError as error:
                assert error.kind in ("lock", "lock-lost")

    def _write(self, table: HudiTable, how: str, *, fails: bool = False) -> Write:
        """What a pipeline does."""
        write = self._planned(table, how)
        transaction = write.transaction
        try:
            transaction.begin(slots=1)
            stage(table, transaction, group=write.group)
            if fails:
                raise RobustWriteError("its tasks failed")
            transaction.commit(transaction.finalize(1))
            write.told = "committed"
        except CommitUnknownError:
            write.told = "unknown"
        except RobustWriteError:
            try:
                write.told = "failed" if transaction.abort("it failed") else "committed"
            except CommitUnknownError:
                write.told = "unknown"
        else:
            transaction.clean_up()
        finally:
            transaction.leave()
        return write

    def happens(self, what: Happening) -> None:
        if what.sleeps:
            self._clock.sleep(what.sleeps)
            self._heart_of_another.beat()
        else:
            self._clock.sleep(1)
            self._storage.delete(LOCK)
        others = self._table(what.policy)
        if what.who == "recovering":
            recover(others)
        for _ in range(TRIES):
            roll_back_failed_writes(others)
            if self._write(others, what.writes).told == "committed":
                break
        else:
            pytest.fail("a driver that stands still keeps others from writing")
        if what.sleeps and what.more:
            self._heart.beat()
        elif what.more:
            self._storage.put(LOCK, b"somebody's")

    # -- what must hold ----------------------------------------------------------------------------------

    def audit(self, *, somebody_has_the_lock: bool = False) -> None:
        """Once the driver has ended, and again when another one has come after all of them."""
        lock = self._storage.read(LOCK) if self._storage.stat(LOCK) else None
        assert lock == (b"somebody's" if somebody_has_the_lock else None)
        self._storage.delete(LOCK)
        is_as_told(self._table(), self._writes)
        if self._alive is not None:
            transaction = self._alive.transaction
            transaction.commit(transaction.finalize(1))
            transaction.clean_up()
            self._alive.told = "committed"
        last = self._table(EAGER)
        roll_back_failed_writes(last)
        assert recover(last) == [] and not last.timeline.pending
        assert leftovers(self._storage) == [] and self._storage.stat(LOCK) is None
        is_as_told(last, self._writes)
        committed, undone = ends(last)
        for write, may_end in zip(self._dead, ([undone], [committed, undone], [committed]), strict=False):
            assert sum(one.count(write.transaction.time) for one in may_end) == 1
        for time, fate in self._fates.items():
            assert fate is Fate.ALIVE or (fate is Fate.COMMITTED) is (time in committed)


@cache
def moments_of(action: str, policy: FailedWritesPolicy) -> list[str]:
    """Where a driver comes to that nobody disturbs."""
    world, moments = World(action, policy), Moments()
    world.act(action, moments)
    world.audit()
    return moments.seen


def is_tried(action: str, moment: str, what: Happening) -> bool:
    """Whether it happens while a driver that does this stands still there."""
    if what.writes != "update" and action not in ("update", "overwrite"):
        return False  # to the others it is all the same which file groups change
    if action in ENDS_OTHERS and what in NAPS:
        return False  # it has no heart
    if moment in POINTS:
        return True
    of_most_use = PAUSES[0], LOST[0], PAUSES[-2] if action in ENDS_OTHERS else NAPS[0]
    return what in of_most_use and not moment.endswith(BY_THE_LOCK_ALONE)


def cases() -> Iterator[Any]:
    for action, what in itertools.product(ACTIONS, [*PAUSES, *NAPS, *LOST]):
        for number, moment in enumerate(moments_of(action, what.policy)):
            if is_tried(action, moment, what):
                yield pytest.param(action, number, what, id=f"{action}, {number} {moment}, {what}")


def test_a_driver_can_stand_still_at_all_points_that_drivers_pass() -> None:
    passed = {moment for action in ACTIONS for moment in moments_of(action, LAZY)}
    assert {point.value for point in set(Point) - OF_TASKS_AND_SPARK} <= passed
    assert {f"before put_if_absent {name}" for name in ("gate", "finalize", "decision")} <= passed


@pytest.mark.parametrize("action, number, what", list(cases()))
def test_who_stood_still_is_told_what_became_of_its_work_and_nothing_is_lost_and_nothing_is_left(
    action: str, number: int, what: Happening
) -> None:
    world = World(action, what.policy)
    moments = Moments(number, lambda: world.happens(what))
    world.act(action, moments)
    assert len(moments.seen) > number
    world.audit(somebody_has_the_lock=not what.sleeps and what.more)
