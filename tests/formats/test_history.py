"""The archived timeline: what the real Hudi wrote, rows that are no answer, and hostile files."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fault_injection.histories import SCHEMA, parquet, row
from sparkrobust.core.instant import Action
from sparkrobust.core.write_status import WriteStat
from sparkrobust.errors import CorruptTableError
from sparkrobust.formats import history
from sparkrobust.formats.commit_metadata import SCHEMA_KEY, CommitMetadata, ReplaceCommitMetadata
from sparkrobust.formats.history import files_in_manifest, find_write, parse_version

KEY = "sparkrobust.write.id"


def named(name: str, **more: Any) -> bytes:
    return CommitMetadata(extra_metadata={"other": "x", KEY: name, "schema": "{}"}, **more).to_bytes()


def look(data: bytes, name: str = "daily") -> Any:
    return find_write(io.BytesIO(data), KEY, name, path="p")


@pytest.fixture(scope="module")
def archived(hudi_tables: Path) -> Path:
    return hudi_tables / "cow_archived" / ".hoodie" / "timeline" / "history"


def test_a_manifest_of_hudi_lists_the_files_newest_first(archived: Path) -> None:
    assert parse_version((archived / "_version_").read_bytes()) == 6
    files = files_in_manifest((archived / "manifest_6").read_bytes(), path="p")
    assert [str(file) for file in files] == sorted((f.name for f in archived.glob("*.parquet")), reverse=True)
    assert [file.level for file in files] == [0, 0, 1]


def test_of_what_hudi_archived_the_newest_commit_with_the_entry_is_found_whole(archived: Path) -> None:
    for file in sorted(archived.glob("*.parquet")):
        commits = [line for line in pq.read_table(file).to_pylist() if line["action"] == "commit"]
        for line in commits:
            schema = CommitMetadata.from_bytes(line["metadata"], path="p").schema
            with file.open("rb") as source:
                found = find_write(source, SCHEMA_KEY, str(schema), path="p")
            assert found is not None and not found.instant.pending
            newest = commits[-1]
            assert (found.instant.time, found.instant.completion) == (
                newest["instantTime"],
                newest["completionTime"],
            )
            assert found.metadata == CommitMetadata.from_bytes(newest["metadata"], path="p")
        with file.open("rb") as source:
            assert find_write(source, SCHEMA_KEY, "another", path="p") is None


@pytest.mark.parametrize("settings", [{}, {"row_group_size": 1}, {"use_dictionary": False}], ids=str)
@pytest.mark.parametrize("name", ["", "1", "täglich", "x" * 200])
def test_a_write_is_found_by_exactly_its_name(name: str, settings: Any) -> None:
    rows = [row(str(number), named(f"{name}{number}")) for number in range(3)]
    data = parquet([*rows, row("7", named(name), completionTime=None), row("8", None)], **settings)
    found = look(data, name)
    assert (found.instant.time, found.instant.completion, found.instant.action) == ("7", None, Action.COMMIT)
    assert found.metadata.extra_metadata[KEY] == name
    assert look(data, f"{name}1").instant.time == "1"
    assert look(data, f"{name}3") is None


def test_only_completed_writes_that_say_so_themselves_are_taken_for_it() -> None:
    said_elsewhere = CommitMetadata(
        extra_metadata={KEY: "another", "other": "daily"},
        partition_to_write_stats={KEY: (WriteStat(file_id="daily", path="daily", partition_path=KEY),)},
    )
    rows = [
        row("1", said_elsewhere.to_bytes()),
        row("2", named("daily"), action="clean"),
        row("3", named("daily"), action="rollback"),
        row("4", named("daily"), action=None),
        row("5", None, plan=named("daily")),
        row("6", b""),
    ]
    assert look(parquet(rows)) is None


def test_an_overwrite_and_a_commit_of_logs_are_writes_too() -> None:
    replaced = ReplaceCommitMetadata(
        extra_metadata={KEY: "daily"}, partition_to_replace_file_ids={"p": ("f",)}
    )
    found = look(parquet([row("1", replaced.to_bytes(), action="replacecommit")]))
    assert found.metadata == replaced and found.instant.action is Action.REPLACE_COMMIT
    found = look(parquet([row("1", named("daily"), action="deltacommit")]))
    assert found.instant.action is Action.DELTA_COMMIT


def test_of_a_large_file_little_is_held_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    large = [
        WriteStat(file_id=f"{number:064x}", path=f"{number:0200x}", partition_path="p")
        for number in range(400)
    ]
    rows = [row(f"{n:03}", named(str(n), partition_to_write_stats={"p": large})) for n in range(100)]
    data = parquet(rows, use_dictionary=False, data_page_size=1 << 16)
    held: list[int] = []
    reads: list[int] = []

    class Source(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            found = super().read(size)
            reads.append(len(found))
            return found

    real = history.read_pieces

    def pieces(*arguments: Any, **named: Any) -> Any:
        for batch in real(*arguments, **named):
            held.append(batch.nbytes)
            yield batch

    monkeypatch.setattr(history, "read_pieces", pieces)
    monkeypatch.setattr(history, "_MOST_BYTES", 1 << 20)
    found = find_write(Source(data), KEY, "98", path="p")
    assert found is not None and found.instant.time == "098"
    assert sum(held) > 10 << 20 and max(held) <= 1.2 * (1 << 20)
    assert max(reads) <= 1 << 20


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PAR1",
        parquet([row("1", named("daily"))])[:-9],
        parquet([row("1", b"x")], schema=SCHEMA.remove(3)),
        parquet([row("1", "x")], schema=SCHEMA.set(3, pa.field("metadata", pa.string()))),
        parquet([row("1", None, action=1)], schema=SCHEMA.set(2, pa.field("action", pa.int32()))),
        parquet([row("1", named("daily")[:-20] + b"x" * 20)]),
        parquet([row("1", named("daily"), action="replacecommit")]),
        parquet([row("x", named("daily"))]),
        parquet([row("", named("daily"))]),
        parquet([row("1", named("daily"), instantTime=None)]),
        parquet([row("1", named("daily"), completionTime="../x")]),
    ],
)
def test_a_file_that_is_torn_or_none_of_a_history_is_named(data: bytes) -> None:
    with pytest.raises(CorruptTableError, match=r"^p") as caught:
        look(data)
    assert str(caught.value.path).startswith("p")


def test_a_file_with_a_column_twice_or_with_text_that_is_none_is_named() -> None:
    twice = pa.Table.from_pylist([row("1", named("daily"))], schema=SCHEMA)
    twice = twice.append_column("metadata", twice.column("metadata"))
    bad = pa.array([b"\xff"], pa.binary()).view(pa.string())
    broken = pa.Table.from_pylist([row("1", named("daily"))], schema=SCHEMA).set_column(0, "instantTime", bad)
    for table in (twice, broken):
        sink = io.BytesIO()
        pq.write_table(table, sink, store_schema=False)
        with pytest.raises(CorruptTableError, match=r"^p"):
            look(sink.getvalue())


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_bytes_are_an_answer_or_named_and_cut_ones_are_named(data: st.DataObject) -> None:
    good = parquet([row("1", named("another")), row("2", named("daily"))])
    cut = data.draw(st.integers(0, len(good) - 1))
    with pytest.raises(CorruptTableError):
        look(good[:cut])
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(good) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        look(bytes(damaged))
    except CorruptTableError as error:
        assert str(error.path).startswith("p")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"\xff\xfe\xff",
        b"[]",
        b"7",
        b"{}",
        b'{"files":null}',
        b'{"files":7}',
        b'{"files":"abc"}',
        b'{"files":{"fileName":"1_2_0.parquet"}}',
        b'{"files":[7]}',
        b'{"files":[{"fileLen":7}]}',
        b'{"files":[{"fileName":7}]}',
        b'{"files":[{"fileName":["1_2_0.parquet"]}]}',
        b'{"files":[{"fileName":"1_2_0.parquet"},{"fileName":"../../1_2_0.parquet"}]}',
        b'{"files":[{"fileName":"manifest_1"}]}',
        b'{"files":' + b"[" * 100_000,
    ],
    ids=lambda text: repr(text[:60]),
)
def test_a_manifest_that_is_torn_or_lists_something_else_is_named(text: bytes) -> None:
    with pytest.raises(CorruptTableError, match=r"^p: expected") as caught:
        files_in_manifest(text, path="p")
    assert caught.value.path == "p" and len(str(caught.value)) < 400


@given(
    st.binary(max_size=60)
    | st.recursive(st.none() | st.text(max_size=5), st.lists).map(json.dumps).map(str.encode)
)
def test_no_bytes_make_the_manifest_or_the_version_fail_otherwise(data: bytes) -> None:
    assert parse_version(data) is None or data.isdigit()
    with pytest.raises(CorruptTableError):
        files_in_manifest(data, path="p")


def test_an_empty_manifest_lists_nothing_and_a_version_is_a_number_alone() -> None:
    assert files_in_manifest(b'{"files":[]}', path="p") == []
    assert [parse_version(text) for text in (b"12", b"", b"-1", b"1 ", b"x", b"9" * 10, "²".encode())] == [
        12, None, None, None, None, None, None,
    ]  # fmt: skip
