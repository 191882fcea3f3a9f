"""Hudi's writers and ours write one table at the same time, with the options of ``docs/beside-hudi.md``."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sparkrobust import probe
from sparkrobust.errors import ConflictError
from sparkrobust.probe import Point
from tests.interop.oracle import Oracle
from tests.interop.tables import completed, options, ordered, pending, query, row
from tests.moments import at
from tests.spark.test_cleaned_meanwhile import while_gathering

PAGE = Path(__file__).parents[2] / "docs" / "beside-hudi.md"
ROUNDS = 3


@pytest.fixture(scope="module")
def both() -> dict[str, str]:
    """The page's options, which every writer has."""
    (block,) = re.findall(r"```properties\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return options(**dict(line.split("=", 1) for line in block.splitlines()))


def test_writers_of_both_kinds_write_at_once_and_every_row_is_there_once(
    hudi: Oracle, ours: Any, table: Path, both: dict[str, str]
) -> None:
    ours.write(table, query([row(1, "eu"), row(2, "us"), row(3, "asia")]), both)

    def write(writer: Any, region: str, first: int) -> None:
        for turn in range(1, ROUNDS + 1):
            # A row of one's own that was there, one that is new, and one that both kinds fight for.
            rows = [row(first, region, ts=10 + turn), row(10 * turn + first, region)]
            writer.write(table, query([*rows, row(3, "asia", ts=100 * turn + first)]), both)

    with ThreadPoolExecutor(2) as threads:
        writing = [threads.submit(write, ours, "eu", 1), threads.submit(write, hudi, "us", 2)]
        for one in writing:
            one.result()
    wanted = [row(1, "eu", ts=10 + ROUNDS), row(2, "us", ts=10 + ROUNDS), row(3, "asia", ts=100 * ROUNDS + 2)]
    turns = range(1, ROUNDS + 1)
    wanted += [row(10 * turn + first, part) for turn in turns for first, part in ((1, "eu"), (2, "us"))]
    assert ordered(hudi.read(table)) == ordered(ours.read(table)) == ordered(wanted)
    assert len(completed(table, "commit")) == 1 + 2 * ROUNDS and not pending(table)


def test_a_write_of_hudis_that_came_between_is_told_by_its_instant_and_file_group(
    hudi: Oracle, ours: Any, table: Path, both: dict[str, str]
) -> None:
    ours.write(table, query([row(1), row(2)]), both)
    between = at(Point.STAGE_ENDED, lambda: hudi.write(table, query([row(1, ts=20)]), both))
    strict = {**both, "hoodie.write.num.retries.on.conflict.failures": "0"}
    with probe.listening(between), pytest.raises(ConflictError, match="upsert, changes 1 file group") as no:
        ours.write(table, query([row(1, ts=15), row(2, ts=15)]), strict)
    assert completed(table, "commit")[-1].requested in str(no.value)
    assert ordered(hudi.read(table)) == ordered([row(1, ts=20), row(2)])


def test_a_new_key_that_hudi_inserted_meanwhile_is_in_the_table_once(
    hudi: Oracle, ours: Any, table: Path, both: dict[str, str]
) -> None:
    ours.write(table, query([row(1)]), both)
    between = at(Point.STAGE_ENDED, lambda: hudi.write(table, query([row(5, "us", ts=11)]), both))
    with probe.listening(between):
        result = ours.write(table, query([row(5, "us", ts=12)]), both)
    assert result.retries == 1 and result.updated == 1
    assert ordered(hudi.read(table)) == ordered([row(1), row(5, "us", ts=12)])


def test_a_row_is_not_doubled_whose_file_hudi_cleans_while_our_write_is_planned(
    hudi: Oracle, ours: Any, table: Path, both: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tidying = {
        **both,
        "hoodie.clean.automatic": "true",
        "hoodie.clean.commits.retained": "1",
        "hoodie.keep.min.commits": "2",
        "hoodie.keep.max.commits": "3",
    }
    ours.write(table, query([row(1, "eu"), row(2, "us")]), both)
    first = completed(table, "commit")[0]
    for ts in range(20, 24):
        hudi.write(table, query([row(2, "us", ts=ts)]), tidying)
    assert first not in completed(table, "commit")
    (old,) = (table / "eu").glob("*.parquet")

    def others() -> None:
        hudi.write(table, query([row(1, "eu", ts=50)]), tidying)
        for ts in range(24, 26):
            hudi.write(table, query([row(2, "us", ts=ts)]), tidying)
        assert not old.exists()

    while_gathering(monkeypatch, others)
    result = ours.write(table, query([row(1, "eu", ts=60), row(3, "asia")]), both)
    assert result.retries == 1 and (result.updated, result.inserted) == (1, 1)
    wanted = [row(1, "eu", ts=60), row(2, "us", ts=25), row(3, "asia")]
    assert ordered(hudi.read(table)) == ordered(ours.read(table)) == ordered(wanted)
