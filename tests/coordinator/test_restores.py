"""What we leave alone while another writer restores the table to an earlier state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from sparkrobust import probe
from sparkrobust.coordinator.recovery import recover
from sparkrobust.coordinator.rollback import roll_back_failed_writes
from sparkrobust.coordinator.services import executing
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.instant import Action, Instant, State
from sparkrobust.core.names import TIMELINE
from sparkrobust.errors import ConflictError
from sparkrobust.options import FailedWritesPolicy
from sparkrobust.probe import Point
from tests.coordinator.writers import clustering, end_restore, restore, rollback_of, writer
from tests.coordinator.writes import begun, commit, data_files, dead, leftovers, stage, stopped
from tests.moments import at


@contextmanager
def refused(restoring: Instant) -> Iterator[None]:
    """In the block the restore is named, and what helps."""
    with pytest.raises(ConflictError, match="is being restored") as told:
        yield
    assert told.value.instant == restoring.time and told.value.kind == "conflict-with-service"
    assert "restore it with Hudi to the same savepoint again" in str(told.value.hint)


@pytest.mark.parametrize("policy", FailedWritesPolicy)
@pytest.mark.parametrize("inflight", [False, True], ids=["requested", "inflight"])
@pytest.mark.parametrize("end", [roll_back_failed_writes, recover])
def test_while_a_table_is_restored_no_write_is_ended_and_the_restores_own_rollbacks_stay(
    table: HudiTable, end: Callable[[HudiTable], object], policy: FailedWritesPolicy, *, inflight: bool
) -> None:
    done, _ = commit(table).done, stopped(table, "finalized")
    restoring = restore(writer(table), inflight=inflight)
    assert done is not None
    rollback_of(table, done)
    before = table.storage.names(TIMELINE), leftovers(table.storage), data_files(table.storage)
    with refused(restoring):
        end(writer(table, failed_writes=policy))
    assert (table.storage.names(TIMELINE), leftovers(table.storage), data_files(table.storage)) == before


def test_a_write_does_not_commit_while_the_table_is_restored_and_is_undone_after_it(table: HudiTable) -> None:
    ours = writer(table)
    write = begun(ours)
    stage(ours, write)
    restoring = restore(writer(table))
    with refused(restoring):
        write.commit(write.finalize(1))
    assert write.abort("the table was being restored") is True
    dead(write)
    end_restore(table, restoring)
    assert [one.time for one in roll_back_failed_writes(writer(table))] == [write.time]
    assert data_files(table.storage) == [] and leftovers(table.storage) == []


def test_who_looks_early_learns_early_that_the_table_is_restored(table: HudiTable) -> None:
    write = begun(writer(table))
    with refused(restore(writer(table))):
        write.refuse_conflicts_early([])


def test_no_rollback_is_planned_and_none_carried_out_once_a_restore_has_begun(table: HudiTable) -> None:
    stopped(table, "staged")
    early = writer(table)
    with refused(restore(writer(table))):
        roll_back_failed_writes(early)
    assert not [one for one in writer(table).timeline.pending if one.action is Action.ROLLBACK]


def test_a_rollback_that_is_planned_is_not_carried_out_once_a_restore_has_begun(table: HudiTable) -> None:
    gone = stopped(writer(table), "staged")
    begins: list[Instant] = []
    with (
        probe.listening(at(Point.ABORT_DECIDED, lambda: begins.append(restore(writer(table))))),
        pytest.raises(ConflictError, match="is being restored"),
    ):
        roll_back_failed_writes(writer(table))
    after = writer(table).timeline
    assert [one.state for one in after.pending if one.action is Action.ROLLBACK] == [State.REQUESTED]
    end_restore(table, begins[0])
    assert [one.time for one in roll_back_failed_writes(writer(table))] == [gone.time]


def test_no_plan_of_a_table_service_is_executed_while_the_table_is_restored(table: HudiTable) -> None:
    plan = clustering(table)
    with refused(restore(writer(table))):
        executing(writer(table), plan).__enter__()
