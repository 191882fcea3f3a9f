"""Commit metadata and write statistics, against the records that fastavro reads from Hudi's files."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkrobust.core.write_status import OperationType
from sparkrobust.errors import CorruptTableError
from sparkrobust.formats import avro
from sparkrobust.formats.commit_metadata import CommitMetadata, ReplaceCommitMetadata
from tests.core.test_write_status import STATS, TEXT
from tests.fixture_tables import timeline_files

COMMITS = st.builds(
    CommitMetadata,
    partition_to_write_stats=st.dictionaries(TEXT, st.lists(STATS, max_size=2).map(tuple), max_size=3),
    extra_metadata=st.dictionaries(TEXT, TEXT, max_size=3),
    operation_type=st.none() | st.sampled_from(OperationType),
    compacted=st.booleans(),
)


def only_record(data: bytes) -> Any:
    return next(iter(fastavro.reader(io.BytesIO(data))))


def test_every_commit_of_every_fixture_is_written_again_as_an_equal_record(hudi_tables: Path) -> None:
    kinds = {".commit": CommitMetadata, ".inflight": CommitMetadata, ".replacecommit": ReplaceCommitMetadata}
    operations = set()
    for table in sorted(path for path in hudi_tables.iterdir() if path.is_dir()):
        for file in timeline_files(table):
            data = file.read_bytes()
            if file.suffix not in kinds or not data:
                continue
            found = kinds[file.suffix].from_bytes(data, path=str(file))
            assert only_record(found.to_bytes()) == only_record(data)
            operations.add(found.operation_type)
    assert {OperationType.BULK_INSERT, OperationType.UPSERT, OperationType.CLUSTER} <= operations


def test_a_commit_tells_its_files_and_its_schema(hudi_tables: Path) -> None:
    file = next(f for f in timeline_files(hudi_tables / "cow_cdc") if f.name.endswith("105829008.commit"))
    found = CommitMetadata.from_bytes(file.read_bytes(), path=str(file))
    (stat,) = found.write_stats
    assert (stat.partition_path, stat.num_writes, stat.num_inserts, stat.num_update_writes) == (
        "dt=p1",
        3,
        1,
        1,
    )
    assert stat.prev_commit == "20261118105807922"
    assert list((stat.cdc_stats or {}).values()) == [861]
    assert json.loads(found.schema or "")["name"] == "cow_cdc_record"


def test_replaced_file_groups_are_read_by_partition(hudi_tables: Path) -> None:
    folder = hudi_tables / "cow_insert_overwrite"
    found = [
        ReplaceCommitMetadata.from_bytes(file.read_bytes(), path=str(file))
        for file in timeline_files(folder)
        if file.suffix == ".replacecommit"
    ]
    assert [list(meta.partition_to_replace_file_ids) for meta in found] == [["dt=p1"], ["dt=p3"]]
    assert found[1].operation_type is OperationType.DELETE_PARTITION


@given(COMMITS)
def test_a_commit_that_is_written_is_read_back(commit: CommitMetadata) -> None:
    assert CommitMetadata.from_bytes(commit.to_bytes(), path="p") == commit


@given(COMMITS, st.dictionaries(TEXT, st.lists(TEXT, max_size=3).map(tuple), max_size=3))
def test_a_replace_commit_that_is_written_is_read_back(
    commit: CommitMetadata, replaced: dict[str, tuple[str, ...]]
) -> None:
    whole = ReplaceCommitMetadata(**vars(commit), partition_to_replace_file_ids=replaced)
    assert ReplaceCommitMetadata.from_bytes(whole.to_bytes(), path="p") == whole


def test_a_completed_file_without_content_is_a_commit_without_files() -> None:
    assert CommitMetadata.from_bytes(b"", path="p") == CommitMetadata()
    assert ReplaceCommitMetadata.from_bytes(b"", path="p") == ReplaceCommitMetadata()


def test_an_operation_is_read_in_any_case_and_an_unknown_one_is_corrupt() -> None:
    data = avro.encode("HoodieCommitMetadata", {"operationType": "bulk_insert"})
    assert CommitMetadata.from_bytes(data, path="p").operation_type is OperationType.BULK_INSERT
    with pytest.raises(CorruptTableError, match=r"p: expected an operation .* found 'DANCE'"):
        CommitMetadata.from_bytes(avro.encode("HoodieCommitMetadata", {"operationType": "DANCE"}), path="p")
