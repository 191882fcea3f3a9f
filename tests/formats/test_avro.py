"""Avro containers of one record, against fastavro's own reader and Hudi's files."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tracemalloc
import zipfile
import zlib
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkrobust.errors import CorruptTableError, InternalError
from sparkrobust.formats import avro
from tests.fixture_tables import timeline_files

RECORDS = {
    "commit": "HoodieCommitMetadata",
    "inflight": "HoodieCommitMetadata",
    "replacecommit": "HoodieReplaceCommitMetadata",
    "replacecommit.inflight": "HoodieCommitMetadata",
    "replacecommit.requested": "HoodieRequestedReplaceMetadata",
    "clustering.requested": "HoodieRequestedReplaceMetadata",
    "rollback": "HoodieRollbackMetadata",
    "rollback.requested": "HoodieRollbackPlan",
    "clean": "HoodieCleanMetadata",
    "clean.requested": "HoodieCleanerPlan",
    "savepoint": "HoodieSavepointMetadata",
    "restore": "HoodieRestoreMetadata",
    "restore.requested": "HoodieRestorePlan",
}
PLAN = {"instantToRollback": {"commitTime": "1", "action": "commit"}, "RollbackRequests": []}
GOOD = avro.encode("HoodieRollbackPlan", PLAN)


def container(schema: Any, record: bytes, **header: bytes) -> bytes:
    """A container made by hand, so that what no library writes can be put into it."""
    entries = {
        "avro.schema": json.dumps(schema).encode(),
        **{k.replace("_", "."): v for k, v in header.items()},
    }
    out = bytearray(b"Obj\x01") + varint(len(entries))
    for key, value in entries.items():
        out += varint(len(key)) + key.encode() + varint(len(value)) + value
    sync = b"s" * 16
    return bytes(out + b"\0" + sync + varint(1) + varint(len(record)) + record + sync)


def varint(value: int) -> bytes:
    raw, out = (value << 1) ^ (value >> 63), bytearray()
    while raw > 127:
        out.append(raw & 127 | 128)
        raw >>= 7
    return bytes([*out, raw])


def record_of(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "namespace": avro.NAMESPACE, "fields": list(fields)}


def test_every_timeline_file_of_every_fixture_decodes_and_is_encoded_to_an_equal_record(
    hudi_tables: Path,
) -> None:
    seen: dict[str, int] = {}
    for table in sorted(path for path in hudi_tables.iterdir() if path.is_dir()):
        for file in timeline_files(table):
            data = file.read_bytes()
            suffix = file.name.partition(".")[2]
            if suffix not in RECORDS:
                assert not data, f"{file} has content, and nothing reads it"
                continue
            value = avro.decode(data, RECORDS[suffix], path=str(file))
            if not data:
                assert value is None
                continue
            theirs = fastavro.reader(io.BytesIO(data))
            assert [value] == list(theirs)
            assert value is not None
            ours = fastavro.reader(io.BytesIO(avro.encode(RECORDS[suffix], value)))
            assert list(ours) == [value]
            assert set(ours.metadata) == set(theirs.metadata) == {"avro.schema"}
            seen[suffix] = seen.get(suffix, 0) + 1
    assert seen.keys() == RECORDS.keys()


def test_the_schema_that_we_put_into_a_commit_is_hudis(hudi_tables: Path) -> None:
    file = next(f for f in timeline_files(hudi_tables / "cow_partitioned") if f.suffix == ".commit")
    theirs = fastavro.reader(io.BytesIO(file.read_bytes()))
    ours = fastavro.reader(io.BytesIO(avro.encode("HoodieCommitMetadata", {})))
    assert json.loads(ours.metadata["avro.schema"]) == json.loads(theirs.metadata["avro.schema"])


def test_equal_values_give_equal_bytes() -> None:
    assert avro.encode("HoodieRollbackPlan", dict(PLAN)) == GOOD


def test_nothing_decodes_to_nothing() -> None:
    assert avro.decode(b"", "HoodieCommitMetadata", path="p") is None


def test_fields_of_other_versions_are_defaulted_and_skipped() -> None:
    schema = record_of(
        "HoodieRollbackPlan",
        {"name": "future", "type": {"type": "array", "items": "string"}},
        {"name": "version", "type": ["int", "null"], "default": 1},
    )
    body = io.BytesIO()
    fastavro.schemaless_writer(body, schema, {"future": ["x", "y"], "version": 7})
    found = avro.decode(container(schema, body.getvalue()), "HoodieRollbackPlan", path="p")
    assert found == {"instantToRollback": None, "RollbackRequests": None, "version": 7}


def test_a_field_that_the_record_lacks_is_our_bug_and_not_written() -> None:
    with pytest.raises(InternalError, match="HoodieRollbackPlan"):
        avro.encode("HoodieRollbackPlan", {**PLAN, "rollbackRequests": []})
    with pytest.raises(InternalError, match="no Avro schema"):
        avro.encode("HoodieNothing", {})


def test_a_record_of_another_name_is_refused_by_both_names() -> None:
    with pytest.raises(
        CorruptTableError, match=r"p: holds .*HoodieRollbackPlan.*, expected HoodieCommitMetadata"
    ):
        avro.decode(GOOD, "HoodieCommitMetadata", path="p")


def test_a_commit_of_an_old_table_version_is_said_to_be_json() -> None:
    with pytest.raises(CorruptTableError, match="JSON, as table versions before 8"):
        avro.decode(b'{"partitionToWriteStats":{}}', "HoodieCommitMetadata", path="p")


@pytest.mark.parametrize("cut", [*range(1, 40), len(GOOD) // 2, len(GOOD) - 17, len(GOOD) - 1])
def test_a_truncated_instant_is_named_in_the_error(cut: int) -> None:
    with pytest.raises(CorruptTableError, match=r"^timeline/1\.rollback\.requested: ") as caught:
        avro.decode(GOOD[:cut], "HoodieRollbackPlan", path="timeline/1.rollback.requested")
    assert caught.value.path == "timeline/1.rollback.requested"


def test_bytes_after_the_record_are_refused() -> None:
    schema = record_of("HoodieRollbackPlan", {"name": "version", "type": ["int", "null"]})
    assert avro.decode(container(schema, b"\0\x02"), "HoodieRollbackPlan", path="p")
    with pytest.raises(CorruptTableError, match="1 bytes too many"):
        avro.decode(container(schema, b"\0\x02\0"), "HoodieRollbackPlan", path="p")


def test_a_second_record_is_refused() -> None:
    second = GOOD[-16:]
    body = GOOD[GOOD.index(second) + 16 :]
    with pytest.raises(CorruptTableError, match="exactly one record"):
        avro.decode(GOOD + body, "HoodieRollbackPlan", path="p")


def test_a_compressed_record_is_refused_before_it_is_inflated() -> None:
    bomb = zlib.compress(b"\0" * 10_000_000)
    schema = record_of("HoodieRollbackPlan")
    with pytest.raises(CorruptTableError, match="codec null"):
        avro.decode(container(schema, bomb, avro_codec=b"deflate"), "HoodieRollbackPlan", path="p")


@pytest.mark.parametrize("length", [1 << 40, (1 << 62), -1, -(1 << 62)])
def test_a_huge_declared_length_takes_no_memory(length: int) -> None:
    schema = record_of(
        "HoodieRollbackPlan", {"name": "b", "type": "bytes"}, {"name": "version", "type": ["int", "null"]}
    )
    data = container(schema, varint(length) + b"x")
    tracemalloc.start()
    try:
        with pytest.raises(CorruptTableError):
            avro.decode(data, "HoodieRollbackPlan", path="p")
        with pytest.raises(CorruptTableError):
            avro.decode(b"Obj\x01" + varint(1) + varint(length), "HoodieRollbackPlan", path="p")
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


EMPTY = {"type": "record", "name": "E", "fields": []}


@pytest.mark.parametrize(
    "items",
    [
        "null",
        EMPTY,
        {"type": "fixed", "name": "F", "size": 0},
        {**EMPTY, "fields": [{"name": "n", "type": "null"}]},
    ],
)
def test_an_array_of_items_without_bytes_can_not_claim_to_be_endless(items: Any) -> None:
    schema = record_of("HoodieRollbackPlan", {"name": "a", "type": {"type": "array", "items": items}})
    with pytest.raises(CorruptTableError, match="take no bytes"):
        avro.decode(container(schema, varint(1 << 60)), "HoodieRollbackPlan", path="p")


def test_an_empty_record_by_its_name_can_not_be_endless_either() -> None:
    schema = record_of(
        "HoodieRollbackPlan",
        {"name": "e", "type": EMPTY},
        {"name": "a", "type": {"type": "array", "items": "E"}},
    )
    with pytest.raises(CorruptTableError, match="take no bytes"):
        avro.decode(container(schema, varint(1 << 60)), "HoodieRollbackPlan", path="p")


def decodes_or_is_corrupt(data: bytes, name: str = "HoodieRollbackPlan") -> None:
    try:
        found = avro.decode(data, name, path="some/file")
    except CorruptTableError as error:
        assert error.path == "some/file"
    else:
        assert (found is None) == (not data)


@given(st.binary(max_size=300) | st.binary(max_size=300).map(lambda tail: GOOD[:60] + tail))
def test_any_bytes_are_a_record_or_corrupt(data: bytes) -> None:
    decodes_or_is_corrupt(data)


@settings(max_examples=400)
@given(st.data())
def test_a_damaged_record_is_a_record_or_corrupt(data: st.DataObject) -> None:
    damaged = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(GOOD) - 1))] = data.draw(st.integers(0, 255))
    decodes_or_is_corrupt(bytes(damaged))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["null", "int", "record", "array", "fixed", "E", "name"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "name", "namespace", "fields", "items", "values", "size", "symbols", "default"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(JSON, st.binary(max_size=30))
def test_any_json_as_schema_is_a_record_or_corrupt(schema: Any, record: bytes) -> None:
    decodes_or_is_corrupt(container(schema, record))
    decodes_or_is_corrupt(container(record_of("HoodieRollbackPlan", {"name": "f", "type": schema}), record))


def test_a_schema_nested_beyond_reason_is_corrupt() -> None:
    text = b'{"type":' * 50_000 + b'"int"' + b"}" * 50_000
    decodes_or_is_corrupt(container(None, b"").replace(b"null", text))
    good = container({}, b"")
    head = good.index(b"avro.schema") + 11
    data = good[:head] + varint(len(text)) + text + good[head + 3 :]
    with pytest.raises(CorruptTableError, match="Avro schema in the header"):
        avro.decode(data, "HoodieRollbackPlan", path="p")


def test_the_schemas_are_found_when_the_package_is_a_zip(tmp_path: Path) -> None:
    package = Path(avro.__file__).parent.parent
    archive = tmp_path / "sparkrobust.zip"
    with zipfile.ZipFile(archive, "w") as out:
        for file in package.rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                out.write(file, file.relative_to(package.parent))
    script = (
        f"import sys; sys.path.insert(0, {str(archive)!r})\n"
        "from sparkrobust.formats import avro\n"
        "print(avro.__file__, len(avro.encode('HoodieCommitMetadata', {})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert str(archive) in done.stdout
