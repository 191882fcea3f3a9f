"""Partition metadata files, against Hudi's."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkrobust.errors import CorruptTableError
from sparkrobust.formats.partition_metadata import FILE_NAME, PartitionMetadata


def test_hudis_files_are_read_and_rendered_byte_for_byte(hudi_tables: Path) -> None:
    seen = set()
    for table in sorted(path for path in hudi_tables.iterdir() if path.is_dir()):
        for file in sorted(table.rglob(FILE_NAME)):
            if ".hoodie" in file.relative_to(table).parts:
                continue
            data = file.read_bytes()
            found = PartitionMetadata.parse(data, path=str(file))
            partition = "/".join(file.parent.relative_to(table).parts)
            assert found == PartitionMetadata.of_partition(partition, found.commit_time)
            date = data.splitlines()[1].decode()[1:]
            moment = datetime.strptime(date, "%a %b %d %H:%M:%S UTC %Y").replace(tzinfo=timezone.utc)
            assert found.render(moment) == data
            seen.add(found.partition_depth)
    assert seen == {0, 1, 2, 3}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "commitTime=1",
        "partitionDepth=1",
        "commitTime=1\npartitionDepth=x",
        "commitTime=\npartitionDepth=1",
    ],
)
def test_an_incomplete_file_is_named_in_the_error(text: str) -> None:
    with pytest.raises(CorruptTableError, match=r"^p/file: expected"):
        PartitionMetadata.parse(text.encode(), path="p/file")


@given(st.binary(max_size=100))
def test_any_bytes_are_partition_metadata_or_corrupt(data: bytes) -> None:
    try:
        PartitionMetadata.parse(data, path="p")
    except CorruptTableError as error:
        assert error.path == "p"
