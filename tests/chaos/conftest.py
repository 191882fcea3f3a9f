"""A table that is written while things go wrong, and everything that it is held against afterwards."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyspark
import pytest

from fault_injection.servers import Unavailable
from fault_injection.spark.chaos import Chaos, Session
from fault_injection.spark.cluster import Cluster
from fault_injection.spark.faults import Fault
from fault_injection.spark.jobs import OPERATION, OPTIONS, Expected, text
from fault_injection.spark.report import Report
from fault_injection.spark.store import Store, store_beside
from fault_injection.spark.verify import problems
from tests.interop.oracle import Oracle, hudi

__all__ = ["hudi"]

ALL = "SPARKROBUST_CHAOS_ALL"
"""The environment variable by which `make chaos` says that what this machine can install has to be there."""

JOB = "fault_injection.spark.jobs:write"
ROWS = 600

# Every fault happens on both Sparks that `make chaos` runs; in settings that differ they take turns.
NEWEST = not pyspark.__version__.startswith("3.")


def by_turns(cases: Iterable[Any]) -> list[Any]:
    """Every other case; the rest is the other Spark's."""
    return list(cases)[0 if NEWEST else 1 :: 2]


def checkered(rows: Iterable[Any], columns: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Pairs of which each Spark has every other one, and every row and column."""
    pairs = itertools.product(enumerate(rows), enumerate(columns))
    return [(row, column) for (i, row), (j, column) in pairs if (i + j) % 2 == (0 if NEWEST else 1)]


def turn(*, newest: bool) -> pytest.MarkDecorator:
    """For a test that one Spark runs for both."""
    return pytest.mark.skipif(newest is not NEWEST, reason="the other Spark of `make chaos` has its turn")


class Table:
    """A table, and the rows that it must hold."""

    def __init__(self, chaos: Chaos, hudi: Oracle, path: Path, expected: Expected | None = None) -> None:
        self.chaos, self.hudi, self.path = chaos, hudi, path
        self.expected = expected or Expected()
        self._versions = itertools.count(max(map(max, self.expected.versions.values()), default=0) + 1)

    def write(
        self,
        operation: str = "upsert",
        first: int = 0,
        end: int = ROWS,
        *faults: Fault,
        how: str = "plain",
        session: Session | None = None,
        **options: str,
    ) -> Report:
        """A write of the next version of some rows; where it returns, they are expected from then on."""
        version = next(self._versions)
        chosen = {name.replace("__", "."): value for name, value in options.items()}
        report = self.chaos.run(
            JOB, str(self.path), operation, first, end, version,
            faults=faults, session=session, how=how, options=chosen,
        )  # fmt: skip
        if report.outcome.value is not None:
            self.expected.write(operation, first, end, version)
        return report

    def begin(self) -> Table:
        """Its first rows."""
        report = self.write("bulk_insert")
        assert report.outcome.value, report
        return self

    def is_right(self, seen: Path | None = None) -> bool:
        """Rows, files and timeline, by a plain reader and by Hudi."""
        found = problems(seen or self.path, self.expected)
        assert not found, "\n".join(found)
        if seen is None:
            rows = self.hudi.read(self.path)
            read = sorted((row["id"], row["ts"], row["text"], row["part"]) for row in rows)
            assert read == self.expected.rows(), "Hudi reads other rows"
        return True

    def hudi_goes_on(self) -> bool:
        """Hudi updates a row and adds one; then we do, and all is as it must be."""
        version = next(self._versions)
        rows = ", ".join(
            f"({number}, {version}L, '{text(number, version)}', 'part-{number % 2}')"
            for number in (1, 100_001)
        )
        self.hudi.write(
            self.path,
            f"SELECT * FROM VALUES {rows} AS t(id, ts, text, part)",
            {**OPTIONS, OPERATION: "upsert"},
        )
        for number in (1, 100_001):
            self.expected.write("upsert", number, number + 1, version)
        report = self.write("upsert", 0, 10)
        assert report.outcome.value, report
        return self.is_right()


@pytest.fixture
def table(chaos: Chaos, hudi: Oracle, tmp_path: Path) -> Table:
    """A table with some rows."""
    return Table(chaos, hudi, tmp_path / "t").begin()


@pytest.fixture(scope="session")
def store_or_reason(chaos_cluster: Cluster) -> Store | str:
    """The cluster's S3 server, or the sentence that says why there is none."""
    try:
        return store_beside(chaos_cluster)
    except Unavailable as reason:
        if os.environ.get(ALL):
            raise
        return str(reason)


@pytest.fixture(scope="session")
def store(store_or_reason: Store | str) -> Store:
    """The cluster's S3 server."""
    if isinstance(store_or_reason, str):
        pytest.skip(store_or_reason)
    return store_or_reason
