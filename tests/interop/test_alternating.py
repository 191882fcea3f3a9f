"""Commits by Hudi and by us in turn, with Hudi's metadata table off and on."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import sparkrobust as sr
from tests.interop.driver import patched
from tests.interop.oracle import Oracle
from tests.interop.tables import (
    METADATA,
    OPERATION,
    Model,
    Row,
    assert_sane_meta,
    completed,
    options,
    ordered,
    properties,
    query,
    row,
)

DROP = {"hoodie.write.robust.drop.metadata.table": "true"}
METADATA_ON = {METADATA: "true"}
PARTITIONS = "hoodie.table.metadata.partitions"

STEPS: list[tuple[str, list[Row]]] = [
    ("insert", [row(n, ("eu", "us", "asia")[n % 3]) for n in range(1, 10)]),
    ("upsert", [row(1, "us", ts=20), row(2, "asia", ts=5), row(10, "eu")]),
    ("upsert", [row(1, "us", ts=30), row(10, "eu", ts=30), row(11, "new")]),
    ("delete", [row(3, "eu"), row(11, "new")]),
    ("insert", [row(12, "eu"), row(13, "us")]),
    ("upsert", [row(12, "eu", ts=40), row(13, "us", ts=1), row(11, "new", ts=40)]),
    ("bulk_insert", [row(14, "us"), row(15, "far")]),
    ("upsert", [row(14, "us", ts=50), row(15, "far", ts=50), row(4, "us", ts=50)]),
    ("delete", [row(14, "us"), row(1, "us"), row(999, "us")]),
    ("upsert", [row(1, "us", ts=2), row(14, "us", ts=60), row(5, "asia", ts=60)]),
]


def has_metadata_table(table: Path) -> bool:
    listed = bool(properties(table).get(PARTITIONS))
    assert (table / ".hoodie" / "metadata").exists() == listed
    return listed


@pytest.mark.parametrize(("first", "metadata"), [("us", "off"), ("hudi", "on")])
def test_ten_alternating_commits_lose_and_double_nothing(
    first: str, metadata: str, hudi: Oracle, ours: Any, table: Path
) -> None:
    on = metadata == "on"
    model = Model()
    for number, (operation, rows) in enumerate(STEPS):
        by_hudi = (number % 2 == 0) == (first == "hudi")
        if by_hudi:
            hudi.write(table, query(rows), options(**{OPERATION: operation, METADATA: str(on).lower()}))
        else:
            ours.write(table, query(rows), {**options(**{OPERATION: operation}), **(DROP if on else {})})
        (model.remove if operation == "delete" else model.put)(rows)
        assert ordered(ours.read(table)) == model.expected(), f"step {number}"
        seen = hudi.read(table, hoodie__metadata__enable=str(on).lower())
        assert ordered(seen) == model.expected(), f"step {number}"
        assert has_metadata_table(table) == (on and by_hudi)
    assert_sane_meta(table, seen)
    assert ordered(hudi.rust(table)) == model.expected()
    times = [(done.requested, done.completed) for done in completed(table)]
    assert len(times) == len(STEPS)
    assert all(a < b for pair in pairwise(times) for a, b in zip(*pair, strict=True))


def test_a_table_with_a_metadata_table_is_refused_untouched_until_it_may_be_dropped(
    hudi: Oracle, ours: Any, table: Path
) -> None:
    hudi.write(table, query([row(1)]), options(**METADATA_ON))
    before = {file: file.stat().st_mtime_ns for file in table.rglob("*")}
    with pytest.raises(
        sr.errors.UnsupportedTableError, match=r"hoodie\.write\.robust\.drop\.metadata\.table"
    ):
        ours.write(table, query([row(2)]), options())
    assert {file: file.stat().st_mtime_ns for file in table.rglob("*")} == before
    assert ordered(ours.read(table)) == ordered([row(1)])


def test_a_commit_beside_the_metadata_table_would_be_invisible_to_hudi(
    hudi: Oracle, ours: Any, table: Path
) -> None:
    """The trap itself: the reason for the refusal, shown on a table whose properties are doctored."""
    hudi.write(table, query([row(1)]), options(**METADATA_ON))
    file = table / ".hoodie" / "hoodie.properties"
    text = file.read_text()
    line = next(line for line in text.splitlines() if line.startswith(f"{PARTITIONS}="))
    file.write_text(text.replace(line, f"{PARTITIONS}="))
    file.with_name(".hoodie.properties.crc").unlink(missing_ok=True)
    ours.write(table, query([row(2, "us")]), options())
    assert ordered(hudi.read(table)) == ordered([row(1), row(2, "us")])
    file.write_text(text)
    file.with_name(".hoodie.properties.crc").unlink(missing_ok=True)
    assert ordered(hudi.read(table)) == ordered([row(1)])


@pytest.mark.parametrize("may_drop", [False, True])
def test_a_metadata_table_that_hudi_makes_during_our_write_is_seen_before_the_commit(
    may_drop: bool, hudi: Oracle, ours: Any, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = patched(monkeypatch)
    ours.write(table, query([row(1)]), options())
    # a Hudi writer that leaves pending writes alone
    considerate = {
        "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
        "hoodie.clean.failed.writes.policy": "LAZY",
        "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
        "hoodie.clean.automatic": "false",
        **METADATA_ON,
    }

    def by_hudi() -> None:
        hudi.write(table, query([row(2, "us")]), options(**considerate))
        assert has_metadata_table(table)

    def write() -> None:
        with driver.meets(by_hudi, "put_if_absent", "/finalize$"):
            ours.write(table, query([row(3, "asia")]), {**options(), **(DROP if may_drop else {})})

    if may_drop:
        write()
        assert not has_metadata_table(table)
    else:
        with pytest.raises(sr.errors.UnsupportedTableError, match="metadata table"):
            write()
        assert has_metadata_table(table)
    expected = ordered([row(1), row(2, "us"), *([row(3, "asia")] if may_drop else [])])
    assert (
        ordered(hudi.read(table)) == ordered(hudi.read(table, hoodie__metadata__enable="false")) == expected
    )
    assert ordered(ours.read(table)) == expected
