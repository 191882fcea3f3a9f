"""``sr.Table(path)``: a table looked at from Python."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import StructType

from sparkrobust.coordinator.recovery import Recovered, recover
from sparkrobust.coordinator.rollback import roll_back_failed_writes
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.guarantees import Guarantees, guarantees_of
from sparkrobust.core.instant import Instant
from sparkrobust.core.view import BaseFile
from sparkrobust.errors import CorruptTableError, InvalidOptionError
from sparkrobust.spark.schema import to_spark
from sparkrobust.storage.resolve import storage_for


class Table:
    """A Hudi table by its base path.

    Parameters
    ----------
    path
        As for ``save`` and ``load``.
    options
        Of the store (``fs.s3a.*``, ``fs.azure.*``).
    """

    def __init__(self, path: str, options: Mapping[str, str] | None = None) -> None:
        self._table = HudiTable.open(storage_for(path, options))

    def __repr__(self) -> str:
        return f"Table({self._table.storage.url!r})"

    @property
    def name(self) -> str:
        """``hoodie.table.name``."""
        return self._table.config.name

    @property
    def properties(self) -> dict[str, str]:
        """What stands in ``hoodie.properties``."""
        return dict(self._table.config.values)

    @property
    def schema(self) -> StructType:
        """The rows' schema, without Hudi's meta columns."""
        self._table.reload()
        known = self._table.schema()
        if known is None:
            raise CorruptTableError(f"{self._table.storage.url} has no commit that tells its schema")
        return to_spark(known.arrow)

    def timeline(self) -> list[Instant]:
        """The active instants, oldest first."""
        self._table.reload()
        return list(self._table.timeline.instants)

    def files(self) -> list[BaseFile]:
        """The data files of the latest snapshot."""
        self._table.reload()
        return self._table.base_files()

    def guarantees(self, mode: str = "auto") -> Guarantees:
        """How writes to this table become visible, what they promise, and where that ends.

        Parameters
        ----------
        mode
            ``hoodie.write.robust.mode`` of the writes.
        """
        storage = self._table.storage
        if mode not in ("auto", "direct", storage.staging.value):
            raise InvalidOptionError(f"writes at {storage.url} can't be made in mode {mode!r}")
        how = storage.staging.value if mode == "auto" else mode
        return guarantees_of(how, storage.url, folders=storage.staging.has_folders)

    def recover(self, *, even_alive: bool = False) -> list[Recovered]:
        """End every pending write: commit what is all there, roll back the others; say which.

        A write whose driver's heartbeat has not expired (two minutes, by default) is left alone.

        Parameters
        ----------
        even_alive
            End those too: you know that no other driver is at work.
        """
        return recover(self._table, even_alive=even_alive)

    def rollback_failed_writes(self) -> list[Instant]:
        """Roll back every pending write now, as the next write would; say which."""
        self._table.reload()
        return roll_back_failed_writes(self._table)
