"""Writes to a real S3 server through a proxy that is busy, slow, or cuts connections; uploads of zombies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from fault_injection.spark.chaos import Chaos, Session
from fault_injection.spark.faults import (
    Answer,
    At,
    CutAnswer,
    Deed,
    Fault,
    Hold,
    KillDriver,
    Partition,
    Slow,
    at,
    request,
)
from fault_injection.spark.jobs import Expected
from fault_injection.spark.plain_reader import snapshot
from fault_injection.spark.random_plans import MOST_TIMES_BUSY, OF_EVERY_FILE, REQUESTS
from fault_injection.spark.report import Report
from fault_injection.spark.store import Bucket, Store
from fault_injection.spark.verify import problems, wrong_rows
from tests.chaos.conftest import JOB, by_turns
from tests.chaos.test_tasks import needs_namespaces

pytest_plugins = ["fault_injection.pytest_plugin"]

SLOTS = 6
"""Of the upsert that most tests do, which rewrites so many files."""

STEPS = {name: replace(asked, nth=2) if name in OF_EVERY_FILE else asked for name, asked in REQUESTS.items()}
"""What a write asks of the store, and must know the answer to."""


def at_every_step(deed: Deed, times: int = 1) -> list[Fault]:
    """The same thing goes wrong at each."""
    return [Fault(name, replace(step, times=times), deed) for name, step in STEPS.items()]


@pytest.fixture(scope="module")
def on_s3(chaos: Chaos, store: Store) -> Iterator[Chaos]:
    """Drivers that reach an S3 server."""
    with Chaos(chaos.cluster, told=chaos.told, store=store) as on_s3:
        yield on_s3


@dataclass
class Subject:
    """A table in a bucket of its own, with what it must hold."""

    chaos: Chaos
    bucket: Bucket
    expected: Expected = field(default_factory=Expected)

    @property
    def folder(self) -> Path:
        """Where the server keeps it."""
        return self.bucket.folder / "t"

    def write(self, operation: str, first: int, end: int, version: int, *faults: Fault) -> Report:
        """A write that must become part of the table, however often its faults happen."""
        report = self.tried(operation, first, end, version, *faults)
        assert report.outcome.value, report
        for fault in faults:
            if isinstance(fault.when, At):
                happened = [one for one in report.injected if one.fault == fault.name]
                assert len(happened) == fault.when.times, report
        self.expected.write(operation, first, end, version)
        return report

    def tried(
        self,
        operation: str,
        first: int,
        end: int,
        version: int,
        *faults: Fault,
        session: Session | None = None,
    ) -> Report:
        """A write that may fail."""
        where = self.bucket.url("t")
        return self.chaos.run(JOB, where, operation, first, end, version, faults=faults, session=session)

    def problems(self) -> list[str]:
        uploads = (f"an upload that never ended: {name}" for name in self.bucket.uploads())
        return [*problems(self.folder, self.expected), *uploads]


@pytest.fixture
def table(on_s3: Chaos) -> Subject:
    """One with rows."""
    assert on_s3.store is not None
    subject = Subject(on_s3, on_s3.store.bucket())
    subject.write("bulk_insert", 0, 200, 1)
    assert not subject.problems()
    return subject


# -- a store that is busy --------------------------------------------------------------------------------


@pytest.mark.parametrize("method", by_turns(["PUT", "POST", "GET", "DELETE"]))
def test_a_store_that_is_busy_several_times_in_a_row_only_delays_a_write(table: Subject, method: str) -> None:
    busy = request(method, "bucket-*/t*", times=MOST_TIMES_BUSY)
    table.write("upsert", 100, 300, 2, Fault("busy", busy, Answer(503)))
    assert not table.problems()


def test_a_store_that_is_busy_at_every_step_of_a_write_only_delays_it(table: Subject) -> None:
    table.write("upsert", 100, 300, 2, *at_every_step(Answer(503), times=MOST_TIMES_BUSY))
    assert not table.problems()


def test_a_store_that_is_too_busy_for_markers_fails_the_write_and_the_next_one_takes_away_what_it_left(
    table: Subject,
) -> None:
    markers = request("PUT", "*/cm/*", times=10_000)
    session = table.chaos.session()
    try:
        report = table.tried("upsert", 100, 300, 2, Fault("too busy", markers, Answer(503)), session=session)
    finally:
        # Tasks that still try when the write has failed, and the store is not busy any more, end here.
        session.close()
    assert report.outcome.error == "UnavailableError", report
    assert "503 SlowDown" in report.outcome.message, report
    assert not [*wrong_rows(snapshot(table.folder), table.expected)]
    table.write("upsert", 150, 350, 3)
    assert not table.problems()


# -- answers that never come -----------------------------------------------------------------------------


@pytest.mark.parametrize("step", by_turns(STEPS))
def test_a_write_finds_out_what_became_of_a_request_whose_answer_was_cut_off(
    table: Subject, step: str
) -> None:
    table.write("upsert", 100, 300, 2, Fault(step, STEPS[step], CutAnswer()))
    assert not table.problems()
    table.write("delete", 0, 50, 3)
    assert not table.problems()


def test_answers_that_are_cut_off_at_every_step_of_a_write_do_it_no_harm(table: Subject) -> None:
    table.write("upsert", 100, 300, 2, *at_every_step(CutAnswer()))
    assert not table.problems()


def test_an_upload_whose_beginning_was_not_answered_is_left_for_the_bucket_to_expire(table: Subject) -> None:
    begin = request("POST", "*.parquet", "uploads*")
    table.write("upsert", 100, 300, 2, Fault("cut", begin, CutAnswer()))
    (left,) = table.problems()
    assert "an upload that never ended" in left
    table.write("delete", 0, 50, 3)
    assert table.problems() == [left]


# -- slow answers ----------------------------------------------------------------------------------------


def test_a_store_that_is_slow_at_every_step_of_a_write_only_delays_it(table: Subject) -> None:
    table.write("upsert", 100, 300, 2, *at_every_step(Slow(2.0)))
    assert not table.problems()


# -- zombies ---------------------------------------------------------------------------------------------

# Each waits on a host that is cut off, and goes on when it is whole again.


@needs_namespaces
def test_a_zombie_that_has_uploaded_and_is_healed_at_the_commit_throws_its_upload_away(
    table: Subject,
) -> None:
    committed = at("commit published", who="driver")
    report = table.write(
        "upsert",
        100,
        300,
        2,
        Fault("zombie", at("files staged", who="task"), Partition(), until=committed),
        # The commit is not over before the zombie has seen that its slot is done.
        Fault("patience", committed, Hold(), until=at("slot done", who="task", nth=SLOTS + 1)),
    )
    assert report.outcome.value["slots"] == SLOTS
    assert report.reaction.executors_lost
    assert not table.problems()


@needs_namespaces
@pytest.mark.parametrize("where", by_turns(["file begun", "files staged"]))
def test_a_zombie_that_is_healed_after_the_commit_leaves_no_upload_and_nothing_that_the_next_write_keeps(
    table: Subject, where: str
) -> None:
    report = table.write("upsert", 100, 300, 2, Fault("zombie", at(where, who="task"), Partition()))
    assert report.reaction.executors_lost
    # A store without folders takes the marker of one who comes too late.
    assert not [problem for problem in table.problems() if "left behind: .hoodie/.robust/" not in problem]
    table.write("upsert", 150, 350, 3)
    assert not table.problems()


# -- drivers that are gone --------------------------------------------------------------------------------


def test_a_decision_that_arrives_after_its_driver_has_died_is_carried_out_by_the_next(table: Subject) -> None:
    report = table.tried("upsert", 100, 300, 2, Fault("late", STEPS["the decision"], KillDriver()))
    assert report.outcome.killed
    table.expected.write("upsert", 100, 300, 2)
    table.write("upsert", 150, 350, 3)
    assert not table.problems()


def test_the_commit_file_of_a_driver_that_dies_before_it_decides_leaves_no_upload(table: Subject) -> None:
    report = table.tried(
        "upsert", 100, 300, 2, Fault("dies", at("commit staged", who="driver"), KillDriver())
    )
    assert report.outcome.killed
    assert [one for one in table.bucket.uploads() if ".commit" in one.object]
    table.write("upsert", 150, 350, 3)
    assert not table.problems()
