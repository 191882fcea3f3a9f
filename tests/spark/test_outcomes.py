"""What an error that leaves ``save`` says of the write is what the table holds; and attempts given up."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import sparkrobust as sr
from sparkrobust import probe
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.names import LOCK_FILE
from sparkrobust.errors import (
    CommitOutcome,
    CommitUnknownError,
    FencedError,
    HeartbeatLostError,
    InvalidKeyError,
    InvalidOptionError,
    LockError,
    OperationCancelled,
    RobustWriteError,
    TableNotFoundError,
    UnavailableError,
)
from sparkrobust.probe import Point
from sparkrobust.spark.frames import Frames
from sparkrobust.spark.interrupts import JobGroup
from sparkrobust.storage.local import LocalStorage
from sparkrobust.storage.locks import FileSystemLock
from tests.interop.tables import completed, options, pending
from tests.moments import at
from tests.spark.tables import DRIVER_BYTES, BreaksAfter, Subject, away_for_a_while, frame, leftovers

RETRYABLE = CommitOutcome.RETRYABLE
ROWS = [(1, "new", 9, "eu")]
SHARED = {"hoodie.write.lock.provider": "FileSystemBasedLockProvider"}
HERE = {DRIVER_BYTES: "4194304"}


@pytest.fixture
def subject(spark: SparkSession, table: Path) -> Subject:
    """A table with two rows in two partitions."""
    subject = Subject(spark, table, options())
    subject.write("upsert", [(1, "a", 5, "eu"), (2, "b", 5, "us")])
    return subject


def is_undone(subject: Subject, error: BaseException, outcome: CommitOutcome | None = RETRYABLE) -> None:
    said = vars(error)
    assert said["outcome"] is outcome and said["path"] == f"file://{subject.path}"
    assert subject.names() == {1: "a", 2: "b"}
    assert not pending(subject.path) and not leftovers(subject.path)


def meanwhile(point: Point, does: Callable[[], object]) -> Any:
    return probe.listening(at(point, does))


def fail(error: BaseException) -> Callable[[], object]:
    def raised() -> None:
        raise error

    return raised


@pytest.mark.parametrize("operation", ["upsert", "bulk_insert"])
def test_a_pipelines_own_error_says_that_nothing_of_its_write_is_part_of_the_table(
    operation: str, subject: Subject
) -> None:
    df = frame(subject.spark, [(n, "x", 9, "eu") for n in range(100)])
    broken = df.mapInArrow(BreaksAfter(10), df.schema)
    with pytest.raises(Exception, match="a value of the pipeline's own") as raised:
        subject.save(operation, broken)
    if operation == "bulk_insert":
        is_undone(subject, raised.value)
        assert len(vars(raised.value)["instant"]) == 17
    else:
        assert not hasattr(raised.value, "outcome"), "its rows were counted before anything was begun"


@pytest.mark.parametrize("kind", [UnavailableError, FencedError, HeartbeatLostError, LockError, ValueError])
@pytest.mark.parametrize("point", [Point.INFLIGHT, Point.GATE_CLOSED, Point.COMMIT_STAGED])
def test_an_error_before_the_decision_says_that_the_write_can_be_made_again(
    kind: type[Exception], point: Point, subject: Subject
) -> None:
    with meanwhile(point, fail(kind("it failed"))), pytest.raises(kind, match="it failed") as raised:
        subject.write("upsert", ROWS, HERE)
    is_undone(subject, raised.value)
    assert len(vars(raised.value)["instant"]) == 17
    subject.write("upsert", ROWS, HERE)
    assert subject.names() == {1: "new", 2: "b"}


def test_an_error_when_it_is_decided_does_not_make_a_durable_write_fail(subject: Subject) -> None:
    with meanwhile(Point.DECIDED, fail(UnavailableError("it failed"))):
        result = subject.write("upsert", ROWS, HERE)
    assert result.outcome is CommitOutcome.COMMITTED and subject.names() == {1: "new", 2: "b"}


def test_a_durable_write_whose_result_can_not_be_read_is_not_said_to_have_failed(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HudiTable, "completed", lambda table, instant: fail(UnavailableError("gone"))())
    with (
        meanwhile(Point.DECIDED, fail(UnavailableError("it failed"))),
        pytest.raises(CommitUnknownError, match="has committed the write") as raised,
    ):
        subject.write("insert", [(3, "c", 9, "eu")], HERE)
    assert raised.value.outcome is CommitOutcome.UNKNOWN and raised.value.instant
    monkeypatch.undo()
    assert subject.names() == {1: "a", 2: "b", 3: "c"}


def test_a_write_that_others_took_for_dead_says_so_whatever_its_tasks_ran_into(subject: Subject) -> None:
    def taken_over() -> None:
        sr.Table(str(subject.path)).recover(even_alive=True)
        raise ValueError("what comes of it")

    with meanwhile(Point.INFLIGHT, taken_over), pytest.raises(FencedError) as raised:
        subject.write("upsert", ROWS, HERE)
    is_undone(subject, raised.value)


def test_who_waits_for_the_lock_in_vain_or_before_anything_is_begun_may_try_again(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    grip = FileSystemLock(LocalStorage(str(subject.path)), LOCK_FILE).acquire("somebody", seconds=0)
    monkeypatch.setattr(FileSystemLock, "wait", lambda lock, seconds: lock._clock.sleep(0))
    wait = {"hoodie.write.lock.wait_time_ms": "10"}
    with pytest.raises(LockError) as raised:
        subject.write("insert", [(3, "c", 9, "eu")], SHARED, wait, HERE)
    grip.release()
    is_undone(subject, raised.value)
    with monkeypatch.context() as patched:
        patched.setattr(LocalStorage, "list", lambda *_: fail(UnavailableError("the store is away"))())
        with pytest.raises(UnavailableError) as away:
            subject.write("insert", ROWS, HERE)
    is_undone(subject, away.value)
    assert away.value.instant is None


@pytest.mark.parametrize("operation", ["upsert", "bulk_insert"])
def test_rows_that_are_refused_are_not_said_to_be_worth_another_try_whoever_found_them(
    operation: str, subject: Subject
) -> None:
    with pytest.raises(InvalidKeyError) as raised:
        subject.write(operation, [(None, "n", 1, "eu")])
    is_undone(subject, raised.value, None)


def test_what_is_refused_before_there_is_a_table_leaves_none_and_has_no_outcome(
    spark: SparkSession, table: Path
) -> None:
    with pytest.raises(InvalidOptionError) as raised:
        Subject(spark, table, options()).write("upsert", ROWS, {"hoodie.datasource.write.operatoin": "x"})
    assert raised.value.outcome is None and not table.exists()
    with pytest.raises(TableNotFoundError) as missing:
        sr.read(spark).load(str(table))
    assert missing.value.outcome is None


# -- interrupts ------------------------------------------------------------------------------------------


def test_a_write_that_was_stopped_says_which_it_was_and_that_it_can_be_made_again(subject: Subject) -> None:
    stop = lambda: signal.raise_signal(signal.SIGINT)  # noqa: E731
    with meanwhile(Point.STAGE_ENDED, stop), pytest.raises(OperationCancelled) as raised:
        subject.write("upsert", ROWS, HERE)
    is_undone(subject, raised.value)
    assert raised.value.instant and raised.value.__cause__ is not None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("point", [Point.DECIDED, Point.COMMIT_PUBLISHED, Point.CLEANED_UP])
def test_an_interrupt_that_comes_too_late_says_that_the_write_is_durable(
    point: Point, number: signal.Signals, subject: Subject
) -> None:
    def handler(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(number, handler)
    try:
        with (
            meanwhile(point, lambda: signal.raise_signal(number)),
            pytest.raises(KeyboardInterrupt) as raised,
        ):
            subject.write("upsert", ROWS, HERE)
    finally:
        signal.signal(number, before)
    said = vars(raised.value)
    assert said["outcome"] is CommitOutcome.COMMITTED and said["path"] == f"file://{subject.path}"
    assert subject.names() == {1: "new", 2: "b"} and not leftovers(subject.path)


# -- on the way out ----------------------------------------------------------------------------------------


class Gone:
    """What is left of a context when Java has ended."""

    def __getattr__(self, name: str) -> Any:
        raise ConnectionError("nobody answers")


@pytest.mark.parametrize("ends", ["committed", "failed"])
def test_a_spark_that_is_away_when_a_write_ends_changes_nothing_of_what_is_told_of_it(
    ends: str, subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave = JobGroup.__exit__

    def without_spark(group: JobGroup, *details: object) -> None:
        here, group._context = group._context, Gone()  # type: ignore[assignment]
        leave(group, *details)
        group._context = here
        leave(group, *details)

    class Kept:
        def unpersist(self) -> None:
            raise ConnectionError("nobody answers")

    release = Frames.release

    def with_one_more(frames: Frames) -> None:
        frames._kept.append(Kept())  # type: ignore[arg-type]
        release(frames)

    monkeypatch.setattr(JobGroup, "__exit__", without_spark)
    monkeypatch.setattr(Frames, "release", with_one_more)
    if ends == "committed":
        assert subject.write("upsert", ROWS, HERE).instant
        assert subject.names() == {1: "new", 2: "b"}
        return
    with (
        meanwhile(Point.GATE_CLOSED, fail(UnavailableError("away"))),
        pytest.raises(RobustWriteError) as raised,
    ):
        subject.write("upsert", ROWS, HERE)
    is_undone(subject, raised.value)


# -- attempts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failures", [0, 1, 3])
def test_attempts_that_had_begun_a_file_and_were_given_up_are_counted(
    failures: int, subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    with away_for_a_while(monkeypatch, failures):
        result = subject.write("upsert", [(1, "a2", 6, "eu"), (2, "b2", 6, "us")], HERE)
    assert (result.attempts_fenced, result.slots) == (failures, 2)
    assert (f"{failures} attempts fenced" in str(result)) is bool(failures)
    assert subject.names() == {1: "a2", 2: "b2"} and not leftovers(subject.path)


@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert"])
@pytest.mark.parametrize("here", [HERE, {}], ids=["by the driver", "by tasks"])
def test_of_a_write_in_which_nothing_fails_no_attempt_is_fenced(
    operation: str, here: dict[str, str], subject: Subject
) -> None:
    result = subject.write(operation, [(n, "x", 9, ("eu", "us", "new")[n % 3]) for n in range(9)], here)
    assert result.attempts_fenced == 0 and completed(subject.path, "commit")


def test_a_count_that_the_store_does_not_answer_fails_nothing(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "sparkrobust.spark.pipeline.attempts_besides", lambda *_: fail(UnavailableError("away"))()
    )
    assert subject.write("upsert", ROWS, HERE).attempts_fenced == 0
    assert subject.names() == {1: "new", 2: "b"} and not leftovers(subject.path)
