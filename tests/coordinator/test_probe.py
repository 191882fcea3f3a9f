"""Whoever listens to the probe is told where a write has come to, in the order of the protocol."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from sparkrobust import probe
from sparkrobust.coordinator.rollback import roll_back_failed_writes
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.core.file_ids import Slot
from sparkrobust.handles.plan import KEY, PATH, SLOT, Attempt, FileOptions, Rules, WritePlan
from sparkrobust.handles.work import run
from sparkrobust.probe import Point
from tests.coordinator.writes import begun, stage

SCHEMA = pa.schema([("id", pa.int64())])
ELSEWHERE = {Point.STEP_BEGUN, Point.STAGE_ENDED, Point.OVERTAKEN}
"""The steps of the pipeline are listened to in ``tests/spark/test_progress.py``."""

WRITE = [
    *(Point.GATE_OPENED, Point.REQUESTED, Point.INFLIGHT),
    *(Point.GATE_SEEN, Point.FILE_BEGUN, Point.FILES_STAGED, Point.SLOT_DONE),
    *(Point.GATE_CLOSED, Point.MARKERS_READ, Point.COMMIT_STAGED, Point.DECIDED),
    *(Point.PARTITIONS_MADE, Point.DATA_PUBLISHED, Point.COMMIT_PUBLISHED, Point.CLEANED_UP),
]
ROLLBACK = [
    *(Point.ROLLBACK_PLANNED, Point.ABORT_DECIDED, Point.REVOKED),
    *(Point.FILES_DELETED, Point.INSTANTS_DELETED, Point.ROLLED_BACK),
]


class Ear:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.points: list[Point] = []

    def __call__(self, point: Point, facts: dict[str, Any]) -> None:
        self.points.append(point)


def attempt(table: HudiTable, transaction: Transaction) -> None:
    plan = WritePlan(
        storage=table.storage,
        control=transaction.folder,
        schema=SCHEMA,
        rules=Rules(combine=False, match=False, delete=False),
        files=FileOptions(codec="none", max_file_bytes=1 << 20, row_group_bytes=1 << 20),
        slots=(Slot(index=0, partition="p1", prefix=table.ids.uuid()),),
        tasks=(0,),
    )
    columns = {"id": pa.array([1]), KEY: pa.array(["1"]), PATH: pa.array(["p1"]), SLOT: pa.array([0])}
    rows = pa.RecordBatch.from_pydict(columns)
    assert [result.slot for result in run(plan, Attempt.of(0, stage=0, ids=table.ids), iter([rows]))] == [0]


def test_every_point_of_a_write_and_of_a_rollback_is_reached_once_and_in_order(table: HudiTable) -> None:
    ear = Ear()
    with probe.listening(ear):
        transaction = begun(table)
        attempt(table, transaction)
        transaction.commit(transaction.finalize(1))
        transaction.clean_up()
    assert ear.points == WRITE
    table.reload()
    failed = begun(table)
    stage(table, failed)
    table.reload()
    ear = Ear()
    with probe.listening(ear):
        roll_back_failed_writes(table)
    assert ear.points == ROLLBACK
    assert {*WRITE, *ROLLBACK, *ELSEWHERE} == set(Point)


def test_nobody_is_told_anything_after_the_block(table: HudiTable) -> None:
    ear = Ear()
    with probe.listening(ear), pytest.raises(RuntimeError):
        raise RuntimeError
    begun(table)
    assert ear.points == []


def test_a_listener_that_raises_stops_the_write_where_it_stands(table: HudiTable) -> None:
    def stop(point: Point, facts: dict[str, Any]) -> None:
        if point is Point.REQUESTED:
            raise KeyboardInterrupt

    with probe.listening(stop), pytest.raises(KeyboardInterrupt):
        begun(table)
    table.reload()
    assert [str(instant.state.name) for instant in table.timeline.pending] == ["REQUESTED"]
