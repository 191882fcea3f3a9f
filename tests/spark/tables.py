"""A table under test: written by us, read by us and by a reader that is not ours."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import sparkrobust as sr
from fault_injection.spark import plain_reader
from sparkrobust.errors import RobustWriteError, UnavailableError
from sparkrobust.storage.contract import StagedWriter
from sparkrobust.storage.local import LocalStorage
from tests.interop.tables import META, OPERATION

Row = tuple[Any, ...]

COLUMNS = "id int, name string, ts bigint, region string"

ORDERING_MODE = "hoodie.write.record.merge.mode"
COMBINE_INSERT = "hoodie.combine.before.insert"
COMBINE_UPSERT = "hoodie.combine.before.upsert"
DUPLICATES = "hoodie.datasource.insert.dup.policy"
SMALL_FILE = "hoodie.parquet.small.file.limit"
MAX_FILE = "hoodie.parquet.max.file.size"
SORT_MODE = "hoodie.bulkinsert.sort.mode"
DRIVER_BYTES = "hoodie.write.robust.driver.max.bytes"
NULL_FOR_MISSING = "hoodie.write.set.null.for.missing.columns"


def frame(spark: SparkSession, rows: Iterable[Row], columns: str = COLUMNS) -> DataFrame:
    """Rows as a DataFrame, in this order."""
    return spark.createDataFrame(list(rows), columns)


def names_of(columns: str) -> list[str]:
    """The names in a list of flat columns."""
    return [column.split()[0] for column in columns.split(",")]


@dataclass
class Subject:
    """One table, and the options that every write of it has."""

    spark: SparkSession
    path: Path
    options: dict[str, str]
    columns: str = COLUMNS

    def write(
        self,
        operation: str,
        rows: Iterable[Row],
        *more: dict[str, str],
        mode: str = "append",
        columns: str = "",
    ) -> sr.WriteResult:
        """Write rows of the table's columns, or of others."""
        return self.save(operation, frame(self.spark, rows, columns or self.columns), *more, mode=mode)

    def save(
        self, operation: str, df: DataFrame, *more: dict[str, str], mode: str = "append"
    ) -> sr.WriteResult:
        """Write a DataFrame."""
        # Small as they are, the tables of these tests are written by tasks.
        chosen = {DRIVER_BYTES: "0", **self.options, OPERATION: operation}
        for extra in more:
            chosen |= extra
        return sr.write(df).format("hudi").options(**chosen).mode(mode).save(str(self.path))

    def rows(self) -> list[Row]:
        """All rows, sorted; our reader and the plain one agree on them, and on the meta columns."""
        ours = [row.asDict() for row in sr.read(self.spark).load(str(self.path)).collect()]
        plain = plain_reader.snapshot(self.path)
        assert in_order(ours) == in_order(plain)
        return sorted(
            (tuple(value for name, value in row.items() if name not in META) for row in ours), key=repr
        )

    def names(self) -> dict[int, str]:
        """The name of each id, which stands for its row."""
        column = names_of(self.columns).index("name")
        found = [(row[0], row[column]) for row in self.rows()]
        assert len(found) == len(dict(found)), "an id stands twice"
        return dict(found)

    def files(self) -> list[str]:
        """The files of the latest snapshot."""
        return [str(file.relative_to(self.path)) for file in plain_reader.snapshot_files(self.path)]


def in_order(rows: Sequence[dict[str, Any]]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


def everything_in(folder: Path) -> dict[str, bytes | None]:
    """Every folder and file below a folder, with what the files hold."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def leftovers(table: Path) -> list[str]:
    """Markers, control folders and staged files: what a write that has ended must not leave."""
    folders = (table / ".hoodie" / ".temp", table / ".hoodie" / ".robust")
    found = {path for folder in folders for path in folder.rglob("*")}
    # The local store keeps one empty folder of its own, and writers that share a lock another one.
    staying = {folders[1] / ".scratch", folders[1] / "committing"}
    return sorted(str(path.relative_to(table)) for path in found - staying)


@contextlib.contextmanager
def refused(
    folder: Path, kind: type[RobustWriteError], words: str
) -> Iterator[pytest.ExceptionInfo[RobustWriteError]]:
    """The block raises this error, and leaves every file in the folder as it was."""
    before = everything_in(folder)
    with pytest.raises(kind, match=words) as raised:
        yield raised
    assert everything_in(folder) == before


@dataclass(frozen=True)
class BreaksAfter:
    """Passes so many rows on, and raises."""

    rows: int
    error: Exception = ValueError("a value of the pipeline's own that it can't stand")  # noqa: RUF009

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        left = self.rows
        for batch in batches:
            if batch.num_rows >= left:
                yield batch.slice(0, left)
                raise self.error
            left -= batch.num_rows
            yield batch


@contextlib.contextmanager
def away_for_a_while(monkeypatch: pytest.MonkeyPatch, failures: int) -> Iterator[None]:
    """So often, in the partition ``eu``, no file can be begun."""
    stage, calls = LocalStorage.stage, itertools.count()

    def away(self: LocalStorage, folder: str, name: str, final_path: str) -> StagedWriter:
        if "eu/" in final_path and next(calls) < failures:
            raise UnavailableError("the store is away", path=final_path)
        return stage(self, folder, name, final_path)

    with monkeypatch.context() as patched:
        patched.setattr(LocalStorage, "stage", away)
        yield
