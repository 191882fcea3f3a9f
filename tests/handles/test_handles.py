"""What a task does with its rows: files, markers, statistics; checked with plain pyarrow."""

from __future__ import annotations

import io
import itertools
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkrobust.coordinator.leftovers import begin_markers
from sparkrobust.core.control_object import Kind
from sparkrobust.core.file_ids import Slot
from sparkrobust.core.instant import Action, InstantTime
from sparkrobust.core.markers import CompletionMarker, Fingerprint, Gate, Terms
from sparkrobust.core.names import (
    META_COLUMNS,
    BaseFileName,
    ControlFolder,
    MarkerType,
    marker_folder,
)
from sparkrobust.core.view import BaseFile
from sparkrobust.core.write_status import OperationType
from sparkrobust.errors import FencedError, UnavailableError
from sparkrobust.formats.parquet import KeyRange
from sparkrobust.formats.schema import with_meta_columns
from sparkrobust.handles import base_file, spool
from sparkrobust.handles.plan import (
    KEY,
    PATH,
    SEQUENCE,
    SLOT,
    Attempt,
    FileOptions,
    Rules,
    SlotResult,
    WritePlan,
)
from sparkrobust.handles.rows import renumbered
from sparkrobust.handles.work import run
from sparkrobust.storage.contract import NotFoundError
from sparkrobust.storage.local import LocalStorage

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("v", pa.string()),
        ("ts", pa.int64()),
        ("tags", pa.list_(pa.field("element", pa.string()))),
    ]
)
NOW = InstantTime("20240102000000000")
BEFORE = InstantTime("20240101000000000")
Row = dict[str, Any]

UPSERT = Rules(combine=True, match=True, delete=False, ordering=("ts",))
LAST_WINS = Rules(combine=True, match=True, delete=False)
INSERT = Rules(combine=False, match=False, delete=False)
DELETE = Rules(combine=False, match=True, delete=True)


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path / "table"))


def row(key: int, v: str | None = "v", ts: int = 1) -> Row:
    return {"id": key, "v": v, "ts": ts, "tags": [v]}


def incoming(
    rows: list[Row], slot: int | None = 0, path: str = "p", schema: pa.Schema = SCHEMA
) -> pa.RecordBatch:
    table = pa.Table.from_pylist(rows, schema=schema)
    count = len(rows)
    table = table.append_column(KEY, pa.array([str(r["id"]) for r in rows], pa.string()))
    table = table.append_column(PATH, pa.array([r.get("path", path) for r in rows], pa.string()))
    table = table.append_column(SEQUENCE, pa.array(range(count), pa.int64()))
    if slot is not None:
        table = table.append_column(SLOT, pa.array([r.get("slot", slot) for r in rows], pa.int32()))
    return table.combine_chunks().to_batches()[0]


def plan(
    storage: LocalStorage,
    rules: Rules,
    slots: tuple[Slot, ...] = (),
    tasks: tuple[int, ...] | None = None,
    **files: Any,
) -> WritePlan:
    control = ControlFolder(instant=NOW, nonce="ab")
    storage.make_staging(control.staging)
    storage.make_marks(marker_folder(NOW))
    storage.make_folder(control.completions)
    terms = Terms(action=Action.COMMIT, operation=OperationType.UPSERT, schema="{}")
    storage.put(control.gate, Gate(terms=terms, slots=None).render(Kind.GATE, "ab"))
    options = {"codec": "snappy", "max_file_bytes": 1 << 20, "row_group_bytes": 1 << 18, **files}
    return WritePlan(
        storage=storage,
        control=control,
        schema=SCHEMA,
        rules=rules,
        files=FileOptions(**options),
        slots=slots,
        tasks=tasks if tasks is not None else tuple(range(len(slots))),
        seed="00000000-0000-0000-0000-000000000000",
    )


def attempt(number: int = 1) -> Attempt:
    return Attempt(task=0, token=f"0-0-{number}")


def stored(
    storage: LocalStorage, rows: list[Row], schema: pa.Schema = SCHEMA, group: int | None = None
) -> BaseFile:
    """A base file as an earlier commit left it, written by pyarrow alone."""
    name = BaseFileName(file_id="f-0", write_token="9-9-9", instant=BEFORE)
    table = pa.Table.from_pylist(rows, schema=schema)
    meta = {
        "_hoodie_commit_time": [str(BEFORE)] * len(rows),
        "_hoodie_commit_seqno": [f"{BEFORE}_0_{i}" for i in range(len(rows))],
        "_hoodie_record_key": [str(r["id"]) for r in rows],
        "_hoodie_partition_path": ["p"] * len(rows),
        "_hoodie_file_name": [str(name)] * len(rows),
    }
    columns = [pa.array(meta[m], pa.string()) for m in META_COLUMNS]
    whole = pa.Table.from_arrays(columns + table.columns, schema=with_meta_columns(schema))
    sink = io.BytesIO()
    pq.write_table(whole, sink, row_group_size=group)
    storage.make_folder("p")
    storage.put(f"p/{name}", sink.getvalue())
    return BaseFile(partition="p", name=name, size=len(sink.getvalue()))


def publish(storage: LocalStorage, result: SlotResult) -> list[pa.Table]:
    """The rows of a slot's files, through plain pyarrow, once they are published."""
    assert result.problem is None, result.problem
    tables = []
    for file in SlotResult.from_json(result.to_json(), ControlFolder(instant=NOW, nonce="ab")).files:
        storage.publish(file.staged)
        assert file.stat.path is not None
        tables.append(pq.read_table(io.BytesIO(storage.read(file.stat.path))))
        assert file.stat.num_writes == tables[-1].num_rows
        assert file.stat.file_size_in_bytes == len(storage.read(file.stat.path))
    return tables


def values(table: pa.Table) -> list[tuple[int, str, int]]:
    return [(r["id"], r["v"], r["ts"]) for r in table.select(["id", "v", "ts"]).to_pylist()]


def merged(
    storage: LocalStorage, rules: Rules, old: list[Row], new: list[Row]
) -> tuple[pa.Table, SlotResult]:
    base = stored(storage, old)
    slot = Slot(index=0, partition="p", base=base, prefix="f-0")
    (result,) = run(plan(storage, rules, (slot,)), attempt(), iter([incoming(new)]))
    (table,) = publish(storage, result)
    return table, result


# -- create -----------------------------------------------------------------------------------------


def test_new_rows_become_a_file_with_meta_columns_marker_and_key_range(storage: LocalStorage) -> None:
    slot = Slot(index=0, partition="p", prefix="u")
    (result,) = run(plan(storage, INSERT, (slot,)), attempt(), iter([incoming([row(2), row(10), row(2)])]))
    (table,) = publish(storage, result)
    assert table.column_names == [*META_COLUMNS, "id", "v", "ts", "tags"]
    name = f"u-0_0-0-1_{NOW}.parquet"
    assert table["_hoodie_file_name"].to_pylist() == [name] * 3
    assert table["_hoodie_partition_path"].to_pylist() == ["p"] * 3
    assert table["_hoodie_record_key"].to_pylist() == ["2", "10", "2"]
    assert set(table["_hoodie_commit_time"].to_pylist()) == {NOW}
    assert len(set(table["_hoodie_commit_seqno"].to_pylist())) == 3
    footer = pq.read_metadata(io.BytesIO(storage.read(f"p/{name}"))).metadata
    assert (footer[b"hoodie_min_record_key"], footer[b"hoodie_max_record_key"]) == (b"10", b"2")
    assert list(begin_markers(storage, NOW)) == [(f"p/{name}", MarkerType.CREATE)]
    stat = result.files[0].stat
    assert (stat.num_inserts, stat.prev_commit, stat.prev_base_file) == (3, "null", None)


def test_a_file_that_reaches_its_size_ends_and_the_next_one_of_the_slot_begins(storage: LocalStorage) -> None:
    slot = Slot(index=0, partition="p", prefix="u")
    small = plan(storage, INSERT, (slot,), max_file_bytes=20_000, row_group_bytes=5_000)
    batches = [
        incoming([row(i, f"text {i:030d}", i) for i in range(n, n + 500)]) for n in range(0, 5000, 500)
    ]
    (result,) = run(small, attempt(), iter(batches))
    assert [file.stat.file_id for file in result.files] == [f"u-{n}" for n in range(len(result.files))]
    assert len(result.files) > 2
    assert max(file.stat.file_size_in_bytes for file in result.files) < 40_000
    rows = [r for table in publish(storage, result) for r in values(table)]
    assert [r[0] for r in rows] == list(range(5000))


@pytest.mark.parametrize("wanted", [True, False])
def test_columns_whose_values_repeat_get_a_dictionary_if_one_may_be_made(
    storage: LocalStorage, wanted: bool
) -> None:
    slot = Slot(index=0, partition="p", prefix="u")
    rows = incoming([row(i, f"one of {i * 7919 % 1000}", ts=i // 400) for i in range(20_000)])
    (result,) = run(plan(storage, INSERT, (slot,), dictionary=wanted), attempt(), iter([rows]))
    publish(storage, result)
    path = result.files[0].stat.path
    assert path is not None
    chunks = pq.read_metadata(io.BytesIO(storage.read(path))).row_group(0)
    encoded = {
        chunks.column(i).path_in_schema
        for i in range(chunks.num_columns)
        if chunks.column(i).has_dictionary_page
    }
    meta = {"_hoodie_commit_time", "_hoodie_partition_path", "_hoodie_file_name"}
    assert encoded == (meta | {"v", "ts"} if wanted else set())


def test_a_base_file_whose_range_of_keys_is_known_need_not_be_opened_for_others(
    storage: LocalStorage,
) -> None:
    base = stored(storage, [row(3), row(5)])
    near, far = (KeyRange(smallest=low, largest=high) for low, high in (("4", "4"), ("6", "9")))
    assert base_file.may_hold(storage, base, near) and base_file.may_hold(storage, base, far)
    assert not len(base_file.matching_keys(storage, base, pa.array(["7"])))
    assert base_file.may_hold(storage, base, near) and not base_file.may_hold(storage, base, far)
    # Another file of that name elsewhere, or of another size, is another file.
    assert base_file.may_hold(LocalStorage(storage.url.removeprefix("file://") + "-2"), base, far)
    assert base_file.may_hold(storage, replace(base, size=base.size + 1), far)


# -- merge ------------------------------------------------------------------------------------------


def test_a_merge_replaces_keeps_and_appends_and_keeps_the_order_of_the_rows(storage: LocalStorage) -> None:
    table, result = merged(
        storage, UPSERT, [row(1, "a"), row(2, "b"), row(3, "c")], [row(9, "n"), row(2, "B", 5)]
    )
    assert values(table) == [(1, "a", 1), (2, "B", 5), (3, "c", 1), (9, "n", 1)]
    assert table["_hoodie_commit_time"].to_pylist() == [BEFORE, NOW, BEFORE, NOW]
    assert table["tags"].to_pylist() == [["a"], ["B"], ["c"], ["n"]]
    assert len(set(table["_hoodie_file_name"].to_pylist())) == 1
    stat = result.files[0].stat
    assert (stat.num_inserts, stat.num_update_writes, stat.num_deletes) == (1, 1, 0)
    assert stat.prev_commit == BEFORE and stat.prev_base_file == f"f-0_9-9-9_{BEFORE}.parquet"


def test_a_late_row_loses_and_the_stored_one_keeps_its_commit_time(storage: LocalStorage) -> None:
    table, result = merged(storage, UPSERT, [row(1, "new", 5)], [row(1, "late", 4)])
    assert values(table) == [(1, "new", 5)]
    assert table["_hoodie_commit_time"].to_pylist() == [BEFORE]
    assert result.files[0].stat.num_update_writes == 0


def test_at_a_tie_the_incoming_row_wins_and_of_several_the_last(storage: LocalStorage) -> None:
    table, _ = merged(storage, UPSERT, [row(1, "old", 5)], [row(1, "x", 5), row(1, "y", 5), row(1, "z", 4)])
    assert values(table) == [(1, "y", 5)]


def test_without_an_ordering_field_the_last_row_wins(storage: LocalStorage) -> None:
    table, _ = merged(storage, LAST_WINS, [row(1, "old", 5)], [row(1, "x", 9), row(1, "y", 1)])
    assert values(table) == [(1, "y", 1)]


def test_a_row_that_was_stored_without_an_ordering_value_gives_way(storage: LocalStorage) -> None:
    table, _ = merged(storage, UPSERT, [{**row(1, "old"), "ts": None}], [row(1, "new", 1)])
    assert values(table) == [(1, "new", 1)]


def test_an_insert_into_a_small_file_only_appends(storage: LocalStorage) -> None:
    table, result = merged(storage, INSERT, [row(1, "a")], [row(1, "again"), row(2, "b")])
    assert values(table) == [(1, "a", 1), (1, "again", 1), (2, "b", 1)]
    assert result.files[0].stat.num_inserts == 2


def test_deletes_take_rows_away_whatever_their_ordering_and_unknown_keys_do_nothing(
    storage: LocalStorage,
) -> None:
    base = stored(storage, [row(1, "a", 9), row(2, "b", 9)])
    slot = Slot(index=0, partition="p", base=base, prefix="f-0")
    keys = incoming([row(1), row(7)]).select([KEY, PATH, SLOT])
    (result,) = run(plan(storage, DELETE, (slot,)), attempt(), iter([keys]))
    (table,) = publish(storage, result)
    assert values(table) == [(2, "b", 9)]
    assert (result.files[0].stat.num_deletes, result.files[0].stat.num_inserts) == (1, 0)


def test_when_all_rows_are_deleted_an_empty_file_is_the_next_version(storage: LocalStorage) -> None:
    base = stored(storage, [row(1)])
    slot = Slot(index=0, partition="p", base=base, prefix="f-0")
    (result,) = run(
        plan(storage, DELETE, (slot,)), attempt(), iter([incoming([row(1)]).select([KEY, PATH, SLOT])])
    )
    (table,) = publish(storage, result)
    assert table.num_rows == 0 and table.column_names[:5] == list(META_COLUMNS)


def test_old_files_of_a_narrower_schema_are_widened_on_the_way(storage: LocalStorage) -> None:
    old = pa.schema([("id", pa.int32()), ("ts", pa.int64())])
    base = stored(storage, [{"id": 1, "ts": 1}, {"id": 2, "ts": 1}], old)
    slot = Slot(index=0, partition="p", base=base, prefix="f-0")
    (result,) = run(plan(storage, UPSERT, (slot,)), attempt(), iter([incoming([row(2, "new", 2)])]))
    (table,) = publish(storage, result)
    assert values(table) == [(1, None, 1), (2, "new", 2)]
    assert table.schema.field("id").type == pa.int64()


KEYS = st.integers(0, 12)
ROWS = st.lists(st.tuples(KEYS, st.integers(0, 4), st.booleans()), max_size=25)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.dictionaries(KEYS, st.integers(0, 4), max_size=12),
    ROWS.filter(bool),
    st.booleans(),
    st.integers(1, 400),
    st.integers(1, 13),
    st.booleans(),
)
def test_a_merge_does_what_a_dictionary_does_even_when_it_spills_and_reads_in_small_batches(
    tmp_path_factory: pytest.TempPathFactory,
    old: dict[int, int],
    new: list[tuple[int, int, bool]],
    event_time: bool,
    limit: int,
    group: int,
    mapped: bool,
) -> None:
    schema = pa.schema([*SCHEMA, ("_hoodie_is_deleted", pa.bool_())])
    storage = LocalStorage(str(tmp_path_factory.mktemp("t")))
    rows = [{**row(k, f"n{i}", ts), "_hoodie_is_deleted": gone} for i, (k, ts, gone) in enumerate(new)]
    base = stored(storage, [row(k, "old", ts) for k, ts in old.items()], group=group)
    slot = Slot(index=0, partition="p", base=base, prefix="f-0")
    the_plan = plan(storage, UPSERT if event_time else LAST_WINS, (slot,))
    the_plan = WritePlan(**{**vars(the_plan), "schema": schema})
    before = spool.IN_MEMORY, base_file._BATCH_ROWS, base_file._MOST_MAPPED
    spool.Spool.__init__.__defaults__ = (limit,)
    base_file._BATCH_ROWS, base_file._MOST_MAPPED = 3, before[2] if mapped else 0
    try:
        (result,) = run(the_plan, attempt(), iter([incoming(rows, schema=schema)]))
    finally:
        spool.Spool.__init__.__defaults__ = (before[0],)
        base_file._BATCH_ROWS, base_file._MOST_MAPPED = before[1:]
    (table,) = publish(storage, result)
    model = {k: ("old", ts) for k, ts in old.items()}
    best: dict[int, tuple[int, int]] = {}
    for i, (k, ts, _) in enumerate(new):
        rank = (ts if event_time else 0, i)
        best[k] = max(best.get(k, rank), rank)
    for k, (_, i) in best.items():
        _, ts, gone = new[i]
        if event_time and k in model and model[k][1] > ts:
            continue
        model.pop(k, None)
        if not gone:
            model[k] = (f"n{i}", ts)
    assert {r[0]: r[1:] for r in values(table)} == model
    assert table.num_rows == len(model)


# -- tasks ------------------------------------------------------------------------------------------


def test_a_task_of_several_slots_keeps_their_rows_apart(storage: LocalStorage) -> None:
    base = stored(storage, [row(1, "a")])
    slots = (
        Slot(index=0, partition="p", base=base, prefix="f-0"),
        Slot(index=1, partition="q", prefix="u"),
        Slot(index=2, partition="q", prefix="w"),
    )
    batch = incoming(
        [{**row(i, f"n{i}"), "slot": i % 3, "path": "p" if i % 3 == 0 else "q"} for i in range(12)]
    )
    results = list(run(plan(storage, UPSERT, slots, (0, 0, 0)), attempt(), iter([batch])))
    assert [result.slot for result in results] == [0, 1, 2]
    tables = [publish(storage, result)[0] for result in results]
    assert [sorted(r[0] for r in values(t)) for t in tables] == [
        [0, 1, 3, 6, 9],
        [1, 4, 7, 10],
        [2, 5, 8, 11],
    ]


def test_slots_that_are_done_again_get_their_rows_in_tasks_of_their_own(storage: LocalStorage) -> None:
    slots = tuple(Slot(index=n, partition="p", prefix=f"u{n}") for n in range(4))
    before = replace(
        plan(storage, INSERT, slots, tasks=(0, 1, 1, 2)),
        expected={0: Fingerprint(rows=1), 2: Fingerprint(rows=2)},
    )
    again = {old: replace(slots[old], index=new) for old, new in ((0, 4), (1, 5), (2, 6))}
    after = before.with_again(again)
    assert after.slots == (*slots, *again.values()) and after.tasks == (0, 1, 1, 2, 3, 4, 4)
    assert after.expected == {**before.expected, 4: Fingerprint(rows=1), 6: Fingerprint(rows=2)}
    numbers = {old: new.index for old, new in again.items()}
    whole = incoming([{**row(key), "slot": slot} for key, slot in ((1, 0), (2, 2), (3, 1), (4, 2))])
    found = renumbered(whole, numbers)
    assert found.schema == whole.schema
    assert found[SLOT].to_pylist() == [4, 6, 5, 6] and found["id"].to_pylist() == [1, 2, 3, 4]
    results = [
        result
        for kept in ([0], [1, 2, 3])
        for result in run(after, attempt(), iter([found.take(pa.array(kept))]))
    ]
    assert {result.slot: [row[0] for row in values(publish(storage, result)[0])] for result in results} == {
        4: [1],
        5: [3],
        6: [2, 4],
    }


def test_a_bulk_task_writes_a_file_for_each_partition_it_meets(storage: LocalStorage) -> None:
    rows = [{**row(i), "path": f"p{i % 3}"} for i in range(30)]
    (result,) = run(plan(storage, INSERT), attempt(), iter([incoming(rows, slot=None)]))
    assert sorted(file.stat.partition_path or "" for file in result.files) == ["p0", "p1", "p2"]
    ids = [file.stat.file_id for file in result.files]
    assert sorted(ids) == [f"{ids[0][:-2]}-{n}" for n in range(3)]
    assert sum(t.num_rows for t in publish(storage, result)) == 30


def test_a_bulk_task_with_more_partitions_than_it_may_keep_open_loses_no_row(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparkrobust.handles.bulk._MOST_OPEN_FILES", 3)
    monkeypatch.setattr("sparkrobust.handles.bulk._MOST_WAITING_BYTES", 2_000)
    monkeypatch.setattr("sparkrobust.handles.work._CHUNK_ROWS", 16)
    batches = [
        incoming([{**row(n + i), "path": f"p{i % 8}"} for i in range(16)], slot=None)
        for n in range(0, 160, 16)
    ]
    (result,) = run(plan(storage, INSERT), attempt(), iter(batches))
    ids = sorted(r[0] for table in publish(storage, result) for r in values(table))
    assert ids == list(range(160))
    assert len({file.stat.file_id for file in result.files}) == len(result.files)


def test_an_empty_bulk_task_has_a_result_without_files(storage: LocalStorage) -> None:
    (result,) = run(plan(storage, INSERT), attempt(), iter([]))
    assert (result.files, result.problem) == ((), None)


# -- attempts ---------------------------------------------------------------------------------------


def new_slot(storage: LocalStorage, **how: Any) -> WritePlan:
    return replace(plan(storage, INSERT, (Slot(index=0, partition="p", prefix="u"),)), **how)


def staged_names(storage: LocalStorage, the_plan: WritePlan) -> list[str]:
    return sorted(storage.names(the_plan.control.staging))


def marker_of(storage: LocalStorage, the_plan: WritePlan, slot: int = 0) -> CompletionMarker:
    return CompletionMarker.parse(storage.read(the_plan.control.completion(slot)), the_plan.control, slot)


def test_an_attempt_ends_with_a_marker_of_what_it_wrote(storage: LocalStorage) -> None:
    the_plan = new_slot(storage)
    (result,) = run(the_plan, attempt(), iter([incoming([row(1), row(2)])]))
    assert result.marker == marker_of(storage, the_plan)
    assert (result.marker.attempt, result.marker.input.rows) == ("0-0-1", 2)
    assert not result.reused and not result.discarded


def test_an_attempt_that_finds_its_slot_done_writes_nothing_and_serves_the_winner(
    storage: LocalStorage,
) -> None:
    the_plan = new_slot(storage)
    (first,) = run(the_plan, attempt(1), iter([incoming([row(1)])]))
    before = staged_names(storage, the_plan)
    (second,) = run(the_plan, attempt(2), iter([incoming([row(1)])]))
    assert second.marker == first.marker and second.reused
    assert staged_names(storage, the_plan) == before


def test_an_attempt_that_is_overtaken_discards_its_files_and_serves_the_winner(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparkrobust.handles.work._CHUNK_ROWS", 1)
    the_plan = new_slot(storage)

    def overtaken() -> Iterator[pa.RecordBatch]:
        yield incoming([row(1)])
        assert [r.marker is not None for r in run(the_plan, attempt(1), iter([incoming([row(1)])]))]

    (second,) = run(the_plan, attempt(2), overtaken())
    assert second.marker == marker_of(storage, the_plan) and second.marker.attempt == "0-0-1"
    assert (second.reused, second.discarded) == (False, 1)
    (left,) = staged_names(storage, the_plan)
    assert "_0-0-1_" in left


@pytest.mark.parametrize("overtaken", [True, False])
def test_an_attempt_that_gets_other_rows_than_the_winner_ends_the_write(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, overtaken: bool
) -> None:
    monkeypatch.setattr("sparkrobust.handles.work._CHUNK_ROWS", 1)
    the_plan = new_slot(storage)

    def first() -> None:
        list(run(the_plan, attempt(1), iter([incoming([row(1), row(2)])])))

    def rows() -> Iterator[pa.RecordBatch]:
        yield incoming([row(1)])
        if overtaken:
            first()

    if not overtaken:
        first()
    (result,) = run(the_plan, attempt(2), rows())
    assert result.problem is not None and result.problem[0] == "IndeterminateInputError"
    assert "2 rows at first, and 1 rows" in result.problem[1]
    assert len(staged_names(storage, the_plan)) == 1


@pytest.mark.parametrize("carried_out", [True, False])
def test_a_marker_whose_answer_was_lost_is_found_by_the_next_attempt(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, carried_out: bool
) -> None:
    the_plan = new_slot(storage)
    real = LocalStorage.put_if_absent

    def lost(self: LocalStorage, path: str, data: bytes) -> None:
        if "/cm/" in path:
            if carried_out:
                real(self, path, data)
            raise UnavailableError("the connection was cut")
        real(self, path, data)

    with monkeypatch.context() as patched, pytest.raises(UnavailableError):
        patched.setattr(LocalStorage, "put_if_absent", lost)
        list(run(the_plan, attempt(1), iter([incoming([row(1)])])))
    (result,) = run(the_plan, attempt(2), iter([incoming([row(1)])]))
    assert result.marker is not None
    assert result.marker.attempt == ("0-0-1" if carried_out else "0-0-2")
    assert values(publish(storage, result)[0]) == [(1, "v", 1)]


@pytest.mark.parametrize("reuse", [True, False])
def test_after_the_gate_is_closed_a_slot_that_is_done_is_served_or_refused(
    storage: LocalStorage, reuse: bool
) -> None:
    the_plan = new_slot(storage, reuse=reuse)
    (first,) = run(the_plan, attempt(1), iter([incoming([row(1)])]))
    storage.delete(the_plan.control.gate)
    before = staged_names(storage, the_plan)
    if reuse:
        (second,) = run(the_plan, attempt(2), iter([incoming([row(1)])]))
        assert second.marker == first.marker and second.reused
    else:
        with pytest.raises(FencedError, match="is over"):
            list(run(the_plan, attempt(2), iter([incoming([row(1)])])))
    assert staged_names(storage, the_plan) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda ours: None,
        lambda ours: b"",
        lambda ours: b"ab",
        lambda ours: ours.replace(b" ab ", b" cd ", 1),
        lambda ours: ours[:-3],
    ],
    ids=["none", "empty", "another form", "another nonce", "torn"],
)
def test_a_gate_that_is_not_ours_is_closed(
    storage: LocalStorage, change: Callable[[bytes], bytes | None]
) -> None:
    the_plan = new_slot(storage)
    path = the_plan.control.gate
    content = change(storage.read(path))
    storage.delete(path)
    if content is not None:
        storage.put(path, content)
    with pytest.raises(FencedError, match="is over"):
        list(run(the_plan, attempt(), iter([incoming([row(1)])])))
    assert staged_names(storage, the_plan) == []


def test_every_slot_of_a_shared_task_has_a_marker_of_its_own(storage: LocalStorage) -> None:
    slots = tuple(Slot(index=i, partition="p", prefix=f"u{i}") for i in range(3))
    the_plan = plan(storage, INSERT, slots, (0, 0, 0))
    batch = incoming([{**row(n), "slot": n % 3} for n in range(9)])
    results = list(run(the_plan, attempt(), iter([batch])))
    assert [marker_of(storage, the_plan, n) for n in range(3)] == [r.marker for r in results]
    storage.delete(the_plan.control.completion(1))
    again = list(run(the_plan, attempt(2), iter([batch])))
    assert [r.reused for r in again] == [True, False, True]


# -- what must not be written -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "error", "words"),
    [
        ([{**row(1), "id": None}], "InvalidKeyError", "null or empty"),
        ([{**row(1), "path": "../x"}], "UnsafePathError", "'..'"),
        ([{**row(1), "path": ".hoodie/x"}], "UnsafePathError", "belongs to the table"),
    ],
)
def test_a_row_that_must_not_be_written_ends_the_bulk_task_with_the_reason_and_no_file(
    storage: LocalStorage, rows: list[Row], error: str, words: str
) -> None:
    batch = incoming([row(5), *rows], slot=None)
    keys = [None if r["id"] is None else str(r["id"]) for r in [row(5), *rows]]
    batch = batch.set_column(batch.schema.get_field_index(KEY), KEY, pa.array(keys, pa.string()))
    the_plan = plan(storage, INSERT)
    (result,) = run(the_plan, attempt(), iter([batch]))
    assert result.problem is not None and result.problem[0] == error and words in result.problem[1]
    assert storage.list(the_plan.control.staging)[0] == []


def test_a_base_file_that_is_gone_or_torn_is_named(storage: LocalStorage) -> None:
    base = stored(storage, [row(1)])
    slot = Slot(index=0, partition="p", base=base, prefix="f-0")
    the_plan = plan(storage, UPSERT, (slot,))
    for content in (storage.read(base.path)[:-40], None):
        storage.delete(base.path)
        if content is not None:
            storage.put(base.path, content)
        (result,) = run(the_plan, attempt(), iter([incoming([row(1)])]))
        assert result.problem is not None
        assert result.problem[0] == "CorruptTableError" and result.problem[2] == base.path


def test_a_task_that_fails_in_the_middle_leaves_nothing_staged(storage: LocalStorage) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from (incoming([row(n)]) for n in range(3))
        raise OSError("the input broke")

    for slots in ((), (Slot(index=0, partition="p", prefix="u"),)):
        the_plan = plan(storage, INSERT, slots)
        with pytest.raises(OSError, match="the input broke"):
            list(run(the_plan, attempt(), broken()))
        assert storage.list(the_plan.control.staging)[0] == []


def test_a_task_whose_write_was_given_up_can_stage_nothing(storage: LocalStorage) -> None:
    the_plan = plan(storage, INSERT, (Slot(index=0, partition="p", prefix="u"),))
    storage.delete_tree(the_plan.control.path)
    storage.delete_tree(marker_folder(NOW))
    with pytest.raises(FencedError, match="is over"):
        list(run(the_plan, attempt(), iter([incoming([row(1)])])))
    assert [info.path for info in itertools.islice(storage.walk(""), 3)] == []


def test_a_task_whose_write_is_given_up_while_it_runs_can_not_bring_its_folders_back(
    storage: LocalStorage,
) -> None:
    the_plan = plan(storage, INSERT, (Slot(index=0, partition="p", prefix="u"),))

    def late() -> Iterator[pa.RecordBatch]:
        storage.delete_tree(the_plan.control.path)
        storage.delete_tree(marker_folder(NOW))
        yield incoming([row(1)])

    with pytest.raises(NotFoundError):
        list(run(the_plan, attempt(), late()))
    assert [info.path for info in storage.walk("")] == []


def test_what_crosses_to_executors_survives_the_way(storage: LocalStorage) -> None:
    slot = Slot(index=0, partition="p", base=stored(storage, [row(1)]), prefix="f-0")
    the_plan = pickle.loads(pickle.dumps(plan(storage, UPSERT, (slot,))))
    (result,) = run(the_plan, attempt(), iter([incoming([row(1, "x", 2)])]))
    assert values(publish(storage, result)[0]) == [(1, "x", 2)]
