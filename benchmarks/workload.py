"""How large each part of the benchmark is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Sizes of one run; ``FULL`` is the one whose figures are published."""

    name: str
    rows: int
    partitions: int
    source_files: int
    one_row_commits: int
    few_instants: int
    many_instants: int
    active_instants: tuple[int, ...]
    few_files: int
    many_files: int
    planned_files: int
    big_file_rows: int
    small_files: int
    commits_of_a_writer: int
    few_slots: int
    many_slots: int
    spread_share: float = 0.05
    one_partition_share: float = 0.05
    delete_share: float = 0.01


FULL = Workload(
    name="full",
    rows=2_000_000,
    partitions=8,
    source_files=8,
    one_row_commits=15,
    few_instants=10,
    many_instants=1_000,
    active_instants=(10, 1_000, 10_000),
    few_files=10,
    many_files=1_000,
    planned_files=10_000,
    big_file_rows=6_200_000,
    small_files=2_000,
    commits_of_a_writer=5,
    few_slots=1_000,
    many_slots=10_000,
)

QUICK = Workload(
    name="quick",
    rows=40_000,
    partitions=4,
    source_files=4,
    one_row_commits=4,
    few_instants=5,
    many_instants=20,
    active_instants=(10, 100),
    few_files=5,
    many_files=40,
    planned_files=200,
    big_file_rows=150_000,
    small_files=40,
    commits_of_a_writer=2,
    few_slots=50,
    many_slots=200,
)
