"""Of all attempts at a slot one counts: markers, the gate, and what a failed one leaves."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from sparkrobust.core.file_ids import Slot
from sparkrobust.core.markers import CompletionMarker
from sparkrobust.core.names import (
    marker_folder,
)
from sparkrobust.errors import FencedError, UnavailableError
from sparkrobust.handles.plan import (
    KEY,
    SlotResult,
    WritePlan,
)
from sparkrobust.handles.work import run
from sparkrobust.storage.contract import NotFoundError
from sparkrobust.storage.local import LocalStorage
from tests.handles.slots import (
    INSERT,
    NOW,
    UPSERT,
    Row,
    attempt,
    incoming,
    plan,
    publish,
    row,
    stored,
    values,
)


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
    assert (first.attempt, second.attempt) == ("0-0-1", "0-0-2")
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
    assert (second.reused, second.discarded, second.attempt) == (False, 1, "0-0-2")
    assert SlotResult.from_json(second.to_json(), the_plan.control) == second
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
        name = "CorruptTableError" if content is not None else "FileGoneError"
        assert result.problem[0] == name and result.problem[2] == base.path


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
