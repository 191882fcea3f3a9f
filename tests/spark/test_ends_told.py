"""How a write has ended is told as it is: of earlier runs of a job, of tables just made, under signals."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sparkrobust import probe
from sparkrobust.coordinator import recovery
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.errors import (
    CommitOutcome,
    CommitUnknownError,
    LockError,
    OperationCancelled,
    RobustWriteError,
    TableNotFoundError,
    UnavailableError,
)
from sparkrobust.probe import Point
from sparkrobust.spark import pipeline, writer
from sparkrobust.spark.progress import Watch
from sparkrobust.storage.local import LocalStorage
from tests.interop.tables import options, pending
from tests.moments import at
from tests.spark.tables import Subject, leftovers
from tests.spark.test_failures import WRITE_NAME, dies_after

ROWS = [(1, "a", 5, "eu")]
NAMED = {WRITE_NAME: "daily"}
SHARED = {"hoodie.write.lock.provider": "FileSystemBasedLockProvider"}


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def away(*given: object, **named: object) -> Any:
    raise UnavailableError("the store is away")


@pytest.fixture
def subject(spark: SparkSession, table: Path) -> Subject:
    """A table with a row."""
    subject = Subject(spark, table, options())
    subject.write("upsert", ROWS)
    return subject


@pytest.fixture(params=["finalize", "_decide"])
def rerun(
    request: pytest.FixtureRequest, subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """A job whose driver has died, with all slots done or with its commit decided, and runs again."""

    def write(*more: dict[str, str]) -> Any:
        return subject.write("upsert", [(2, "b", 5, "us")], NAMED, *more)

    with monkeypatch.context() as patched:
        dies_after(request.param, patched)
        with pytest.raises(SystemExit):
            write()
    return write


# -- earlier runs ----------------------------------------------------------------------------------------


def test_an_earlier_run_that_is_committed_and_not_tidied_up_is_the_result_and_the_next_write_tidies_up(
    rerun: Callable[..., Any], subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(LocalStorage, "delete_tree", away)
        patched.setattr(LocalStorage, "delete_all", away)
        result = rerun()
    assert result.earlier and result.outcome is CommitOutcome.COMMITTED
    assert subject.names() == {1: "a", 2: "b"} and not pending(subject.path)
    subject.write("upsert", ROWS)
    assert not leftovers(subject.path)


def test_an_earlier_run_that_is_committed_and_can_not_be_read_is_not_said_to_have_failed(
    rerun: Callable[..., Any], subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(recovery, "find_write", away)
        with pytest.raises(CommitUnknownError, match="has committed the write") as raised:
            rerun()
    assert raised.value.outcome is CommitOutcome.UNKNOWN
    assert subject.names() == {1: "a", 2: "b"} and rerun().earlier


def test_an_earlier_run_that_may_still_be_finished_is_not_said_to_have_come_to_nothing(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        dies_after("finalize", patched)
        with pytest.raises(SystemExit):
            subject.write("upsert", [(2, "b", 5, "us")], NAMED, SHARED)
    with pytest.raises(LockError, match="goes by the lock") as raised:
        subject.write("upsert", [(2, "b", 5, "us")], NAMED)
    assert raised.value.outcome is CommitOutcome.UNKNOWN
    assert subject.write("upsert", [(2, "b", 5, "us")], NAMED, SHARED).earlier
    assert subject.names() == {1: "a", 2: "b"}


# -- signals ---------------------------------------------------------------------------------------------


@pytest.fixture
def terminable() -> Iterator[None]:
    """The application has an idea of its own about SIGTERM, or the test would end by it."""

    def raised(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, raised)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_an_earlier_run_is_committed_waits_and_then_says_that_the_write_is_durable(
    number: signal.Signals, rerun: Callable[..., Any], subject: Subject, terminable: None
) -> None:
    with (
        probe.listening(at(Point.COMMIT_PUBLISHED, lambda: signal.raise_signal(number))),
        pytest.raises(KeyboardInterrupt) as raised,
    ):
        rerun()
    assert vars(raised.value)["outcome"] is CommitOutcome.COMMITTED
    assert subject.names() == {1: "a", 2: "b"} and not leftovers(subject.path)


def test_an_interrupt_when_all_is_over_says_that_the_write_is_durable(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Watch, "close", lambda watch: interrupt())
    with pytest.raises(KeyboardInterrupt) as raised:
        subject.write("upsert", [(2, "b", 5, "us")])
    assert vars(raised.value)["outcome"] is CommitOutcome.COMMITTED
    assert subject.names() == {1: "a", 2: "b"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_write_that_failed_is_rolled_back_reaches_the_application_and_says_so(
    number: signal.Signals, subject: Subject, terminable: None
) -> None:
    def fail() -> None:
        raise UnavailableError("it failed")

    with (
        probe.listening(at(Point.GATE_CLOSED, fail)),
        probe.listening(at(Point.ABORT_DECIDED, lambda: signal.raise_signal(number))),
        pytest.raises(KeyboardInterrupt) as raised,
    ):
        subject.write("upsert", [(2, "b", 5, "us")])
    assert vars(raised.value)["outcome"] is CommitOutcome.RETRYABLE
    assert isinstance(raised.value.__cause__, UnavailableError)
    assert subject.names() == {1: "a"} and not leftovers(subject.path)


def test_an_interrupt_while_failed_writes_are_rolled_back_stops_a_write_before_it_reads_a_row(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = writer.roll_back_failed_writes
    monkeypatch.setattr(writer, "roll_back_failed_writes", lambda table: (interrupt(), real(table))[1])
    monkeypatch.setattr(pipeline, "prepare", lambda *given: pytest.fail("its rows were looked at"))
    with pytest.raises(OperationCancelled):
        subject.write("upsert", [(2, "b", 5, "us")])
    assert subject.names() == {1: "a"} and not leftovers(subject.path)


# -- tables that are not there ---------------------------------------------------------------------------


@pytest.mark.parametrize("ends", ["the store is away", "an interrupt"])
def test_a_first_write_that_fails_when_its_table_was_just_made_can_be_made_again_as_it_is(
    ends: str, spark: SparkSession, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = Subject(spark, table, options())
    with monkeypatch.context() as patched, pytest.raises(RobustWriteError) as raised:
        todo: list[Callable[[], object]] = [away if ends == "the store is away" else interrupt]
        reload = HudiTable.reload

        def then(self: HudiTable) -> None:
            if todo:
                todo.pop()()
            reload(self)

        patched.setattr(HudiTable, "reload", then)
        subject.write("insert", ROWS, mode="errorifexists")
    assert raised.value.outcome is CommitOutcome.RETRYABLE
    assert subject.write("insert", ROWS, mode="errorifexists").inserted == 1
    assert subject.names() == {1: "a"}


def test_a_delete_where_there_is_no_table_is_refused_and_makes_none(spark: SparkSession, table: Path) -> None:
    with pytest.raises(TableNotFoundError, match="to delete rows from") as raised:
        Subject(spark, table, options()).write("delete", ROWS)
    assert raised.value.outcome is None and not table.exists()
