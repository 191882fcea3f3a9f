"""A write is made for the table as it was when it was planned, and for no other one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from fault_injection.histories import take_off_timeline
from sparkrobust.coordinator.recovery import Fate, recover
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.core.instant import Action, Instant, InstantTime, State
from sparkrobust.core.names import instant_file
from sparkrobust.errors import ConflictError
from sparkrobust.formats.rollback import InstantInfo, RollbackMetadata, RollbackPlan
from tests.coordinator.writers import writer
from tests.coordinator.writes import SCHEMA, data_files, dead, leftovers, stage, terms


def schema(*columns: str, kind: str = "int") -> str:
    fields = [{"name": name, "type": ["null", kind], "default": None} for name in columns]
    return json.dumps({**json.loads(SCHEMA), "fields": fields})


def planned(table: HudiTable, columns: str, *, action: Action = Action.COMMIT, **more: object) -> Transaction:
    """A write of these columns that has begun."""
    made = replace(terms(action), schema=columns, **more)  # type: ignore[arg-type]
    transaction = Transaction(table, made)
    transaction.begin(slots=1)
    return transaction


def end(transaction: Transaction, *, group: str | None = None, base: str = "") -> None:
    stage(transaction.table, transaction, group=group, base=base)
    transaction.commit(transaction.finalize(1))
    transaction.leave()
    transaction.clean_up()


def refused(transaction: Transaction, why: str) -> None:
    with pytest.raises(ConflictError, match=why) as error:
        end(transaction)
    assert error.value.outcome == "Conflicted" and "a retry helps" in str(error.value.hint)
    assert transaction.abort("it met a conflict")


def columns_of(table: HudiTable) -> Sequence[str]:
    table.reload()
    found = table.schema()
    return found.arrow.names if found else []


# -- columns -----------------------------------------------------------------------------------------------


def test_a_column_that_another_write_adds_meanwhile_is_not_taken_away_again(table: HudiTable) -> None:
    end(planned(table, schema("a")))
    late = planned(writer(table), schema("a"))
    end(planned(writer(table), schema("a", "c")))
    refused(late, "other columns by now")
    assert columns_of(table) == ["a", "c"] and leftovers(table.storage) == []


def test_a_type_that_another_write_widens_meanwhile_stays_wide(table: HudiTable) -> None:
    end(planned(table, schema("a")))
    late = planned(writer(table), schema("a"))
    end(planned(writer(table), schema("a", kind="long")))
    refused(late, "other columns by now")


def test_columns_that_two_writes_add_to_the_same_table_are_both_there_after_a_retry(table: HudiTable) -> None:
    end(planned(table, schema("a")))
    late = planned(writer(table), schema("a", "b"))
    end(planned(writer(table), schema("a", "c")))
    refused(late, "other columns by now")
    end(planned(writer(table), schema("a", "b", "c")))
    assert columns_of(table) == ["a", "b", "c"]


def test_writes_that_add_the_same_column_or_the_first_ones_of_all_do_not_hinder_each_other(
    table: HudiTable,
) -> None:
    for columns in (schema("a"), schema("a", "c")):
        first, second = (planned(writer(table), columns) for _ in range(2))
        end(first)
        end(second)
    assert columns_of(table) == ["a", "c"]


def test_a_write_that_adds_a_column_goes_past_an_older_one_of_the_columns_before(table: HudiTable) -> None:
    end(planned(table, schema("a")))
    old = planned(writer(table), schema("a"))
    adds = planned(writer(table), schema("a", "c"))
    end(old)
    end(adds)
    assert columns_of(table) == ["a", "c"]


def test_a_write_that_adds_a_column_is_made_again_after_a_newer_one_whose_columns_would_count(
    table: HudiTable,
) -> None:
    end(planned(table, schema("a")))
    adds = planned(writer(table), schema("a", "c"))
    end(planned(writer(table), schema("a")))
    refused(adds, "is newer, and has not the columns")


def test_the_same_columns_written_down_otherwise_are_the_same(table: HudiTable) -> None:
    end(planned(table, schema("a")))
    late = planned(writer(table), schema("a"))
    end(planned(writer(table), json.dumps(json.loads(schema("a")) | {"name": "another_record"})))
    end(late)


def test_a_dead_writers_complete_write_does_not_take_a_column_away_when_it_is_recovered(
    table: HudiTable,
) -> None:
    end(planned(table, schema("a")))
    late = planned(writer(table), schema("a"))
    stage(table, late)
    dead(late)
    end(planned(writer(table), schema("a", "c")))
    assert [one.fate for one in recover(writer(table))] == [Fate.ROLLED_BACK]
    assert columns_of(table) == ["a", "c"]


# -- keys and partitions -----------------------------------------------------------------------------------


def overwritten(table: HudiTable) -> None:
    """Another writer replaces the table by one with another key."""
    properties = {**table.config.values, "hoodie.table.recordkey.fields": "sku"}
    end(planned(table, schema("sku"), action=Action.REPLACE_COMMIT, new_properties=properties))


def test_a_write_that_was_planned_for_other_keys_does_not_get_into_the_table_that_replaced_its_own(
    table: HudiTable,
) -> None:
    end(planned(table, schema("a")))
    late = planned(writer(table), schema("a"))
    overwritten(writer(table))
    refused(late, "other keys, partitions or ordering fields")
    table.reload_config()
    assert table.config.key_fields == ("sku",) and columns_of(table) == ["sku"]


def test_nor_does_it_when_it_is_recovered(table: HudiTable) -> None:
    end(planned(table, schema("a")))
    late = planned(writer(table), schema("a"))
    stage(table, late)
    dead(late)
    overwritten(writer(table))
    assert [one.fate for one in recover(writer(table))] == [Fate.ROLLED_BACK]
    assert columns_of(table) == ["sku"]


# -- what was taken back -----------------------------------------------------------------------------------


def taken_back(table: HudiTable, write: Transaction) -> None:
    """What Hudi leaves of a completed commit that somebody has rolled back."""
    table.reload()
    done = table.timeline.find(write.time, Action.COMMIT)
    assert done is not None
    for path in data_files(table.storage):
        if write.time in path:
            table.storage.delete(path)
    for state in (State.COMPLETED, State.INFLIGHT, State.REQUESTED):
        table.storage.delete(instant_file(replace(done, state=state)))
    plan = RollbackPlan(instant_to_rollback=InstantInfo(commit_time=write.time, action="commit"))
    time = InstantTime(str(int(table.timeline.newest_time) + 1))
    metadata = RollbackMetadata.of_plan(plan, rollback_instant=time, time_taken_in_millis=1)
    rolled_back = Instant(time=time, action=Action.ROLLBACK, state=State.COMPLETED, completion=time)
    table.storage.put_if_absent(instant_file(rolled_back), metadata.to_bytes())


def test_rows_of_a_commit_that_is_rolled_back_do_not_come_back_by_a_write_that_had_seen_them(
    table: HudiTable,
) -> None:
    end(planned(table, schema("a")))
    regretted = planned(table, schema("a"))
    end(regretted)
    table.reload()
    late = planned(writer(table), schema("a"))
    taken_back(table, regretted)
    refused(late, f"{regretted.time}, which it was planned from, was rolled back")


def test_nor_by_one_that_is_recovered_and_was_made_from_its_file(table: HudiTable) -> None:
    end(planned(table, schema("a")))
    regretted = planned(table, schema("a"))
    end(regretted)
    (base,) = (path for path in data_files(table.storage) if regretted.time in path)
    table.reload()
    late = planned(writer(table), schema("a"))
    stage(table, late, group=base.partition("_")[0], base=base.rpartition("/")[2])
    dead(late)
    taken_back(table, regretted)
    assert [one.fate for one in recover(writer(table))] == [Fate.ROLLED_BACK]


def test_what_was_archived_meanwhile_was_not_taken_back(table: HudiTable) -> None:
    old = planned(table, schema("a"))
    end(old)
    end(planned(table, schema("a")))
    table.reload()
    late = planned(writer(table), schema("a"))
    done = table.timeline.find(old.time, Action.COMMIT)
    assert done is not None
    take_off_timeline(table.storage, done)
    end(late)
