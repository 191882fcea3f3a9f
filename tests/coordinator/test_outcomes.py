"""What the error of a write says of it is what the table holds, wherever the error came, and whatever it was.

The places are not written down here: a write is made once, undisturbed, and each point of the probe that
it passes is one, as is the moment before each change that its driver makes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from sparkrobust import probe
from sparkrobust.coordinator.control import Control
from sparkrobust.coordinator.create import make_table
from sparkrobust.coordinator.ending import end
from sparkrobust.coordinator.leftovers import attempts_besides
from sparkrobust.coordinator.recovery import Fate, recover
from sparkrobust.coordinator.rollback import roll_back_failed_writes
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.core.names import NONCE, heartbeat_file
from sparkrobust.errors import (
    CommitOutcome,
    CommitUnknownError,
    ConflictError,
    CorruptTableError,
    FencedError,
    HeartbeatLostError,
    InternalError,
    InvalidKeyError,
    LockError,
    RobustWriteError,
    StorageFullError,
    UnavailableError,
    UnsupportedTableError,
)
from sparkrobust.options import parse
from sparkrobust.storage.contract import Storage
from sparkrobust.storage.memory import MemoryStorage
from sparkrobust.world import Ids
from tests.clocks import TestClock
from tests.coordinator.writers import LOCK, writer
from tests.coordinator.writes import begun, data_files, leftovers, stage, terms
from tests.moments import Moments, Watched

LONG = 3600.0
"""No heartbeat speaks for so many seconds."""
COMMITTED, CONFLICTED, RETRYABLE, UNKNOWN = CommitOutcome
ERRORS: dict[type[BaseException], CommitOutcome | None] = {
    UnavailableError: RETRYABLE,
    FencedError: RETRYABLE,
    HeartbeatLostError: RETRYABLE,
    LockError: RETRYABLE,
    StorageFullError: RETRYABLE,
    CorruptTableError: RETRYABLE,
    InternalError: RETRYABLE,
    ConflictError: CONFLICTED,
    InvalidKeyError: None,
    UnsupportedTableError: None,
    ValueError: RETRYABLE,
    KeyboardInterrupt: RETRYABLE,
}
"""What each says of a write that it ended, and that was undone."""


class Away:
    """A store that a driver does not reach from some moment on."""

    def __init__(self, inner: Storage) -> None:
        self._inner, self.away = inner, False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*args: Any, **more: Any) -> Any:
            if self.away:
                raise UnavailableError("the network is cut")
            return found(*args, **more)

        return call


@dataclass(kw_only=True)
class Told:
    """What a caller was told of a write."""

    transaction: Transaction
    outcome: CommitOutcome | None = COMMITTED
    error: BaseException | None = None


class World:
    """A table with a row, and a driver that is going to write."""

    def __init__(self, happening: Callable[[World], object], number: int = -1, *, shared: bool) -> None:
        clock = TestClock()
        self.storage = MemoryStorage(Ids().nonce(), clock=clock)
        options = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id"}
        made, _ = make_table(self.storage, parse(options), clock, Ids())
        self.table = writer(made) if shared else made
        self.moments = Moments(number, lambda: happening(self))
        self.away = Away(self.storage)

    def save(self) -> Told:
        """What a pipeline does."""
        watched = cast(Storage, Watched(cast(Storage, self.away), self.moments))
        table = replace(self.table, storage=watched)
        transaction = Transaction(table, terms())
        told = Told(transaction=transaction)
        try:
            with probe.listening(self.moments.listen):
                transaction.begin(slots=1)
                stage(table, transaction)
                transaction.commit(transaction.finalize(1))
        except CommitUnknownError as error:
            told.error = error
        except BaseException as error:
            told.error = error
            with probe.listening(self.moments.listen):
                try:
                    if end(transaction, error) and transaction.fenced and isinstance(error, ValueError):
                        told.error = transaction.fenced
                except CommitUnknownError as unknown:
                    told.error = unknown
        finally:
            transaction.leave()
        if told.error is not None:
            told.outcome = vars(told.error)["outcome"]
        return told

    def others(self, how: str) -> None:
        """What another driver does that takes this one for dead."""
        if how == "recover":
            recover(self.fresh(), even_alive=True)
        else:
            for instant in self.fresh().timeline.pending:
                self.storage.delete(heartbeat_file(instant.time))
        roll_back_failed_writes(self.fresh())

    def fresh(self) -> HudiTable:
        table = replace(self.table, storage=self.storage)
        table.reload()
        return table

    def is_as_told(self, told: Told, how: str) -> None:
        """And stays so when others go on."""
        where = f"{self.moments.seen} {told.error!r} {how}"
        before = self._is_durable(told)
        self.storage.delete(LOCK)
        self.table.clock.sleep(LONG)
        self.others(how)
        durable = self._is_durable(told)
        if told.outcome is not UNKNOWN:
            assert before is durable is (told.outcome is COMMITTED), where
        assert len(data_files(self.storage)) == int(durable), where
        assert leftovers(self.storage) == [], where
        if told.error is None:
            return
        said = vars(told.error)
        assert said["outcome"] is None or isinstance(said["outcome"], CommitOutcome), where
        assert said["instant"] and said["path"], where
        if not isinstance(told.error, RobustWriteError) and told.outcome is not COMMITTED:
            assert told.outcome is RETRYABLE, where

    def _is_durable(self, told: Told) -> bool:
        table, nonce = self.fresh(), told.transaction.folder.nonce
        return any(
            table.commit(one).extra_metadata.get(NONCE) == nonce for one in table.timeline.completed_writes
        )


def at_every_moment(happening: Callable[[World], object], how: str, *, shared: bool) -> list[Told]:
    """What callers were told of a write at each moment of which something happens."""
    calm = World(happening, shared=shared)
    assert calm.save().error is None
    found = []
    for number in range(len(calm.moments.seen)):
        world = World(happening, number, shared=shared)
        found.append(world.save())
        world.is_as_told(found[-1], how)
    assert len(found) > 20
    return found


each_way_on = pytest.mark.parametrize("how", ["roll back", "recover"])
each_lock = pytest.mark.parametrize("shared", [False, True], ids=["alone", "shared lock"])


@each_lock
@each_way_on
@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_an_error_that_comes_at_any_moment_of_a_write_says_what_the_table_holds(
    kind: type[BaseException], how: str, *, shared: bool
) -> None:
    def fail(world: World) -> None:
        raise kind("it failed")

    found = at_every_moment(fail, how, shared=shared)
    told = [(one.outcome, type(one.error)) for one in found]
    assert {outcome for outcome, error in told if error is kind} <= {ERRORS[kind], COMMITTED}
    assert found[0].outcome is ERRORS[kind], "it came before there was anything of the write"
    assert {outcome for outcome, _ in told} & {COMMITTED, UNKNOWN}, "it came when it was decided, too"


@each_lock
@each_way_on
def test_a_write_whose_store_is_gone_for_good_at_any_moment_is_never_said_to_be_undone_when_it_may_be_made(
    how: str, *, shared: bool
) -> None:
    def cut(world: World) -> None:
        world.away.away = True

    found = at_every_moment(cut, how, shared=shared)
    outcomes = [one.outcome for one in found]
    assert outcomes[0] is RETRYABLE and UNKNOWN in outcomes
    first = outcomes.index(UNKNOWN)
    assert set(outcomes[:first]) == {RETRYABLE} and RETRYABLE not in outcomes[first:]


@each_lock
@each_way_on
@pytest.mark.parametrize("then", ["goes on", "fails"])
def test_a_driver_whose_write_others_end_at_any_moment_says_how_they_ended_it(
    then: str, how: str, *, shared: bool
) -> None:
    def take_over(world: World) -> None:
        if world.table.coordination.lock.shared:
            world.storage.delete(LOCK)
        with contextlib.suppress(LockError):  # this driver has it, in the same process
            world.others(how)
        if then == "fails":
            raise ValueError("its tasks failed")

    found = at_every_moment(take_over, how, shared=shared)
    # What fails when it is decided is left to the next write.
    may_be = {UNKNOWN} if then == "fails" else set()
    assert {one.outcome for one in found} - may_be == {RETRYABLE, COMMITTED}
    assert any(isinstance(one.error, FencedError) for one in found)


@pytest.mark.parametrize("kind", [UnavailableError, OSError, RecursionError])
def test_a_write_that_can_not_be_given_up_for_whatever_reason_is_unknown(
    table: HudiTable, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    transaction = begun(table)
    stage(table, transaction)
    transaction.finalize(1)
    with monkeypatch.context() as patched, pytest.raises(CommitUnknownError, match="be given up") as raised:
        patched.setattr(Control, "give_up", lambda *_: fail(kind("no answer")))
        end(transaction, ValueError("its tasks failed"))
    assert (raised.value.outcome, raised.value.instant) == (UNKNOWN, transaction.time)
    fresh = HudiTable.open(table.storage, table.clock, table.ids)
    assert [one.fate for one in recover(fresh, even_alive=True)] == [Fate.COMMITTED], "and so it was"


def fail(error: Exception) -> None:
    raise error


# -- attempts ---------------------------------------------------------------------------------------------


def test_the_attempts_that_have_begun_a_file_are_known_by_their_begin_markers(table: HudiTable) -> None:
    transaction = begun(table)
    for token in ("0-0-1", "0-0-2", "1-0-3"):
        for partition in ("p1", "p2"):
            stage(table, transaction, partition, token=token)

    def besides(*known: str) -> int:
        return attempts_besides(table.storage, transaction.time, set(known))

    assert besides() == 3
    assert besides("0-0-1", "1-0-3", "of one that wrote nothing") == 1
    transaction.commit(transaction.finalize(1))
    assert besides("0-0-1") == 2
    transaction.clean_up()
    assert besides() == 0
