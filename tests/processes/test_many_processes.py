"""Many writers on one table, each a process of its own, two of them with Spark; some are killed at work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fault_injection.writers.race import Race

WRITERS, COMMITS, KILLS = 16, 10, 8
SPARK_DRIVERS, THEIR_COMMITS = 2, 3


@pytest.fixture(scope="module")
def race(tmp_path_factory: pytest.TempPathFactory) -> Race:
    folder = tmp_path_factory.mktemp("race")
    run = Race(
        url=str(folder / "t"), folder=folder / "logs", writers=WRITERS, spark_drivers=SPARK_DRIVERS,
        commits=COMMITS, driver_commits=THEIR_COMMITS, kills=KILLS, seed=1,
    )  # fmt: skip
    run.run()
    run.tidy()
    print(f"{dict(run.told())}, killed {' '.join(run.killed)}, {run.seconds:.0f} s")
    return run


def test_many_writers_some_of_them_killed_lose_nothing_and_leave_nothing(race: Race) -> None:
    assert len(race.killed) == KILLS
    assert {name[0] for name in race.killed} == {"w", "s"}, "writers of both kinds have died"
    assert race.told()["committed"] == WRITERS * COMMITS + SPARK_DRIVERS * THEIR_COMMITS
    assert race.problems(Path(race.url)) == []


def rows_of(race: Race) -> list[dict[str, Any]]:
    """A table in which every acknowledged write is as it must be."""
    newest: dict[str, int] = {}
    for line in race.lines():
        if line["what"] == "begun":
            for key in line["keys"]:
                newest[key] = max(newest.get(key, 0), line["ts"])
    return [{"id": key, "ts": ts} for key, ts in newest.items()]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda rows: [one for one in rows if one["id"] != "w0-0-1"], "1 rows of the acknowledged write"),
        (lambda rows: [*rows, rows[0]], "stands 2 times"),
        (lambda rows: [*rows, {"id": "stranger", "ts": 1}], "nobody wrote stranger"),
        (
            lambda rows: [one | {"ts": 1} if one["id"] == "shared-0" else one for one in rows],
            "shared-0 is of",
        ),
    ],
    ids=["lost", "doubled", "not written", "overwritten"],
)
def test_what_would_be_wrong_is_noticed(
    race: Race, spoil: Callable[[list[dict[str, Any]]], list[dict[str, Any]]], said: str
) -> None:
    right = rows_of(race)
    assert list(race.wrong_rows(right)) == []
    assert any(said in problem for problem in race.wrong_rows(spoil(right)))
