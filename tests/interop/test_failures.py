"""Failed writes: each writer rolls back the other's, and finishes what the other began to roll back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sparkrobust as sr
from tests.interop.driver import Driver, patched
from tests.interop.oracle import Oracle, OracleError
from tests.interop.tables import (
    OPERATION,
    avro,
    base_files,
    completed,
    model_of,
    nothing_lies_about,
    options,
    ordered,
    pending,
    query,
    row,
)

UPSERT = options(**{OPERATION: "upsert"})
FAILING = {
    "hoodie.precommit.validators": "org.apache.hudi.client.validator.SqlQuerySingleResultPreCommitValidator",
    "hoodie.precommit.validators.single.value.sql.queries": "select count(*) from <TABLE_NAME>#-1",
}
"""Hudi's write then fails after its data files are written, right before the commit."""

BASE = [row(1), row(2), row(3, "us")]
LOST = [row(1, ts=20, name="lost"), row(7, "asia", name="lost")]
NEXT = [row(2, ts=30, name="next"), row(8, "us")]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    return patched(monkeypatch)


POINTS = {
    "only requested": ("put_if_absent", r"timeline/\d+\.inflight$"),
    "files staged": ("put_if_absent", "/decision$"),
    "commit decided": ("publish_all", ""),
    "files visible": ("publish", ""),
}


@pytest.mark.parametrize("markers", ["DIRECT", "TIMELINE_SERVER_BASED"])
def test_we_roll_back_hudis_failed_write_just_as_hudi_does(
    markers: str, hudi: Oracle, ours: Any, table: Path, tmp_path: Path
) -> None:
    chosen = {**UPSERT, "hoodie.write.markers.type": markers}
    hudi.write(table, query(BASE), chosen)
    with pytest.raises(OracleError, match="pre-commit validation failed"):
        hudi.write(table, query(LOST), {**chosen, **FAILING})
    snapshot = shutil.copytree(table, tmp_path / "snapshot")

    def rollback_by(write: Callable[..., Any]) -> tuple[Any, Any, set[str]]:
        """The plan, what was done, and the files that are left of the time before."""
        before = base_files(table)
        write(table, query(NEXT), UPSERT)
        assert nothing_lies_about(table)
        (done,) = completed(table, "rollback")
        plan = avro(done.file.with_name(f"{done.requested}.rollback.requested"))
        record = avro(done.file)
        assert record.pop("startRollbackTime") == done.requested
        assert record.pop("timeTakenInMillis") >= 0
        plan["RollbackRequests"].sort(key=lambda request: request["partitionPath"])
        assert (table / ".hoodie" / "timeline" / f"{done.requested}.rollback.inflight").read_bytes() == b""
        assert ordered(hudi.read(table)) == ordered(ours.read(table)) == model_of(BASE, NEXT)
        return _without_scheme(plan), _without_scheme(record), before & base_files(table)

    by_hudi = rollback_by(hudi.write)
    shutil.rmtree(table)
    shutil.copytree(snapshot, table)
    assert rollback_by(ours.write) == by_hudi


def _without_scheme(record: Any) -> Any:
    if isinstance(record, dict):
        return {_without_scheme(key): _without_scheme(value) for key, value in record.items()}
    if isinstance(record, list):
        return [_without_scheme(value) for value in record]
    return record.removeprefix("file:") if isinstance(record, str) else record


MID_ROLLBACK = {
    "planned": ("put_if_absent", r"\.rollback\.inflight$"),
    "begun": ("delete", r"\.parquet$"),
    "files deleted": ("delete", r"timeline/\d+\.inflight$"),
    "instants deleted": ("put_if_absent", r"_\d+\.rollback$"),
}


@pytest.mark.parametrize("point", MID_ROLLBACK)
def test_hudi_finishes_a_rollback_that_we_began(
    point: str, hudi: Oracle, ours: Any, driver: Driver, table: Path
) -> None:
    ours.write(table, query(BASE), UPSERT)
    with driver.dies_before(*POINTS["files staged"]):
        ours.write(table, query(LOST), UPSERT)
    with driver.dies_before(*MID_ROLLBACK[point]):
        ours.write(table, query(NEXT), UPSERT)
    assert ordered(hudi.read(table)) == ordered(ours.read(table)) == ordered(BASE)
    (begun,) = {name.split(".")[0] for name in pending(table) if ".rollback." in name}
    hudi.write(table, query(NEXT), UPSERT)
    assert [done.requested for done in completed(table, "rollback")] == [begun]
    ours.write(table, query([row(9)]), UPSERT)
    assert nothing_lies_about(table)
    assert ordered(hudi.read(table)) == ordered(ours.read(table)) == model_of(BASE, NEXT, [row(9)])


@pytest.mark.parametrize("left", [["requested"], ["requested", "inflight"]], ids=["planned", "begun"])
def test_we_finish_a_rollback_that_hudi_began(
    left: list[str], hudi: Oracle, ours: Any, table: Path, tmp_path: Path
) -> None:
    hudi.write(table, query(BASE), UPSERT)
    with pytest.raises(OracleError, match="pre-commit validation failed"):
        hudi.write(table, query(LOST), {**UPSERT, **FAILING})
    snapshot = shutil.copytree(table, tmp_path / "snapshot")
    hudi.write(table, query(NEXT), UPSERT)
    (done,) = completed(table, "rollback")
    files = {
        f"{done.requested}.rollback.{state}": done.file.with_name(
            f"{done.requested}.rollback.{state}"
        ).read_bytes()
        for state in left
    }
    shutil.rmtree(table)
    shutil.copytree(snapshot, table)
    for name, content in files.items():
        (table / ".hoodie" / "timeline" / name).write_bytes(content)

    ours.write(table, query(NEXT), UPSERT)
    assert [rollback.requested for rollback in completed(table, "rollback")] == [done.requested]
    assert nothing_lies_about(table)
    assert ordered(hudi.read(table)) == ordered(ours.read(table)) == model_of(BASE, NEXT)


def test_hudi_and_hudi_rs_read_the_table_as_before_in_the_midst_of_our_write(
    hudi: Oracle, ours: Any, driver: Driver, table: Path
) -> None:
    ours.write(table, query(BASE), UPSERT)
    looks = []

    def look() -> None:
        looks.append(ordered(hudi.read(table)))
        looks.append(ordered(hudi.rust(table)))

    with driver.meets(look, *POINTS["files staged"]):
        ours.write(table, query(LOST), UPSERT)
    with driver.meets(look, *POINTS["files visible"]):
        ours.write(table, query(NEXT), UPSERT)
    assert looks == [ordered(BASE)] * 2 + [model_of(BASE, LOST)] * 2
    assert ordered(hudi.read(table)) == model_of(BASE, LOST, NEXT)


@pytest.mark.parametrize("point", ["files staged", "table read again"])
def test_our_write_gives_up_when_hudi_rolled_it_back_while_it_ran(
    point: str, hudi: Oracle, ours: Any, driver: Driver, table: Path
) -> None:
    """Hudi's single writer takes whatever is pending for dead, and without a shared lock it can't know."""
    ours.write(table, query(BASE), UPSERT)
    where = {**POINTS, "table read again": ("put_if_absent", r"^asia/\.hoodie_partition")}[point]
    with (
        pytest.raises(sr.errors.FencedError, match="rolled back by another writer"),
        driver.meets(lambda: hudi.write(table, query(NEXT), UPSERT), *where),
    ):
        ours.write(table, query(LOST), UPSERT)
    assert ordered(hudi.read(table)) == ordered(ours.read(table)) == model_of(BASE, NEXT)
    assert nothing_lies_about(table)
    ours.write(table, query(LOST), UPSERT)
    assert ordered(hudi.read(table)) == model_of(BASE, NEXT, LOST)
