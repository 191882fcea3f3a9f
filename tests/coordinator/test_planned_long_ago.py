"""While a write is planned, or runs, others commit; their commits are archived, and files cleaned away."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fault_injection.histories import Archiver, take_off_timeline
from sparkrobust.coordinator.planned import overtaken
from sparkrobust.coordinator.recovery import Fate, recover
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.core.instant import Action, Instant
from sparkrobust.core.names import instant_file
from sparkrobust.errors import ConflictError, CorruptTableError, FileGoneError
from sparkrobust.formats.commit_metadata import CommitMetadata
from tests.coordinator.writers import writer
from tests.coordinator.writes import begun, commit, data_files, dead, leftovers, opened, stage, terms


def clean(table: HudiTable, group: str) -> None:
    """All files of a group but the newest are gone."""
    for path in [path for path in data_files(table.storage) if path.startswith(group)][:-1]:
        table.storage.delete(path)


def archive(table: HudiTable, *writes: Transaction | Instant) -> None:
    """These are on the archived timeline alone."""
    instants = [write.done if isinstance(write, Transaction) else write for write in writes]
    Archiver(table.storage).archive(*(one for one in instants if one is not None))


def archive_before(table: HudiTable, pending: Transaction) -> None:
    """All that may be archived while a write is pending: of the older ones the newest stays."""
    archive(table, *[one for one in all_of(table) if one.time < pending.time][:-1])


def all_of(table: HudiTable) -> tuple[Instant, ...]:
    return opened(table).timeline.completed_writes


def end(transaction: Transaction, group: str | None = None) -> Transaction:
    stage(transaction.table, transaction, group=group)
    transaction.commit(transaction.finalize(1))
    transaction.clean_up()
    return transaction


def refused_to_begin(table: HudiTable, found: dict[str, set[str]], why: str) -> None:
    late = Transaction(table, terms())
    with pytest.raises(ConflictError, match=why) as refused:
        late.begin(slots=1, found=found)
    assert refused.value.outcome == "Conflicted" and "a retry helps" in str(refused.value.hint)
    assert late.abort("it met a conflict")
    assert leftovers(table.storage) == []


# -- what is cleaned ---------------------------------------------------------------------------------------


def test_a_write_that_found_no_file_of_a_group_since_others_had_changed_and_cleaned_it_does_not_begin(
    table: HudiTable, group: str
) -> None:
    planner = writer(table)
    commit(writer(table), group=group)
    clean(table, group)
    refused_to_begin(planner, {"p1": set()}, f"no file was left of the file group {group}")


def test_nor_does_one_that_found_none_of_a_group_that_was_replaced_and_cleaned(
    table: HudiTable, group: str
) -> None:
    planner = writer(table)
    end(begun(writer(table), Action.REPLACE_COMMIT))
    (old,) = (path for path in data_files(table.storage) if path.startswith(group))
    table.storage.delete(old)
    refused_to_begin(planner, {"p1": set()}, f"no file was left of the file group {group}")


def test_a_write_begins_that_found_all_groups_or_looked_elsewhere_or_lacks_only_new_ones(
    table: HudiTable, group: str
) -> None:
    planners = [writer(table) for _ in range(3)]
    made = commit(writer(table))
    (new,) = (path.partition("_")[0] for path in data_files(table.storage) if made.time in path)
    for changed in (group, new):
        commit(writer(table), group=changed)
        clean(table, changed)
    finds: list[dict[str, set[str]]] = [{"p1": {group.rpartition("/")[2]}}, {"p2": set()}, {}]
    for planner, found in zip(planners, finds, strict=True):
        late = Transaction(planner, terms())
        late.begin(slots=1, found=found)
        end(late)


# -- what is archived --------------------------------------------------------------------------------------


def refused_at_the_end(late: Transaction, group: str, other: Transaction) -> None:
    with pytest.raises(ConflictError, match=rf"{other.time}.* changes 1 file group"):
        end(late, group)
    assert late.abort("it met a conflict") and leftovers(late.table.storage) == []


@pytest.mark.parametrize("when", ["before it began", "while it ran"])
@pytest.mark.parametrize("same", [True, False])
def test_what_was_committed_while_a_write_was_planned_is_held_against_it_though_it_is_archived(
    table: HudiTable, group: str, same: bool, when: str
) -> None:
    planner = writer(table)
    meanwhile = commit(writer(table), group=group)
    commit(writer(table))
    if when == "before it began":
        archive(table, *all_of(table)[:-1])
    late = Transaction(planner, terms())
    late.begin(slots=1)
    if when == "while it ran":
        archive_before(table, late)
    if same:
        refused_at_the_end(late, group, meanwhile)
    else:
        end(late)


@pytest.mark.parametrize("when", ["before it began", "while it ran"])
@pytest.mark.parametrize("same", [True, False])
def test_so_is_what_was_pending_as_it_was_planned(
    table: HudiTable, group: str, same: bool, when: str
) -> None:
    early = begun(writer(table))
    commit(writer(table))
    planner = writer(table)
    if when == "before it began":
        end(early, group)
        archive(table, *all_of(table)[:-1])
    late = Transaction(planner, terms())
    late.begin(slots=1)
    if when == "while it ran":
        end(early, group)
        archive_before(table, late)
    if same:
        refused_at_the_end(late, group, early)
    else:
        end(late)


def test_what_was_pending_and_is_rolled_back_stands_in_nobodys_way_however_much_is_archived(
    table: HudiTable, group: str
) -> None:
    early = begun(writer(table))
    stage(early.table, early, group=group)
    commit(writer(table))
    late = begun(writer(table))
    assert early.abort("it was not meant so")
    archive_before(table, late)
    end(late, group)


def test_a_group_that_others_changed_is_missed_though_what_they_committed_is_archived(
    table: HudiTable, group: str
) -> None:
    planner = writer(table)
    for _ in range(2):
        commit(writer(table), group=group)
    archive(table, *all_of(table)[:-1])
    commit(writer(table))
    archive(table, *all_of(table)[:-1])
    clean(table, group)
    refused_to_begin(planner, {"p1": set()}, f"no file was left of the file group {group}")


def test_two_writers_that_planned_for_an_empty_table_both_begin(table: HudiTable) -> None:
    first, second = begun(writer(table)), Transaction(writer(table), terms())
    end(first)
    second.begin(slots=1, found={"p1": set()})
    end(second)
    assert len(all_of(table)) == 2


@pytest.mark.parametrize("same", [True, False])
def test_a_dead_writers_write_is_held_against_what_is_archived_when_another_commits_it(
    table: HudiTable, group: str, same: bool
) -> None:
    early = begun(writer(table))
    commit(writer(table))
    late = begun(writer(table))
    end(early, group)
    stage(late.table, late, group=group if same else None)
    dead(late)
    archive_before(table, late)
    fate = Fate.ROLLED_BACK if same else Fate.COMMITTED
    assert [one.fate for one in recover(writer(table))] == [fate]


def test_writers_of_one_process_miss_nothing_either(table: HudiTable, group: str) -> None:
    planners = [opened(table) for _ in range(2)]
    table.clock.sleep(1)  # no two writes want the same instant
    for _ in range(2):
        meanwhile = commit(opened(table), group=group)
    clean(table, group)
    archive(table, *all_of(table)[:1])
    table.clock.sleep(1)
    late = Transaction(planners[0], terms())
    late.begin(slots=1)
    refused_at_the_end(late, group, meanwhile)
    table.clock.sleep(1)
    refused_to_begin(planners[1], {"p1": set()}, f"no file was left of the file group {group}")


def test_a_history_that_can_not_be_read_is_a_conflict(table: HudiTable, group: str) -> None:
    planner = writer(table)
    for _ in range(2):
        commit(writer(table), group=group)
    history = Archiver(table.storage)
    history.archive(*all_of(table)[:-1])
    for path in history.files:
        table.storage.delete(path)
    refused_to_begin(planner, {}, "may be archived")


def test_a_commit_that_is_archived_just_before_it_is_read_is_a_conflict_and_no_corruption(
    table: HudiTable, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    planner = writer(table)
    commit(writer(table), group=group)
    real = HudiTable.commit

    def read(table: HudiTable, instant: Instant) -> CommitMetadata:
        take_off_timeline(table.storage, instant)
        return real(table, instant)

    nobody_has_read(monkeypatch)
    monkeypatch.setattr(HudiTable, "commit", read)
    refused_to_begin(planner, {}, "may be archived")


def nobody_has_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has just begun."""
    monkeypatch.setattr("sparkrobust.coordinator.table._commits.get", lambda place: None)


LOOKS: dict[str, Callable[[HudiTable], object]] = {
    "files": lambda table: table.base_files(["p1"]),
    "replaced": HudiTable.replaced,
    "schema": HudiTable.schema_text,
}


@pytest.mark.parametrize("look", LOOKS)
def test_a_commit_that_was_archived_since_a_write_looked_at_the_timeline_is_a_conflict_and_no_corruption(
    table: HudiTable, group: str, monkeypatch: pytest.MonkeyPatch, look: str
) -> None:
    end(begun(writer(table), Action.REPLACE_COMMIT))
    planner = writer(table)
    commit(writer(table))
    archive(table, *all_of(table)[:-1])
    nobody_has_read(monkeypatch)
    with pytest.raises(FileGoneError) as gone:
        LOOKS[look](planner)
    told = overtaken(planner, planner.timeline.completed_times, gone.value)
    assert told is not None and told.outcome == "Conflicted" and "a retry helps" in str(told)
    planner.reload()
    LOOKS[look](planner)


@pytest.mark.parametrize("look", LOOKS)
def test_a_commit_that_is_gone_though_its_instant_is_still_shown_is_corruption(
    table: HudiTable, monkeypatch: pytest.MonkeyPatch, look: str
) -> None:
    made = end(begun(table, Action.REPLACE_COMMIT))
    assert made.done is not None
    table.reload()
    table.storage.delete(instant_file(made.done))
    nobody_has_read(monkeypatch)
    with pytest.raises(CorruptTableError, match="is gone") as corrupt:
        LOOKS[look](table)
    assert not isinstance(corrupt.value, FileGoneError) and corrupt.value.path == instant_file(made.done)


# -- what is gone ------------------------------------------------------------------------------------------


def test_a_file_that_is_gone_is_a_conflict_if_others_have_written_since_and_else_what_it_is(
    table: HudiTable, group: str
) -> None:
    path = f"{group}_0-0-1_20240101000000000.parquet"
    planner, gone = writer(table), FileGoneError("the base file x is gone", path=path)
    seen = planner.timeline.completed_times
    assert overtaken(planner, seen, gone) is None
    commit(writer(table), group=group)
    assert overtaken(planner, seen, FileGoneError("gone", path="p1/other-0_0-0-1_1.parquet")) is None
    told = overtaken(planner, seen, gone)
    assert told is not None and "the base file x is gone" in str(told) and "a retry helps" in str(told)
    assert told.outcome == "Conflicted" and told.path == path
    assert overtaken(planner, seen, FileGoneError("one that Spark told of, without its path")) is not None
