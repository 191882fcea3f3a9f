"""Tests that could not fail would prove nothing: four bugs of the write path, each seen by a real run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fault_injection.spark.chaos import Chaos, Session
from fault_injection.spark.faults import Fault, KillDriver, KillExecutor, Partition, at, before
from fault_injection.spark.inside import BUG
from fault_injection.spark.store import Store
from fault_injection.spark.verify import problems
from tests.chaos.conftest import ROWS, Table, turn
from tests.chaos.test_drivers import PUBLISH
from tests.chaos.test_store_faults import Subject
from tests.chaos.test_tasks import needs_namespaces

pytest_plugins = ["fault_injection.pytest_plugin"]


@contextmanager
def with_bug(chaos: Chaos, name: str) -> Iterator[Session]:
    """A driver whose sparkrobust has this bug."""
    session = chaos.session(environment={BUG: name})
    try:
        yield session
    finally:
        session.close()


@turn(newest=True)
def test_a_task_that_publishes_before_its_marker_is_found_out(chaos: Chaos, table: Table) -> None:
    with with_bug(chaos, "publish before marker") as session:
        fault = Fault("killed", at("files staged", "task"), KillExecutor())
        report = table.write("bulk_insert", ROWS, ROWS + 600, fault, session=session)
    found = "\n".join(problems(table.path, table.expected))
    assert "a file that no commit names" in found, (report, found)


@turn(newest=False)
@needs_namespaces
def test_a_task_that_makes_its_own_folders_is_found_out(chaos: Chaos, table: Table) -> None:
    with with_bug(chaos, "parents made by tasks") as session:
        # Cut off for some more seconds, in which it has the time to write.
        fault = Fault("zombie", at("source begins", "task"), Partition(alone=5))
        report = table.write("bulk_insert", ROWS, ROWS + 600, fault, how="source", session=session)
    found = "\n".join(problems(table.path, table.expected))
    assert "left behind" in found, (report, found)


@turn(newest=True)
def test_a_driver_that_publishes_its_commit_before_its_data_is_found_out(chaos: Chaos, table: Table) -> None:
    with with_bug(chaos, "commit before data") as session:
        fault = Fault("dies", before(PUBLISH, nth=2), KillDriver())
        report = table.write("upsert", 300, 900, fault, session=session)
    assert report.outcome.killed, report
    table.expected.write("upsert", 300, 900, 2)
    table.write("upsert", 0, 10)
    found = "\n".join(problems(table.path, table.expected))
    assert "a file that is not there" in found, (report, found)


@turn(newest=False)
def test_a_driver_that_forgets_what_lost_tasks_have_uploaded_is_found_out(chaos: Chaos, store: Store) -> None:
    on_s3 = Chaos(chaos.cluster, told=chaos.told, store=store)
    with on_s3, with_bug(on_s3, "uploads forgotten") as session:
        table = Subject(on_s3, store.bucket())
        fault = Fault("killed", at("files staged", "task"), KillExecutor())
        report = table.tried("bulk_insert", 0, ROWS, 1, fault, session=session)
    table.expected.write("bulk_insert", 0, ROWS, 1)
    found = table.problems()
    assert found and all("an upload that never ended" in one for one in found), (report, found)
