"""What a task makes of its rows: files and their statistics; checked with plain pyarrow."""

from __future__ import annotations

import io
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkrobust.coordinator.leftovers import begin_markers
from sparkrobust.core.file_ids import Slot
from sparkrobust.core.markers import Fingerprint
from sparkrobust.core.names import (
    META_COLUMNS,
    MarkerType,
)
from sparkrobust.formats.parquet import KeyRange
from sparkrobust.handles import base_file, spool
from sparkrobust.handles.plan import (
    KEY,
    PATH,
    SLOT,
    WritePlan,
)
from sparkrobust.handles.rows import renumbered
from sparkrobust.handles.work import run
from sparkrobust.storage.local import LocalStorage
from tests.handles.slots import (
    BEFORE,
    DELETE,
    INSERT,
    LAST_WINS,
    NOW,
    SCHEMA,
    UPSERT,
    attempt,
    incoming,
    merged,
    plan,
    publish,
    row,
    stored,
    values,
)

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
