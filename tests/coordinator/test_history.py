"""Writes that were archived: found by their ids all the same, or it is said that nobody can tell."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fault_injection.histories import Archiver
from sparkrobust import probe
from sparkrobust.coordinator import history
from sparkrobust.coordinator.history import UNREADABLE
from sparkrobust.coordinator.recovery import Fate, earlier_result, recover
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.coordinator.write_ids import WrittenEarlier, find_write
from sparkrobust.core.instant import Instant
from sparkrobust.core.names import HISTORY, TIMELINE, WRITE_ID
from sparkrobust.errors import CommitUnknownError, CorruptTableError
from sparkrobust.probe import Point
from sparkrobust.storage.contract import Storage
from sparkrobust.storage.local import LocalStorage
from sparkrobust.storage.locks import InProcessLock
from tests.clocks import TestClock
from tests.coordinator.writes import After, begun, commit, data_files, dead, leftovers, opened, stage
from tests.moments import at


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_searched", history.Remembered(64))


def named(table: HudiTable, name: str = "daily") -> Transaction:
    table.clock.sleep(1)  # else an empty active timeline would give a time that was archived again
    transaction = begun(opened(table), extra={WRITE_ID: name})
    stage(table, transaction)
    return transaction


def committed(table: HudiTable, name: str = "daily") -> Instant:
    transaction = named(table, name)
    transaction.commit(transaction.finalize(1))
    transaction.clean_up()
    assert transaction.done is not None
    return transaction.done


class Seen:
    """A store that says what it is asked for, and does something right before it answers."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner
        self.calls: list[tuple[str, str]] = []
        self.before: Callable[[str, str], object] = lambda name, path: None

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._inner, name)
        if name not in ("open", "read", "names", "stat", "list"):
            return real

        def call(path: str, *more: Any, **how: Any) -> Any:
            self.before(name, path)
            self.calls.append((name, path))
            return real(path, *more, **how)

        return call

    def in_history(self) -> list[tuple[str, str]]:
        found, self.calls = [call for call in self.calls if call[1].startswith(HISTORY)], []
        return found


def seen(table: HudiTable) -> Seen:
    table.storage = Seen(table.storage)  # type: ignore[assignment]
    return table.storage  # type: ignore[return-value]


def found_time(table: HudiTable, name: str = "daily") -> str | None:
    found = find_write(table, name)
    return None if found is None else found.instant.time


# -- found ---------------------------------------------------------------------------------------------


def test_an_archived_write_is_found_by_its_id_with_its_whole_result(table: HudiTable) -> None:
    done = committed(table)
    others = [committed(table, "weekly"), commit(opened(table)).done]
    before = earlier_result(opened(table), "daily", "insert")
    archiver = Archiver(table.storage)
    archiver.archive(done)
    archiver.archive(*(other for other in others if other is not None))
    commit(opened(table))
    fresh = opened(table)
    assert done not in fresh.timeline.completed_writes
    assert earlier_result(fresh, "daily", "insert") == before
    assert before is not None and before.earlier and before.completion == done.completion
    assert found_time(fresh, "weekly") == others[0].time  # type: ignore[union-attr]
    assert earlier_result(fresh, "another", "insert") is None
    archiver.merge_and_clean()
    assert earlier_result(opened(table), "daily", "insert") == before


def test_what_the_real_hudi_archived_is_looked_through(hudi_tables: Path) -> None:
    storage = LocalStorage(str(hudi_tables / "cow_archived"))
    table = HudiTable.open(storage)
    told = seen(table)
    assert find_write(table, "daily") is None
    assert sum(name == "open" for name, _ in told.in_history()) == 3


def test_a_write_that_was_archived_after_the_last_look_at_the_timeline_is_found(in_memory: HudiTable) -> None:
    done, late = committed(in_memory), opened(in_memory)
    Archiver(in_memory.storage).archive(done)
    assert done in late.timeline.completed_writes
    assert found_time(late) == done.time


def test_of_a_write_that_was_begun_before_an_earlier_run_was_archived_nothing_is_committed(
    table: HudiTable,
) -> None:
    late = named(table)
    Archiver(table.storage).archive(committed(table))
    commit(opened(table))
    with pytest.raises(WrittenEarlier):
        late.commit(late.finalize(1))
    assert late.abort("another run was faster")
    assert len(data_files(table.storage)) == 2 + _history_files(table)


def test_a_run_that_was_committed_and_archived_while_this_one_waited_for_the_lock_is_found_under_it(
    table: HudiTable,
) -> None:
    archiver = Archiver(table.storage)
    archiver.archive(committed(table, "weekly"))
    first, second = named(table), named(table)
    markers = second.finalize(1)
    done: list[Instant | None] = []

    def first_is_faster() -> None:
        if not done:
            first.commit(first.finalize(1))
            done.append(first.done)
            archiver.archive(first.done)  # type: ignore[arg-type]
            commit(opened(table))

    second.table.coordination = _with_lock(second.table, first_is_faster)
    with pytest.raises(WrittenEarlier) as found:
        second.commit(markers)
    assert [found.value.write.instant] == done
    assert second.abort("another run was faster")


def _with_lock(table: HudiTable, action: Callable[[], object]) -> Any:
    return replace(table.coordination, lock=After(table, action))


def _history_files(table: HudiTable) -> int:
    return sum(path.startswith(HISTORY) for path in data_files(table.storage))


def test_who_slept_until_its_write_was_archived_does_not_know_and_the_job_that_runs_again_does(
    in_memory: HudiTable,
) -> None:
    sleeper = named(in_memory)
    markers = sleeper.finalize(1)

    def others_go_on() -> None:
        other = opened(in_memory)  # to whom the lock was given meanwhile
        other.coordination = replace(other.coordination, lock=InProcessLock("another"))
        recover(other, even_alive=True)
        (done,) = opened(in_memory).timeline.completed_writes
        commit(other)
        Archiver(in_memory.storage).archive(done)

    with probe.listening(at(Point.DECIDED, others_go_on)), pytest.raises(CommitUnknownError, match="older"):
        sleeper.commit(markers)
    result = earlier_result(opened(in_memory), "daily", "insert")
    assert result is not None and result.instant == sleeper.time


# -- what it costs -------------------------------------------------------------------------------------


def test_without_a_write_id_nobody_looks_and_without_a_history_there_is_one_listing(
    in_memory: HudiTable,
) -> None:
    told = seen(in_memory)
    commit(opened(in_memory))
    assert told.in_history() == []
    assert find_write(opened(in_memory), "daily") is None
    assert told.in_history() == [("names", HISTORY)]


def test_a_file_is_read_once_for_a_write_however_often_it_is_asked_for(in_memory: HudiTable) -> None:
    archiver = Archiver(in_memory.storage)
    for name in ("a", "b"):
        archiver.archive(committed(in_memory, name))
    told = seen(in_memory)
    committed(in_memory)
    assert sorted(path for name, path in told.in_history() if name == "open") == sorted(archiver.files)
    archiver.archive(committed(in_memory, "c"))
    told.in_history()
    for _ in range(2):
        assert find_write(opened(in_memory), "another") is None
    assert sum(name == "open" for name, _ in told.in_history()) == 3


def test_newer_files_are_read_first_and_none_after_the_one_that_has_it(in_memory: HudiTable) -> None:
    archiver = Archiver(in_memory.storage)
    for name in ("a", "daily", "b"):
        archiver.archive(committed(in_memory, name))
    told = seen(in_memory)
    assert find_write(opened(in_memory), "daily") is not None
    assert [path for name, path in told.in_history() if name == "open"] == archiver.files[:0:-1]


# -- while Hudi is at work -----------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["read", "open"])
def test_files_that_are_merged_and_cleaned_away_meanwhile_are_looked_for_anew(
    in_memory: HudiTable, call: str
) -> None:
    archiver = Archiver(in_memory.storage)
    done = committed(in_memory)
    for instant in (done, committed(in_memory, "b")):
        archiver.archive(instant)
    told, left = seen(in_memory), [1]

    def merged(name: str, path: str) -> None:
        if name == call and path in (*archiver.files, archiver.manifest) and left:
            left.pop()
            archiver.merge_and_clean()

    told.before = merged
    assert found_time(in_memory) == done.time and not left


def test_a_file_that_is_taken_away_while_it_is_read_is_looked_for_anew(table: HudiTable) -> None:
    archiver, done = Archiver(table.storage), []
    for name in ("daily", "weekly"):
        large = {WRITE_ID: name, "noise": random.Random(name).randbytes(400_000).hex()}
        transaction = begun(opened(table), extra=large)
        stage(table, transaction)
        transaction.commit(transaction.finalize(1))
        done.append(transaction.done)
        table.clock.sleep(1)
    archiver.archive(*(one for one in done if one is not None))
    told, real = seen(table), table.storage.open

    def opened_and_taken_away(path: str) -> Any:
        source = real(path)
        if path in archiver.files and archiver.manifest.endswith("_1"):
            archiver.merge_and_clean()
        return source

    told.open = opened_and_taken_away  # type: ignore[attr-defined]
    found = find_write(table, "daily")
    assert found is not None and found.instant == done[0]
    assert archiver.manifest.endswith("_2")


def test_the_looking_anew_has_an_end(in_memory: HudiTable) -> None:
    archiver = Archiver(in_memory.storage)
    archiver.archive(committed(in_memory))
    told = seen(in_memory)
    told.before = lambda name, path: archiver.merge_and_clean() if path == archiver.manifest else None
    with pytest.raises(CorruptTableError, match="is gone, though the history names it"):
        find_write(in_memory, "daily")


def test_while_hudi_writes_the_version_anew_the_last_manifest_counts(in_memory: HudiTable) -> None:
    archiver = Archiver(in_memory.storage)
    first, second = committed(in_memory), committed(in_memory, "b")
    for instant in (first, second):
        archiver.archive(instant)
    for number in range(3, 11):  # 10 comes after 9, by number and not by name
        archiver.merge()
        assert archiver.manifest.endswith(f"_{number}")
    in_memory.storage.put(f"{HISTORY}/manifest_9", b"torn")
    in_memory.storage.put(archiver.version, b"")
    assert found_time(in_memory) == first.time
    in_memory.storage.delete(archiver.version)
    assert found_time(in_memory, "b") == second.time


def test_what_an_archiver_leaves_that_has_not_come_to_its_manifest_is_passed_over(
    in_memory: HudiTable,
) -> None:
    in_memory.storage.make_folder(HISTORY)
    in_memory.storage.put(f"{HISTORY}/1_2_0.parquet", b"torn")
    done = committed(in_memory)
    assert find_write(opened(in_memory), "another") is None
    archiver = Archiver(in_memory.storage)
    archiver.archive(done)
    in_memory.storage.put(f"{HISTORY}/1_2_0.parquet", b"torn")
    assert found_time(opened(in_memory)) == done.time


def test_what_is_torn_only_for_a_moment_is_looked_at_again(in_memory: HudiTable) -> None:
    archiver = Archiver(in_memory.storage)
    done = committed(in_memory)
    archiver.archive(done)
    whole = in_memory.storage.read(archiver.manifest)
    in_memory.storage.put(archiver.manifest, whole[:9])

    class Mends(TestClock):
        def sleep(self, seconds: float) -> None:
            in_memory.storage.put(archiver.manifest, whole)

    in_memory.clock = Mends()
    assert found_time(in_memory) == done.time


# -- what can't be read --------------------------------------------------------------------------------

BREAKS: dict[str, Callable[[Storage, Archiver], object]] = {
    "torn manifest": lambda storage, of: storage.put(of.manifest, storage.read(of.manifest)[:-3]),
    "manifest of something else": lambda storage, of: storage.put(
        of.manifest, b'{"files":[{"fileName":"x"}]}'
    ),
    "manifest gone": lambda storage, of: storage.delete(of.manifest),
    "torn file": lambda storage, of: storage.put(of.files[0], storage.read(of.files[0])[:-3]),
    "empty file": lambda storage, of: storage.put(of.files[0], b""),
    "file gone": lambda storage, of: storage.delete(of.files[0]),
    "version of none": lambda storage, of: storage.put(of.version, b"7"),
}


@pytest.fixture(params=BREAKS)
def broken(request: pytest.FixtureRequest, in_memory: HudiTable) -> HudiTable:
    archiver = Archiver(in_memory.storage)
    for name in ("a", "b"):
        archiver.archive(committed(in_memory, name))
    BREAKS[request.param](in_memory.storage, archiver)
    return in_memory


def test_a_history_that_cant_be_read_is_never_taken_for_one_without_the_write(broken: HudiTable) -> None:
    began = broken.clock.now_ms()
    with pytest.raises(CorruptTableError, match="can't be found out, since the archived timeline") as found:
        earlier_result(broken, "another", "insert")
    assert (found.value.kind, str(found.value.path)[: len(HISTORY)]) == (UNREADABLE, HISTORY)
    assert "without hoodie.write.robust.write.id" in str(found.value)
    assert broken.clock.now_ms() - began <= 5000


def test_without_a_write_id_a_history_that_cant_be_read_is_nobodys_business(broken: HudiTable) -> None:
    done = commit(opened(broken))
    pending = named(broken)
    with pytest.raises(CorruptTableError):
        pending.commit(pending.finalize(1))
    assert pending.abort("the history can't be read")
    assert [i.time for i in opened(broken).timeline.completed_writes] == [done.time]


def test_what_is_on_the_active_timeline_is_found_without_a_look_into_the_history(
    in_memory: HudiTable,
) -> None:
    archiver = Archiver(in_memory.storage)
    archiver.archive(committed(in_memory, "a"))
    done = committed(in_memory)
    in_memory.storage.put(archiver.manifest, b"torn")
    told = seen(in_memory)
    assert found_time(opened(in_memory)) == done.time and told.in_history() == []


def test_a_write_that_is_all_there_waits_until_the_history_can_be_read(in_memory: HudiTable) -> None:
    archiver = Archiver(in_memory.storage)
    archiver.archive(committed(in_memory, "a"))
    whole = in_memory.storage.read(archiver.files[0])
    waits, gone = dead(named(in_memory)), dead(begun(opened(in_memory)))
    in_memory.storage.put(archiver.files[0], whole[:-1])
    for end in (recover, lambda table: earlier_result(table, "daily", "insert")):
        with pytest.raises(CorruptTableError) as found:
            end(opened(in_memory))
        assert found.value.kind == UNREADABLE
    assert [one.time for one in opened(in_memory).timeline.pending] == [waits.time]
    assert gone.time not in opened(in_memory).timeline.completed_times
    in_memory.storage.put(archiver.files[0], whole)
    assert [one.fate for one in recover(opened(in_memory))] == [Fate.COMMITTED]
    assert leftovers(in_memory.storage) == []


def test_a_version_without_any_manifest_is_a_history_that_cant_be_read(in_memory: HudiTable) -> None:
    in_memory.storage.make_folder(HISTORY)
    in_memory.storage.put(f"{HISTORY}/_version_", b"")
    with pytest.raises(CorruptTableError, match="no manifest"):
        find_write(in_memory, "daily")


def test_a_commit_file_that_is_there_and_torn_is_not_taken_for_archived(in_memory: HudiTable) -> None:
    done, late = committed(in_memory), opened(in_memory)
    for name in late.storage.names(TIMELINE):
        if name.endswith(".commit"):
            late.storage.put(f"{TIMELINE}/{name}", b"torn")
    with pytest.raises(CorruptTableError, match="Avro magic"):
        find_write(late, "daily")
    assert done.completion is not None


def test_a_history_that_the_table_has_elsewhere_is_read_there_and_never_outside(in_memory: HudiTable) -> None:
    done = committed(in_memory)
    Archiver(in_memory.storage, f"{TIMELINE}/old").archive(done)
    values = in_memory.config.values
    assert isinstance(values, dict)
    values["hoodie.timeline.history.path"] = "old"
    assert found_time(in_memory) == done.time
    values["hoodie.timeline.history.path"] = "../../.."
    with pytest.raises(CorruptTableError, match="leads out of the table"):
        find_write(in_memory, "daily")
