"""Slots, file ids, and where rows go: decided once, on the driver, whatever Spark does later."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparkrobust.core.file_ids import SizeLimits, Slot, prefix_of, spread_inserts
from sparkrobust.core.instant import InstantTime
from sparkrobust.core.names import BaseFileName
from sparkrobust.core.placement import pack, spark_hash, targets
from sparkrobust.core.view import BaseFile


def base(name: str, size: int) -> BaseFile:
    parsed = BaseFileName(file_id=name, write_token="0-0-0", instant=InstantTime("1"))
    return BaseFile(partition="p", name=parsed, size=size)


def limits(record_bytes: int = 10, small: int = 500) -> SizeLimits:
    return SizeLimits(max_file_bytes=1000, small_file_bytes=small, record_bytes=record_bytes)


@given(
    st.integers(0, 5000),
    st.lists(st.integers(0, 1200), max_size=6),
    st.integers(1, 2000),
    st.integers(0, 1000),
)
def test_every_insert_finds_a_place_and_no_file_is_planned_beyond_its_size(
    count: int, sizes: list[int], record_bytes: int, small: int
) -> None:
    files = [base(f"f{i}", size) for i, size in enumerate(sizes)]
    bounds = limits(record_bytes, small)
    fill, new = spread_inserts(count, files, bounds)
    assert sum(rows for _, rows in fill) + sum(new) == count
    assert all(rows > 0 for _, rows in fill) and all(rows > 0 for rows in new)
    assert all(file.size < small and file.size + rows * record_bytes <= 1000 for file, rows in fill)
    assert all(rows <= bounds.records_per_file for rows in new)
    assert max(new, default=0) - min(new, default=0) <= 1


def test_small_files_are_filled_before_new_ones_are_made_the_smallest_first() -> None:
    fill, new = spread_inserts(120, [base("b", 400), base("a", 100), base("big", 600)], limits())
    assert [(file.file_id, rows) for file, rows in fill] == [("a", 90), ("b", 30)]
    assert new == []


def test_room_for_one_row_is_taken_and_a_row_has_one_byte_at_least() -> None:
    small = base("a", 990)
    roomy = SizeLimits(max_file_bytes=1000, small_file_bytes=1000, record_bytes=10)
    assert spread_inserts(3, [small], roomy) == ([(small, 1)], [2])
    assert spread_inserts(1, [small], roomy) == ([(small, 1)], [])
    for unknown in (0, 1):
        limits = SizeLimits(max_file_bytes=1000, small_file_bytes=1000, record_bytes=unknown)
        assert limits.records_per_file == 1000
        assert spread_inserts(12, [small], limits) == ([(small, 10)], [2])


def test_the_last_row_goes_on_into_the_next_small_file() -> None:
    files = [base("a", 400), base("b", 400)]
    tight = SizeLimits(max_file_bytes=500, small_file_bytes=450, record_bytes=100)
    assert spread_inserts(2, files, tight) == ([(files[0], 1), (files[1], 1)], [])


def test_a_said_number_of_rows_a_file_wins_over_the_sizes() -> None:
    said = SizeLimits(max_file_bytes=1000, small_file_bytes=0, record_bytes=1, records_per_new_file=3)
    assert spread_inserts(7, [], said)[1] == [3, 2, 2]


def test_a_task_that_runs_twice_gets_the_same_prefix_and_another_task_another() -> None:
    seed = str(uuid.UUID(int=5))
    assert prefix_of(seed, 3) == prefix_of(seed, 3) != prefix_of(seed, 4)
    assert uuid.UUID(prefix_of(seed, 3))
    assert prefix_of(str(uuid.UUID(int=6)), 3) != prefix_of(seed, 3)


def test_a_new_groups_files_are_numbered_and_an_existing_group_keeps_its_id() -> None:
    new = Slot(index=0, partition="p", prefix="u")
    assert [new.file_id(n) for n in range(3)] == ["u-0", "u-1", "u-2"]
    old = Slot(index=0, partition="p", base=base("u-0", 1), prefix="u-0")
    assert old.file_id(0) == old.file_id(1) == "u-0"


@pytest.mark.parametrize(
    ("value", "hashed"), [(0, 933211791), (1, -559580957), (2, 1765031574), (100, 751823303)]
)
def test_the_hash_of_an_integer_is_sparks(value: int, hashed: int) -> None:
    assert spark_hash(value) == hashed  # as `select hash(0), …` answers


@pytest.mark.parametrize("tasks", [1, 2, 3, 7, 64, 500])
def test_every_task_has_a_number_that_brings_rows_to_it(tasks: int) -> None:
    assert [spark_hash(target) % tasks for target in targets(tasks)] == list(range(tasks))


@given(st.lists(st.integers(0, 200), max_size=300), st.integers(1, 40), st.integers(1, 100))
@example([0, 0], 1, 1)  # slots of which nothing is known
def test_slots_share_a_task_only_while_small_and_tasks_are_numbered_without_gaps(
    weights: list[int], wanted: int, small: int
) -> None:
    placed = pack(weights, wanted, small)
    assert sorted(set(placed)) == list(range(len(set(placed))))
    assert placed == sorted(placed)
    if len(weights) <= wanted:
        assert len(set(placed)) == len(weights)
    for task in set(placed):
        mine = [weight for weight, at in zip(weights, placed, strict=True) if at == task]
        assert len(mine) == 1 or sum(mine) <= small
        assert len(mine) <= 64
