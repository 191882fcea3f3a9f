"""While a write is planned, or runs, others commit; their commits are archived, and files cleaned away."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkrobust.coordinator.planned import overtaken
from sparkrobust.coordinator.recovery import Fate, recover
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.core.instant import Action, Instant, State
from sparkrobust.core.names import instant_file
from sparkrobust.errors import ConflictError, FileGoneError
from tests.coordinator.writers import writer
from tests.coordinator.writes import begun, commit, data_files, dead, leftovers, opened, stage, terms
from tests.histories import Archiver


@pytest.fixture
def group(table: HudiTable) -> str:
    """A file group that the table has, ``partition/id``."""
    path = (commit(table), data_files(table.storage))[1][0]
    return path.partition("_")[0]


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


def test_a_write_does_not_begin_when_what_others_committed_since_it_was_planned_may_be_archived(
    table: HudiTable, group: str
) -> None:
    planner = writer(table)
    for _ in range(2):
        commit(writer(table), group=group)
    archive(table, *all_of(table)[:-1])
    refused_to_begin(planner, {}, "may be archived")


def test_nor_when_one_may_be_that_was_pending_as_it_was_planned(table: HudiTable, group: str) -> None:
    early = begun(writer(table))
    commit(writer(table))
    planner = writer(table)
    end(early, group)
    archive(table, *all_of(table)[:-1])
    refused_to_begin(planner, {}, "may be archived")


def test_two_writers_that_planned_for_an_empty_table_both_begin(table: HudiTable) -> None:
    first, second = begun(writer(table)), Transaction(writer(table), terms())
    end(first)
    second.begin(slots=1, found={"p1": set()})
    end(second)
    assert len(all_of(table)) == 2


@pytest.mark.parametrize("same", [True, False])
def test_what_was_committed_before_a_write_began_is_held_against_it_though_archived_while_it_runs(
    table: HudiTable, group: str, same: bool
) -> None:
    planner = writer(table)
    meanwhile = commit(writer(table), group=group)
    commit(writer(table))
    late = Transaction(planner, terms())
    late.begin(slots=1)
    archive_before(table, late)
    if not same:
        end(late)
        return
    with pytest.raises(ConflictError, match=rf"{meanwhile.time}.* changes 1 file group"):
        end(late, group)
    assert late.abort("it met a conflict") and leftovers(table.storage) == []


def test_a_write_that_was_pending_when_another_began_is_not_forgotten_once_it_is_archived(
    table: HudiTable, group: str
) -> None:
    early = begun(writer(table))
    commit(writer(table))
    late = begun(writer(table))
    end(early, group)
    archive_before(table, late)
    with pytest.raises(ConflictError, match="may be archived"):
        end(late, group)
    assert late.abort("it met a conflict") and leftovers(table.storage) == []


def test_a_long_write_is_committed_when_all_that_was_there_before_it_is_archived(
    table: HudiTable, group: str
) -> None:
    commit(writer(table))
    late = begun(writer(table))
    commit(writer(table))
    archive_before(table, late)
    end(late, group)


def test_a_dead_writers_write_is_rolled_back_when_nobody_can_tell_what_others_did_beside_it(
    table: HudiTable, group: str
) -> None:
    early = begun(writer(table))
    commit(writer(table))
    late = begun(writer(table))
    end(early, group)
    stage(late.table, late, group=group)
    dead(late)
    archive_before(table, late)
    assert [one.fate for one in recover(writer(table))] == [Fate.ROLLED_BACK]


def test_a_commit_that_is_archived_just_before_it_is_read_is_a_conflict_and_no_corruption(
    table: HudiTable, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    planner = writer(table)
    commit(writer(table), group=group)
    real = HudiTable.keep_commit

    def keep(table: HudiTable, instant: Instant) -> None:
        for state in (State.REQUESTED, State.INFLIGHT, State.COMPLETED):
            table.storage.delete(instant_file(replace(instant, state=state)))
        real(table, instant)

    # Nobody in this process has read it.
    monkeypatch.setattr("sparkrobust.coordinator.table._commits.get", lambda place: None)
    monkeypatch.setattr(HudiTable, "keep_commit", keep)
    refused_to_begin(planner, {}, "may be archived")


# -- what is gone ------------------------------------------------------------------------------------------


def test_a_file_that_is_gone_is_a_conflict_if_others_have_written_since_and_else_what_it_is(
    table: HudiTable, group: str
) -> None:
    planner, gone = writer(table), FileGoneError("the base file x is gone", path="x")
    seen = planner.timeline.completed_times
    assert overtaken(planner, seen, gone) is None
    commit(writer(table), group=group)
    told = overtaken(planner, seen, gone)
    assert told is not None and "the base file x is gone" in str(told) and "a retry helps" in str(told)
    assert told.outcome == "Conflicted" and told.path == "x"
