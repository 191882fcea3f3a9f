"""``sr.Table(path)``: a table looked at from Python."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import StructType

from sparkrobust.coordinator.opening import opened, refuse_changing
from sparkrobust.coordinator.recovery import Recovered, recover, roll_back_as_a_write_would
from sparkrobust.core.guarantees import Guarantees, guarantees_of
from sparkrobust.core.instant import Instant
from sparkrobust.core.view import BaseFile
from sparkrobust.errors import CorruptTableError, InvalidOptionError
from sparkrobust.spark.schema import to_spark


class Table:
    """A Hudi table by its base path.

    Parameters
    ----------
    path
        As for ``save`` and ``load``.
    options
        Those of the table's writers: of the store (``fs.s3a.*``, ``fs.azure.*``), and, for ``recover`` and
        ``rollback_failed_writes``, of their lock and their heartbeats (``hoodie.write.lock.*``, …).
    """

    def __init__(self, path: str, options: Mapping[str, str] | None = None) -> None:
        self._table, self._options = opened(path, options or {})

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
        known = self._table.look_anew(self._table.schema)
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
        return self._table.look_anew(self._table.base_files)

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

        A write whose driver's heartbeat has not expired (two minutes, by default) is left alone, and so is
        one of Hudi's without a heartbeat, since its single writers have none.

        Parameters
        ----------
        even_alive
            End those too: you know that no other driver is at work.

        Raises
        ------
        UnsupportedTableError
            A write would be refused, and so is this.
        LockError
            A write is all there, and its writer goes by a lock that the table's ``options`` do not name:
            committed without it, the write could take another's rows away.  It is left as it is, and the
            others are ended.  Or the lock could not be had.
        """
        refuse_changing(self._table, self._options)
        return recover(self._table, even_alive=even_alive)

    def rollback_failed_writes(self) -> list[Instant]:
        """Roll back the pending writes that have failed, as the next write with these options; say which.

        With a lock that others share, and of writes that go by such a lock, those have failed whose
        heartbeat has expired; else all.

        Raises
        ------
        UnsupportedTableError
            A write would be refused, and so is this.
        """
        refuse_changing(self._table, self._options)
        return roll_back_as_a_write_would(self._table)
