"""Our driver dies, at every point of its write; Hudi reads on, rolls back what is not durable, and writes on.

Hudi's writer knows of no decision.  What has a completed instant is durable for it as it is for us, and
whatever is pending it rolls back, decided or not: then it is our next write that finds the decision, sees
that its instant is gone, and takes away what is left.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sparkrobust.probe import Point
from tests.interop.driver import Driver, patched
from tests.interop.oracle import Oracle, OracleError
from tests.interop.tables import (
    OPERATION,
    Row,
    assert_sane_meta,
    avro,
    base_files,
    begin_marks,
    completed,
    model_of,
    nothing_lies_about,
    options,
    ordered,
    pending,
    properties,
    query,
    row,
)

UPSERT = options(**{OPERATION: "upsert"})
BASE = [row(1), row(2), row(3, "us")]
NEXT = [row(2, ts=30, name="next"), row(8, "us")]
LAST = [row(9)]


@dataclass(frozen=True, kw_only=True)
class Write:
    """The write whose driver dies: it rewrites a file group, or none, and makes a new partition."""

    rows: list[Row]
    options: dict[str, str]
    mode: str = "append"


WRITES = {
    "upsert": Write(rows=[row(1, ts=20, name="lost"), row(7, "asia", name="lost")], options=UPSERT),
    "bulk_insert": Write(rows=[row(11), row(17, "asia")], options={**UPSERT, OPERATION: "bulk_insert"}),
    "overwrite": Write(
        rows=[row(21), row(27, "asia")],
        options=options(ordering="price", **{OPERATION: "upsert"}),
        mode="overwrite",
    ),
}

Death = Callable[[Driver], AbstractContextManager[None]]


def at(point: Point) -> Death:
    return lambda driver: driver.dies_at(point)


def before(call: str, path: str) -> Death:
    return lambda driver: driver.dies_before(call, path)


BEGINNING = {
    "gate opened": at(Point.GATE_OPENED),
    "requested": at(Point.REQUESTED),
    "inflight": at(Point.INFLIGHT),
}
IN_AN_ATTEMPT = {
    "gate seen": at(Point.GATE_SEEN),
    "file begun": at(Point.FILE_BEGUN),
    "files staged": at(Point.FILES_STAGED),
    "slot done": at(Point.SLOT_DONE),
}
CLOSING = {
    "stage ended": at(Point.STAGE_ENDED),
    "gate closed": at(Point.GATE_CLOSED),
    "markers read": at(Point.MARKERS_READ),
    "commit staged": at(Point.COMMIT_STAGED),
    "decided": at(Point.DECIDED),
    "partition without its file": before("put_if_absent", r"\.hoodie_partition_metadata$"),
    "partitions made": at(Point.PARTITIONS_MADE),
    "between two files": lambda driver: driver.dies_between_two_files(),
    "data published": at(Point.DATA_PUBLISHED),
}
DURABLE = {
    "commit published": at(Point.COMMIT_PUBLISHED),
    "half cleaned up": before("delete_tree", r"\.hoodie/\.robust/"),
    "cleaned up": at(Point.CLEANED_UP),
}
EVERYWHERE = {**BEGINNING, **CLOSING, **DURABLE}
THE_SAME_FOR_AN_OVERWRITE = {"gate opened", "stage ended", "gate closed", "markers read"}
CASES = [
    *(("upsert", name) for name in {**EVERYWHERE, **IN_AN_ATTEMPT}),
    *(("bulk_insert", name) for name in EVERYWHERE),
    *(("overwrite", name) for name in EVERYWHERE if name not in THE_SAME_FOR_AN_OVERWRITE),
]
PROPERTIES_CHANGED = {"partition without its file", "partitions made", "between two files", "data published"}
"""There the properties of an overwrite are the new ones already, and its rows are not to be seen."""


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    return patched(monkeypatch)


@pytest.fixture(scope="module")
def base(ours: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of ours, to be copied."""
    path = tmp_path_factory.mktemp("base") / "t"
    ours.write(path, query(BASE), UPSERT)
    return path


@pytest.fixture
def table(base: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(base, tmp_path / "t"))


@pytest.mark.parametrize(("kind", "point"), CASES, ids=map(" ".join, CASES))
def test_what_a_dead_driver_left_is_rolled_back_by_hudi_or_durable(
    kind: str, point: str, hudi: Oracle, ours: Any, driver: Driver, table: Path
) -> None:
    write, durable = WRITES[kind], point in DURABLE
    old, said = base_files(table), properties(table)
    with {**EVERYWHERE, **IN_AN_ATTEMPT}[point](driver):
        ours.write(table, query(write.rows), write.options, write.mode)
    made = base_files(table) - old
    assert len(made) == {"between two files": 1, "data published": 2}.get(point, 2 if durable else 0)
    lost = {name.split(".")[0] for name in pending(table)}
    assert len(lost) == (0 if durable or point == "gate opened" else 1)
    marked = [mark for time in lost for mark in begin_marks(table, time)]

    standing = [BASE, write.rows] if durable else [BASE]
    if durable and kind == "overwrite":
        standing = [write.rows]
    assert ordered(hudi.read(table)) == ordered(hudi.rust(table)) == model_of(*standing)

    by_new_properties = kind == "overwrite" and (durable or point in PROPERTIES_CHANGED)
    if by_new_properties:
        with pytest.raises(OracleError, match="Config conflict"):
            hudi.write(table, query(NEXT), UPSERT)
    hudi.write(table, query(NEXT), write.options if by_new_properties else UPSERT)
    rollbacks = [avro(rollback.file) for rollback in completed(table, "rollback")]
    assert [found["commitsRollback"] for found in rollbacks] == [[time] for time in lost]
    assert [found["totalFilesDeleted"] for found in rollbacks] == [len(marked) for _ in lost]
    assert (made <= base_files(table)) if durable else made.isdisjoint(base_files(table))
    assert ordered(hudi.read(table)) == ordered(hudi.rust(table)) == model_of(*standing, NEXT)

    ours.write(table, query(LAST), write.options if durable else UPSERT)
    assert nothing_lies_about(table)
    assert (properties(table) == said) is not (durable and kind == "overwrite")
    seen = hudi.read(table)
    assert ordered(seen) == ordered(ours.read(table)) == model_of(*standing, NEXT, LAST)
    assert_sane_meta(table, seen)
