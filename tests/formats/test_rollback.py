"""Rollback plans and records, against those that Hudi wrote when it rolled a failed upsert back."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkrobust.errors import CorruptTableError
from sparkrobust.formats.rollback import InstantInfo, RollbackMetadata, RollbackPlan, RollbackRequest
from tests.fixture_tables import timeline_files

BASE = "file:/tmp/hudi_fixtures/cow_rolled_back"
FAILED = "20261118112548662"
FILES = {
    "dt=p1": f"3c754d51-a50c-45cd-9613-deb6863579b3-0_0-1121-1544_{FAILED}.parquet",
    "dt=p5": f"9b31d77f-c2fa-4d81-ab82-42294b634bcd-0_1-1121-1545_{FAILED}.parquet",
}


def hudis(tables: Path, suffix: str) -> bytes:
    (file,) = (f for f in timeline_files(tables / "cow_rolled_back") if f.name.endswith(suffix))
    return file.read_bytes()


def only_record(data: bytes) -> Any:
    return next(iter(fastavro.reader(io.BytesIO(data))))


def plan() -> RollbackPlan:
    requests = tuple(
        RollbackRequest.of_marked_file(
            partition_path=partition,
            file_id=name.partition("_")[0],
            absolute_path=f"{BASE}/{partition}/{name}",
            instant=FAILED,
        )
        for partition, name in FILES.items()
    )
    return RollbackPlan(
        instant_to_rollback=InstantInfo(commit_time=FAILED, action="commit"), rollback_requests=requests
    )


def test_a_plan_from_the_begin_markers_is_hudis_plan(hudi_tables: Path) -> None:
    theirs = hudis(hudi_tables, ".rollback.requested")
    assert only_record(plan().to_bytes()) == only_record(theirs)
    assert RollbackPlan.from_bytes(theirs, path="p") == plan()


def test_the_record_of_the_plan_carried_out_is_hudis_record(hudi_tables: Path) -> None:
    theirs = hudis(hudi_tables, ".rollback")
    done = RollbackMetadata.of_plan(plan(), rollback_instant="20261118112612057", time_taken_in_millis=751)
    assert only_record(done.to_bytes()) == only_record(theirs)
    assert RollbackMetadata.from_bytes(theirs, path="p") == done


def test_files_that_could_not_be_deleted_stand_apart() -> None:
    stuck = plan().rollback_requests[1].files_to_be_deleted[0]
    done = RollbackMetadata.of_plan(plan(), rollback_instant="1", time_taken_in_millis=0, failed={stuck})
    assert done.total_files_deleted == 1
    assert done.partition_metadata["dt=p5"].failed_delete_files == (stuck,)
    assert done.partition_metadata["dt=p5"].success_delete_files == ()


def test_several_files_of_one_partition_are_one_entry_of_the_record() -> None:
    twice = RollbackPlan(
        instant_to_rollback=plan().instant_to_rollback,
        rollback_requests=(plan().rollback_requests[0],) * 2,
    )
    done = RollbackMetadata.of_plan(twice, rollback_instant="1", time_taken_in_millis=0)
    assert list(done.partition_metadata) == ["dt=p1"]
    assert done.total_files_deleted == 2


def test_a_plan_of_nothing_is_written_and_read() -> None:
    empty = RollbackPlan(instant_to_rollback=InstantInfo(commit_time="1", action="commit"))
    assert RollbackPlan.from_bytes(empty.to_bytes(), path="p") == empty
    done = RollbackMetadata.of_plan(empty, rollback_instant="2", time_taken_in_millis=1)
    assert RollbackMetadata.from_bytes(done.to_bytes(), path="p") == done


def test_a_rollback_without_content_is_corrupt() -> None:
    for kind in (RollbackPlan, RollbackMetadata):
        with pytest.raises(CorruptTableError, match=r"^p: expected"):
            kind.from_bytes(b"", path="p")


@given(st.data())
def test_a_damaged_rollback_is_a_rollback_or_corrupt(data: st.DataObject) -> None:
    kind: Any
    for kind, good in (
        (RollbackPlan, plan().to_bytes()),
        (
            RollbackMetadata,
            RollbackMetadata.of_plan(plan(), rollback_instant="1", time_taken_in_millis=0).to_bytes(),
        ),
    ):
        damaged = bytearray(good)
        record_starts = good.rindex(good[-16:], 0, len(good) - 16)
        for _ in range(data.draw(st.integers(1, 3))):
            damaged[data.draw(st.integers(record_starts, len(good) - 1))] = data.draw(st.integers(0, 255))
        try:
            kind.from_bytes(bytes(damaged), path="p")
        except CorruptTableError as error:
            assert error.path == "p"
