"""What a driver sees when it looks again, and what it need not look at while it has the lock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from sparkrobust import probe
from sparkrobust.coordinator import table as table_module
from sparkrobust.coordinator.recovery import recover
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.coordinator.write_ids import WrittenEarlier, find_write
from sparkrobust.core.instant import Instant, State
from sparkrobust.core.names import TIMELINE, WRITE_ID, instant_file
from sparkrobust.core.timeline import Timeline
from sparkrobust.errors import ConflictError
from sparkrobust.probe import Point
from sparkrobust.storage import local_looks
from sparkrobust.storage.contract import Storage
from sparkrobust.storage.local import LocalStorage
from sparkrobust.world import Clock
from tests.coordinator.writes import After, begun, commit, opened, stage, stopped

STAMP_IS_OLD_SECONDS = 0.05


def archive(table: HudiTable, instant: Instant) -> None:
    for state in (State.REQUESTED, State.INFLIGHT):
        table.storage.delete(instant_file(replace(instant, state=state, completion=None)))
    table.storage.delete(instant_file(instant))


def test_whatever_others_do_the_timeline_is_what_the_names_say(table: HudiTable) -> None:
    def seen() -> Timeline:
        table.reload()
        assert table.timeline == Timeline.of_names(table.storage.names(TIMELINE))
        return table.timeline

    commit(opened(table))
    commit(opened(table))
    assert len(seen().completed_writes) == 2
    pending = begun(opened(table))
    assert [i.time for i in seen().pending] == [pending.time]
    stage(pending.table, pending)
    pending.commit(pending.finalize(1))
    pending.clean_up()
    assert len(seen().completed_writes) == 3 and not table.timeline.pending
    stopped(opened(table), "begun")
    assert len(seen().pending) == 1
    recover(opened(table))
    assert not seen().pending
    archive(table, table.timeline.instants[0])
    assert len(seen().completed_writes) == 2
    assert seen() is table.timeline


def test_what_a_driver_knows_of_its_own_commit_does_not_hide_what_comes_after(table: HudiTable) -> None:
    mine = commit(table)
    assert mine.done in table.timeline.completed_writes
    other = commit(opened(table))
    archive(table, mine.done)  # type: ignore[arg-type]
    table.reload()
    assert table.timeline.completed_writes == (other.done,)


@contextmanager
def listings(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The folders that are listed in the block."""
    found: list[str] = []

    def listed(listing: Callable[..., Any]) -> Callable[..., Any]:
        def listed(full: str, folder: str, *more: Any) -> Any:
            found.append(folder)
            return listing(full, folder, *more)

        return listed

    with monkeypatch.context() as patch:
        for name in ("names_in", "names_since"):
            patch.setattr(local_looks, name, listed(getattr(local_looks, name)))
        yield found


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("storage", ["local"], indirect=True)
def test_who_has_the_lock_does_not_list_a_timeline_that_stays_as_it_is(
    table: HudiTable, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    if table.storage.settles_in(TIMELINE) is None:
        pytest.skip("the file system of the temporary folder is not stamped by this kernel")
    commit(table)
    transaction = begun(table)
    stage(table, transaction)
    markers = transaction.finalize(1)
    if shared:
        # However fast the write was: who waits for the lock is not to wait for a long listing.
        monkeypatch.setattr(table_module, "_MANY_NAMES", 1)
        table.storage.put(f"{TIMELINE}/touched", b"")
        table.clock = Clock()  # whose sleep is one in the kernel's time, too
    else:
        time.sleep(STAMP_IS_OLD_SECONDS)
    with listings(monkeypatch) as found:
        until: list[int] = []
        lock = After(table, lambda: until.append(found.count(TIMELINE)))
        lock.shared = shared
        table.coordination = replace(table.coordination, lock=lock, skew_ms=0)

        def published(point: Point, facts: object) -> None:
            if point is Point.COMMIT_PUBLISHED:
                until.append(found.count(TIMELINE))

        with probe.listening(published):
            transaction.commit(markers)
    assert until == [1, 1]


def test_who_was_faster_after_the_last_look_before_the_lock_is_seen_under_it(table: HudiTable) -> None:
    group = f"p1/{commit(table).table.base_files()[0].file_id}"
    transaction = begun(table)
    stage(table, transaction, group=group)
    markers = transaction.finalize(1)
    if isinstance(table.storage, LocalStorage):
        time.sleep(STAMP_IS_OLD_SECONDS)
    lock = After(table, lambda: commit(opened(table), group=group))
    table.coordination = replace(table.coordination, lock=lock)
    with pytest.raises(ConflictError, match="changes 1 file group"):
        transaction.commit(markers)
    assert transaction.abort("a conflict")


def named(table: HudiTable, name: str) -> Transaction:
    transaction = begun(table, extra={WRITE_ID: name})
    stage(table, transaction)
    return transaction


def test_another_run_that_was_faster_after_it_was_asked_for_is_found_under_the_lock(table: HudiTable) -> None:
    first, second = named(opened(table), "daily"), named(table, "daily")
    markers = second.finalize(1)
    done: list[Instant | None] = []

    def first_is_faster() -> None:
        if not done:
            first.commit(first.finalize(1))
            done.append(first.done)

    table.coordination = replace(table.coordination, lock=After(table, first_is_faster))
    with pytest.raises(WrittenEarlier) as found:
        second.commit(markers)
    assert [found.value.write.instant] == done
    assert second.abort("another run was faster")


def test_a_write_is_looked_for_among_those_that_are_not_known_to_be_another(
    table: HudiTable, storage: Storage
) -> None:
    first = named(table, "daily")
    first.commit(first.finalize(1))
    other = commit(opened(table))
    fresh = opened(table)
    for besides in (set(), {other.time}):
        found = find_write(fresh, "daily", besides)
        assert found is not None and found.instant == first.done
    assert find_write(fresh, "daily", {first.time}) is None
