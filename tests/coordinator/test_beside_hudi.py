"""Writers of Hudi's that share the lock with ours: they go by the timeline, and know of no decision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from fault_injection.histories import Archiver
from sparkrobust import probe
from sparkrobust.coordinator.recovery import Fate, recover
from sparkrobust.coordinator.rollback import roll_back_failed_writes
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.core.instant import Action, Instant, State
from sparkrobust.core.markers import CompletionMarker
from sparkrobust.errors import CommitUnknownError, FencedError, UnavailableError
from sparkrobust.probe import Point
from sparkrobust.storage.contract import Storage
from tests.coordinator.upserts import Upsert, rows, upsert
from tests.coordinator.writers import begun_by_hudi, committed_by_hudi, rollback_of, writer
from tests.coordinator.writes import (
    Stop,
    StopsAt,
    begun,
    commit,
    data_files,
    dead,
    leftovers,
    stage,
    stopped,
)
from tests.moments import at


def planned(table: HudiTable, write: Transaction) -> Instant:
    """Hudi is going to roll a write back."""
    return rollback_of(table, Instant(time=write.time, action=Action.COMMIT, state=State.INFLIGHT))


def completed(table: HudiTable) -> set[str]:
    return set(writer(table).timeline.completed_times)


# -- a rollback that they have planned ---------------------------------------------------------------------


def test_a_write_is_not_committed_that_others_are_about_to_roll_back(table: HudiTable) -> None:
    first = commit(writer(table))
    write = begun(writer(table))
    stage(table, write)
    markers = write.finalize(1)
    planned(table, write)
    with pytest.raises(FencedError):
        write.commit(markers)
    assert write.abort("it is rolled back") is True
    assert roll_back_failed_writes(writer(table)) == [] and not writer(table).timeline.pending
    assert completed(table) == {first.time}
    assert len(data_files(table.storage)) == 1 and leftovers(table.storage) == []


@pytest.mark.parametrize("ends", [recover, roll_back_failed_writes])
def test_nor_is_it_by_who_finds_that_all_of_it_is_there(
    table: HudiTable, ends: Callable[[HudiTable], object]
) -> None:
    write = stopped(writer(table), "staged")
    planned(table, write)
    ends(writer(table))
    roll_back_failed_writes(writer(table))
    assert not writer(table).timeline.pending and completed(table) == set()
    assert data_files(table.storage) == [] and leftovers(table.storage) == []


@pytest.mark.parametrize("point", [Point.COMMIT_STAGED, Point.DECIDED, Point.COMMIT_PUBLISHED])
def test_of_a_write_that_others_plan_to_roll_back_while_it_is_committed_nobody_can_tell(
    table: HudiTable, point: Point
) -> None:
    write = begun(writer(table))
    stage(table, write)
    markers = write.finalize(1)
    with (
        probe.listening(at(point, lambda: planned(table, write))),
        pytest.raises(CommitUnknownError, match="rolls it back"),
    ):
        write.commit(markers)
    # Had Hudi carried its plan out meanwhile, the write would be gone.
    write.leave()
    assert roll_back_failed_writes(writer(table)) == [] and not writer(table).timeline.pending
    assert completed(table) == {write.time}
    assert len(data_files(table.storage)) == 1 and leftovers(table.storage) == []


@pytest.mark.parametrize("stop", ["decided", "published"])
def test_a_decided_write_that_others_are_about_to_roll_back_nobody_finishes(
    table: HudiTable, stop: str
) -> None:
    write = stopped(writer(table), stop)
    planned(table, write)
    other = commit(writer(table))
    assert completed(table) == {other.time} and len(data_files(table.storage)) == 1
    assert [one.time for one in roll_back_failed_writes(writer(table))] == [write.time]
    assert not writer(table).timeline.pending and completed(table) == {other.time}
    assert len(data_files(table.storage)) == 1 and leftovers(table.storage) == []


def test_a_recovery_says_so_of_a_decided_write_that_others_are_about_to_roll_back(table: HudiTable) -> None:
    write = dead(stopped(writer(table), "decided"))
    planned(table, write)
    assert [one.fate for one in recover(writer(table))] == [Fate.ROLLED_BACK]
    assert not writer(table).timeline.pending and data_files(table.storage) == []


# -- a commit of theirs between a decision of ours and its end ---------------------------------------------


def decided(table: HudiTable, group: str | None, stop: str = "decided", **more: Any) -> Transaction:
    """A write whose driver died when it had decided, and gave the lock back, or lost it."""
    ours = writer(table)
    write = begun(ours, **more)
    stage(ours, write, group=group, base=base_of(table, group))
    return dies(write, write.finalize(1), stop)


def base_of(table: HudiTable, group: str | None) -> str:
    return data_files(table.storage)[0].rpartition("/")[2] if group else ""


def dies(write: Transaction, markers: list[CompletionMarker], stop: str = "decided") -> Transaction:
    table = write.table
    real, table.storage = table.storage, cast(Storage, StopsAt(table.storage, stop))
    with pytest.raises(Stop):
        write.commit(markers)
    table.storage = real
    return dead(write)


def ended(table: HudiTable) -> set[str]:
    """Everything comes to its end; the writes that the table consists of."""
    recover(writer(table))
    roll_back_failed_writes(writer(table))
    last = writer(table)
    assert not last.timeline.pending and leftovers(table.storage) == []
    return completed(last)


COMERS: dict[str, Callable[[HudiTable], object]] = {
    "a recovery": recover,
    "a rollback": roll_back_failed_writes,
    "a write": commit,
}
"""Who comes next, and finds the decision."""


@pytest.mark.parametrize("who", COMERS)
@pytest.mark.parametrize("stop", ["decided", "published"])
@pytest.mark.parametrize("action", [Action.COMMIT, Action.REPLACE_COMMIT])
def test_a_decided_write_whose_file_groups_others_have_changed_since_is_undone_and_not_finished(
    table: HudiTable, group: str, who: str, stop: str, action: Action
) -> None:
    write = decided(table, group, stop)
    theirs = committed_by_hudi(table, group, begun_by_hudi(table, action))
    COMERS[who](writer(table))
    assert theirs.time in ended(table) and write.time not in completed(table)
    assert not [path for path in data_files(table.storage) if write.time in path]
    assert all(write.time != base.name.instant for base in writer(table).base_files())


def test_a_driver_that_finds_the_store_again_too_late_learns_that_its_write_was_undone(
    table: HudiTable, group: str
) -> None:
    ours = writer(table)
    write = begun(ours)
    stage(ours, write, group=group, base=base_of(table, group))
    markers = write.finalize(1)
    publish_all, came = ours.storage.publish_all, list[Instant]()

    def away(files: Any) -> None:
        if came:
            publish_all(files)
        else:
            came.append(committed_by_hudi(table, group))
            raise UnavailableError("no answer")

    ours.storage.publish_all = away  # type: ignore[method-assign]
    with pytest.raises(FencedError):
        write.commit(markers)
    ours.storage.publish_all = publish_all  # type: ignore[method-assign]
    assert write.abort("others were faster") is True
    assert came[0].time in ended(table) and write.time not in completed(table)


def test_an_overwrite_that_was_decided_is_undone_whatever_others_have_written_since(
    table: HudiTable, group: str
) -> None:
    before = dict(writer(table).config.values)
    new = {**before, "hoodie.table.name": "another"}
    write = decided(table, None, action=Action.REPLACE_COMMIT, new_properties=new)
    theirs = committed_by_hudi(table, group)
    recover(writer(table))
    assert theirs.time in ended(table) and write.time not in completed(table)
    assert writer(table).config.values == before


@pytest.mark.parametrize("stop", ["decided", "published"])
def test_a_decided_write_is_finished_beside_what_others_have_done_to_other_file_groups(
    table: HudiTable, group: str, stop: str
) -> None:
    other = commit(writer(table), "p2")
    theirs = next(path for path in data_files(table.storage) if path.startswith("p2")).partition("_")[0]
    write = decided(table, group, stop)
    done = committed_by_hudi(table, theirs)
    recover(writer(table))
    assert ended(table) >= {other.time, write.time, done.time}


def test_what_was_in_nobodys_way_when_it_was_decided_is_not_in_its_way_later(
    table: HudiTable, group: str
) -> None:
    ours = writer(table)
    write = begun(ours)
    stage(ours, write, group=group, base=base_of(table, group))
    others = [commit(writer(table)), commit(writer(table), "p2")]
    dies(write, write.finalize(1))
    recover(writer(table))
    assert ended(table) >= {write.time, *(other.time for other in others)}


def test_nor_is_what_its_slots_were_done_again_from(table: HudiTable) -> None:
    upsert(table, "first", ["a", "b"])
    upsert(table, "first", ["c", "d"])
    early = Upsert(writer(table), "early", ["a"]).begin()
    late = Upsert(writer(table), "late", ["b", "c"]).begin().write()
    early.write().commit()
    assert late.redo() == {0: 2}
    dies(late.transaction, late.finalize())
    recover(writer(table))
    assert rows(table) == {"a": "early", "b": "late", "c": "late", "d": "first"}


@pytest.mark.parametrize("readable", [True, False])
def test_what_others_have_done_since_is_not_missed_when_it_was_archived_nor_when_nobody_can_tell(
    table: HudiTable, group: str, readable: bool
) -> None:
    theirs = begun_by_hudi(table)
    write = decided(table, group)
    done = committed_by_hudi(table, group, theirs)
    newer = committed_by_hudi(table, data_files(table.storage)[-1].partition("_")[0])
    archiver = Archiver(table.storage)
    archiver.archive(*(one for one in writer(table).timeline.completed_writes if one != newer))
    if not readable:
        table.storage.delete(archiver.manifest)
    assert done not in writer(table).timeline.completed_writes
    recover(writer(table))
    assert not [path for path in data_files(table.storage) if write.time in path]
    assert not writer(table).timeline.pending and write.time not in completed(table)
