"""Who stands in whose way among several writers (RFC-71)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkrobust.coordinator.conflicts import Plan, refuse_conflicts
from sparkrobust.coordinator.recovery import Fate, recover
from sparkrobust.coordinator.rollback import roll_back_failed_writes
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.times import next_time
from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.core.conflicts import NOTHING, Strategy
from sparkrobust.core.instant import Action, Instant, InstantTime, State
from sparkrobust.core.names import WRITER, ControlFolder, instant_file
from sparkrobust.core.write_status import OperationType, WriteStat
from sparkrobust.errors import ConflictError, CorruptTableError
from sparkrobust.formats.commit_metadata import CommitMetadata, ReplaceCommitMetadata
from sparkrobust.storage.local import LocalStorage
from tests.coordinator.writers import clustering, compaction, writer
from tests.coordinator.writes import begun, commit, data_files, dead, leftovers, stage, terms


def versions(table: HudiTable, group: str) -> int:
    return sum(path.startswith(group) for path in data_files(table.storage))


# -- conflicts with what was completed ---------------------------------------------------------------------


@pytest.mark.parametrize("strategy", Strategy)
def test_of_two_writes_that_change_a_file_group_the_second_is_refused_and_told_all_about_it(
    table: HudiTable, group: str, strategy: Strategy
) -> None:
    ours, theirs = writer(table, strategy=strategy), writer(table)
    late = begun(ours)
    stage(ours, late, group=group)
    early = Transaction(theirs, terms(extra={WRITER: "nightly (app-7) on elsewhere"}))
    early.begin(slots=1)
    stage(theirs, early, group=group)
    early.commit(early.finalize(1))
    with pytest.raises(ConflictError) as refused:
        late.commit(late.finalize(1))
    told = str(refused.value)
    assert refused.value.outcome == "Conflicted" and refused.value.kind == "conflict"
    for part in (late.time, early.time, "insert by nightly (app-7) on elsewhere", group, "a retry helps"):
        assert part in told + str(refused.value.hint)
    assert late.abort("it met a conflict") is True
    early.clean_up()
    assert versions(table, group) == 2 and leftovers(table.storage) == []


@pytest.mark.parametrize("strategy", Strategy)
def test_a_write_that_was_pending_when_another_was_planned_stands_in_its_way_once_it_is_completed(
    table: HudiTable, group: str, strategy: Strategy
) -> None:
    ours, theirs = writer(table, strategy=strategy), writer(table)
    early = begun(theirs)
    late = begun(writer(table, strategy=strategy))
    stage(theirs, early, group=group)
    stage(ours, late, group=group)
    early.commit(early.finalize(1))
    with pytest.raises(ConflictError, match=early.time):
        late.commit(late.finalize(1))


def test_writes_of_different_file_groups_are_all_committed_whatever_their_order(
    table: HudiTable, group: str
) -> None:
    writers = [writer(table) for _ in range(3)]
    writes = [begun(one) for one in writers]
    for number, (one, write) in enumerate(zip(writers, writes, strict=True)):
        stage(one, write, group=group if number == 0 else None)
    for write in reversed(writes):
        write.commit(write.finalize(1))
        write.clean_up()
    assert len(writer(table).timeline.completed_writes) == 4 and leftovers(table.storage) == []
    assert len(writer(table).base_files()) == 3


def test_all_conflicts_are_told_and_not_only_the_first(table: HudiTable, group: str) -> None:
    ours = writer(table)
    late = begun(ours)
    stage(ours, late, group=group)
    others = [commit(writer(table), group=group).time for _ in range(2)]
    with pytest.raises(ConflictError) as refused:
        late.commit(late.finalize(1))
    assert all(other in str(refused.value) for other in others)


def test_a_table_that_is_replaced_conflicts_with_every_write_that_came_between(table: HudiTable) -> None:
    commit(table)
    ours = writer(table)
    late = begun(ours, Action.REPLACE_COMMIT)
    stage(ours, late)
    other = commit(writer(table))
    with pytest.raises(ConflictError, match=f"{other.time} .*changes the table"):
        late.commit(late.finalize(1))


def test_a_write_that_is_committed_from_its_markers_is_held_against_what_came_since_it_was_planned(
    table: HudiTable, group: str
) -> None:
    # Its driver planned it, another write was completed, and only then it took its instant.
    planner = writer(table)
    planned = Transaction(planner, terms())
    other = commit(writer(table), group=group)
    planned.begin(slots=1)
    assert planned.time > other.done.completion
    stage(planner, planned, group=group)
    dead(planned)
    (found,) = recover(writer(table))
    assert (found.instant, found.fate) == (planned.time, Fate.ROLLED_BACK)
    assert versions(table, group) == 2


def test_a_write_that_is_committed_from_its_markers_ignores_what_its_driver_knew(
    table: HudiTable, group: str
) -> None:
    known = writer(table)
    commit(known, group=group)
    write = begun(writer(table))
    stage(known, write, group=group)
    dead(write)
    assert [one.fate for one in recover(writer(table))] == [Fate.COMMITTED]
    assert versions(table, group) == 3


def test_a_write_that_others_completed_under_an_older_time_is_found_all_the_same(
    table: HudiTable, group: str
) -> None:
    # Of a host whose clock is behind, and which has no lock in common with us.
    ours = writer(table)
    late = begun(ours)
    stage(ours, late, group=group)
    stranger = Instant(
        time=InstantTime("20200101000000000"),
        action=Action.COMMIT,
        state=State.COMPLETED,
        completion=InstantTime("20200101000001000"),
    )
    stat = WriteStat(file_id=group.rpartition("/")[2], path=None, partition_path="p1")
    metadata = CommitMetadata(partition_to_write_stats={"p1": (stat,)}, operation_type=OperationType.UPSERT)
    table.storage.put_if_absent(instant_file(stranger), metadata.to_bytes())
    with pytest.raises(ConflictError, match="upsert"):
        late.commit(late.finalize(1))


# -- the same new key --------------------------------------------------------------------------------------


def test_of_two_writes_that_insert_one_new_key_the_second_is_refused(table: HudiTable) -> None:
    ours = writer(table)
    late = begun(ours)
    stage(ours, late, keys=["a", "b"])
    other = commit(writer(table), keys=["b", "c"])
    with pytest.raises(
        ConflictError, match=f"{other.time} .*inserted 1 of the keys that it inserts too"
    ) as no:
        late.commit(late.finalize(1))
    assert no.value.outcome == "Conflicted" and "a retry helps" in str(no.value.hint)
    assert late.abort("it met a conflict") is True and leftovers(table.storage) == []


@pytest.mark.usefixtures("group")
def test_it_is_noticed_too_if_the_other_comes_between_the_first_look_and_the_lock(table: HudiTable) -> None:
    ours = writer(table)
    late = begun(ours)
    stage(ours, late, keys=["a"])
    markers = late.finalize(1)
    take, others = ours.coordination.lock.try_acquire, []

    def after_others(owner: str, nonce: str) -> Any:
        if not others:
            others.append(commit(writer(table), keys=["a"]))
        return take(owner, nonce)

    ours.coordination.lock.try_acquire = after_others  # type: ignore[method-assign]
    with pytest.raises(ConflictError, match="inserted 1 of the keys"):
        late.commit(markers)
    assert len(others) == 1


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize(
    ("partition", "keys"),
    [("p2", ["a"]), ("p1", ["b"]), ("p1", ["carried over"])],
    ids=["in another partition", "another key", "a key that was carried over"],
)
def test_other_keys_are_no_conflict(table: HudiTable, partition: str, keys: list[str]) -> None:
    ours = writer(table)
    late = begun(ours)
    stage(ours, late, keys=keys)
    commit(writer(table), partition, keys=["a"])
    late.commit(late.finalize(1))
    assert len(data_files(table.storage)) == 3


def test_who_inserted_a_key_before_is_in_nobodys_way(table: HudiTable) -> None:
    commit(table, keys=["a"])
    ours = writer(table)
    late = begun(ours)
    stage(ours, late, keys=["a"])
    late.commit(late.finalize(1))


def test_a_dead_writers_new_keys_are_looked_at_when_its_write_is_recovered(table: HudiTable) -> None:
    gone = begun(writer(table))
    stage(table, gone, keys=["a"])
    dead(gone)
    commit(writer(table), keys=["a"])
    assert [one.fate for one in recover(writer(table))] == [Fate.ROLLED_BACK]


def test_files_of_another_writer_that_are_gone_already_are_a_conflict_and_not_a_guess(
    table: HudiTable,
) -> None:
    ours = writer(table)
    late = begun(ours)
    stage(ours, late, keys=["a"])
    commit(writer(table), keys=["b"])
    table.storage.delete(data_files(table.storage)[0])
    with pytest.raises(ConflictError, match="cleaned since"):
        late.commit(late.finalize(1))


def test_two_writers_that_each_make_a_file_group_for_one_bucket_conflict(hudi_tables: Path) -> None:
    """Of the real Hudi's bucket index: nothing but the ids of its file groups tells of it."""
    theirs = HudiTable.open(LocalStorage(str(hudi_tables / "cow_bucket_index")))
    folder = ControlFolder(instant=InstantTime("99990101000000000"), nonce="0" * 16)
    told = set()
    for base in theirs.base_files():
        bucket, _, _ = base.file_id.partition("-")
        mine = (base.partition, f"{bucket}-2d67-4f22-9a21-e38d0456cb52-0")
        with pytest.raises(ConflictError, match=mine[1]) as refused:
            refuse_conflicts(theirs, Plan(folder=folder, groups=frozenset({mine}), begun=NOTHING))
        told.add(str(refused.value))
        elsewhere = ("another partition", mine[1])
        refuse_conflicts(theirs, Plan(folder=folder, groups=frozenset({elsewhere}), begun=NOTHING))
    assert len(told) > 1


# -- conflicts with what is pending ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schedule",
    [
        clustering,
        lambda table, group: compaction(table, group, Action.COMPACTION),
        lambda table, group: compaction(table, group, Action.LOG_COMPACTION),
    ],
    ids=["clustering", "compaction", "log compaction"],
)
def test_a_table_service_that_was_scheduled_while_a_write_ran_stands_in_the_way_of_its_file_groups(
    table: HudiTable, group: str, schedule: Callable[[HudiTable, str], Instant]
) -> None:
    ours = writer(table)
    changing, adding = begun(ours), begun(writer(table))
    stage(ours, changing, group=group)
    stage(ours, adding)
    service = schedule(table, group)
    with pytest.raises(ConflictError, match=f"{service.time}.*a pending {service.action.value}") as refused:
        changing.commit(changing.finalize(1))
    assert refused.value.kind == "conflict-with-service"
    assert "completed or rolled back" in str(refused.value.hint)
    adding.commit(adding.finalize(1))


@pytest.mark.parametrize("completed", [True, False], ids=["completed", "rolled back"])
def test_a_table_service_that_ends_while_it_is_looked_at_stands_in_the_way_if_it_was_completed(
    table: HudiTable, group: str, *, completed: bool
) -> None:
    ours = writer(table)
    late = begun(ours)
    stage(ours, late, group=group)
    service = clustering(table, group, inflight=True)
    markers = late.finalize(1)
    end = completed_with(table, service, group) if completed else lambda: None
    _ends_when_its_plan_is_read(table, service, end)
    if not completed:
        late.commit(markers)
        return
    with pytest.raises(ConflictError, match=service.time) as refused:
        late.commit(markers)
    assert refused.value.kind == "conflict", "a retry gets past it"


def completed_with(table: HudiTable, service: Instant, group: str) -> Callable[[], None]:
    """A clustering's last step: it has replaced the file group."""
    partition, _, file_id = group.rpartition("/")
    replaced = ReplaceCommitMetadata(
        partition_to_replace_file_ids={partition: (file_id,)}, operation_type=OperationType.CLUSTER
    )
    time = next_time(table.clock, table.config, service.time)
    done = replace(service, state=State.COMPLETED, completion=time)
    return lambda: table.storage.put_if_absent(instant_file(done), replaced.to_bytes())


def _ends_when_its_plan_is_read(table: HudiTable, service: Instant, end: Callable[[], None]) -> None:
    """Another writer ends a table service, and takes its files away, right before we read its plan."""
    files = [instant_file(replace(service, state=state)) for state in (State.INFLIGHT, State.REQUESTED)]
    todo, read = [end], table.storage.read

    def reads(path: str, **how: Any) -> bytes:
        if path == files[1] and todo:
            todo.pop()()
            for file in files:
                table.storage.delete(file)
        return read(path, **how)

    table.storage.read = reads  # type: ignore[method-assign]


def test_the_plan_of_a_service_that_ended_since_the_timeline_was_seen_names_nothing_and_fails_nobody(
    table: HudiTable, group: str
) -> None:
    service = clustering(table, group)
    ours = writer(table)
    seen = ours.timeline
    table.storage.delete(instant_file(service))
    assert ours.file_ids_in_services() == {} and ours.timeline is seen
    assert roll_back_failed_writes(ours) == []


def test_the_plan_of_a_service_that_is_pending_still_is_missed(table: HudiTable, group: str) -> None:
    service = clustering(table, group, inflight=True)
    table.storage.delete(instant_file(replace(service, state=State.REQUESTED)))
    with pytest.raises(CorruptTableError, match="is gone"):
        writer(table).file_ids_in_services()


def test_a_pending_write_stands_in_nobodys_way_when_he_commits(table: HudiTable, group: str) -> None:
    first, second = writer(table), writer(table)
    early, late = begun_with_workload(first, group), begun_with_workload(second, group)
    stage(second, late, group=group)
    late.commit(late.finalize(1))
    assert early.time < late.time


def begun_with_workload(table: HudiTable, group: str) -> Transaction:
    """A write that says in its inflight file what it is going to change."""
    partition, _, file_id = group.rpartition("/")
    stat = WriteStat(file_id=file_id, path=None, partition_path=partition)
    workload = CommitMetadata(
        partition_to_write_stats={partition: (stat,)}, operation_type=OperationType.UPSERT
    )
    transaction = Transaction(table, terms())
    transaction.begin(slots=1, inflight=workload.to_bytes())
    return transaction


def in_groups(group: str) -> list[tuple[str, str]]:
    partition, _, file_id = group.rpartition("/")
    return [(partition, file_id)]


def test_of_two_running_writes_the_later_one_learns_early_that_it_is_to_give_way(
    table: HudiTable, group: str
) -> None:
    first, second = (begun_with_workload(writer(table), group) for _ in range(2))
    first.refuse_conflicts_early(in_groups(group))
    with pytest.raises(ConflictError, match=first.time):
        second.refuse_conflicts_early(in_groups(group))
    second.refuse_conflicts_early([("p1", "another group")])


def test_a_dead_write_and_one_that_says_nothing_stand_in_nobodys_way_early(
    table: HudiTable, group: str
) -> None:
    dead(begun_with_workload(writer(table), group))
    begun(writer(table))  # as a bulk insert: its inflight file is empty
    begun_with_workload(writer(table), group).refuse_conflicts_early(in_groups(group))


def test_what_was_completed_meanwhile_is_told_early_too(table: HudiTable, group: str) -> None:
    late = begun_with_workload(writer(table), group)
    other = commit(writer(table), group=group)
    with pytest.raises(ConflictError, match=other.time):
        late.refuse_conflicts_early(in_groups(group))
