"""One write on the timeline: requested, inflight, published, complete; or rolled back.

The order of the steps is that of ``docs/architecture.md`` ("The life of a write"): tasks only stage
their files; the driver makes them visible, after the last task has ended, right before the commit.
Before it completes, a write looks whether its inflight file is still there: a Hudi writer that
shares no lock with us rolls back whatever is pending, and a commit of files that it deleted would
be worse than a failure.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone

from sparkrobust.coordinator import metadata_table
from sparkrobust.coordinator.leftovers import sweep_control_folder
from sparkrobust.coordinator.partitions import refuse_nested, refuse_to_cover, uncover
from sparkrobust.coordinator.rollback import roll_back, sweep_finished_write
from sparkrobust.coordinator.stand_in import replace_properties
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.times import next_time
from sparkrobust.core.instant import Action, Instant, InstantTime, State
from sparkrobust.core.names import PARTITION_METADATA, ControlFolder, instant_file, joined, marker_folder
from sparkrobust.core.write_status import OperationType, WriteStat
from sparkrobust.errors import CommitUnknownError, FencedError, RobustWriteError, UnavailableError
from sparkrobust.formats.commit_metadata import CommitMetadata, ReplaceCommitMetadata
from sparkrobust.formats.partition_metadata import PartitionMetadata
from sparkrobust.storage.contract import AlreadyExistsError, StagedFile

NONCE = "sparkrobust.nonce"
VERSION = "sparkrobust.version"

_LOOKS = 5
_LOOK_PAUSE_SECONDS = 1.0


class Transaction:
    """A write from its first trace on the timeline to its end."""

    def __init__(self, table: HudiTable, action: Action) -> None:
        self.table = table
        self.action = action
        time = next_time(table.clock, table.config, table.timeline.newest_time)
        self.control = ControlFolder(instant=time, nonce=table.ids.nonce())
        self.completion: InstantTime | None = None
        self._begun = False
        self._published: list[str] = []

    @property
    def time(self) -> InstantTime:
        return self.control.instant

    def _instant(self, state: State) -> Instant:
        return Instant(time=self.time, action=self.action, state=state, completion=self.completion)

    def _file(self, state: State) -> str:
        return instant_file(self._instant(state))

    # -- the steps -------------------------------------------------------------------------------

    def begin(self, requested: bytes = b"", inflight: bytes = b"") -> None:
        """Make the places that tasks write to, then the requested and the inflight file."""
        storage = self.table.storage
        storage.make_staging(self.control.staging)
        storage.make_folder(marker_folder(self.time))
        self._begun = True
        storage.put_if_absent(self.control.gate, self.control.nonce.encode())
        storage.put_if_absent(self._file(State.REQUESTED), requested)
        storage.put_if_absent(self._file(State.INFLIGHT), inflight)

    def publish(self, files: Sequence[StagedFile], stats: Sequence[WriteStat]) -> None:
        """Make the staged files visible: first what makes a folder a partition, then the files."""
        storage = self.table.storage
        now = datetime.fromtimestamp(self.table.clock.now_ms() / 1000, timezone.utc)
        written = {stat.partition_path or "" for stat in stats}
        refuse_nested(written)
        replacing = self.action is Action.REPLACE_COMMIT
        if not replacing:
            uncover(self.table, written)
        for partition in sorted(written):
            marker = joined(partition, PARTITION_METADATA)
            if storage.stat(marker) is None:
                if not replacing:
                    refuse_to_cover(self.table, partition)
                storage.make_folder(partition)
                content = PartitionMetadata.of_partition(partition, self.time).render(now)
                with contextlib.suppress(AlreadyExistsError):  # another writer's says the same
                    storage.put_if_absent(marker, content)
        self._published = [file.final_path for file in files]
        storage.publish_all(files)

    def complete(
        self,
        operation: OperationType,
        stats: Sequence[WriteStat],
        schema: str,
        *,
        replaced: Mapping[str, Sequence[str]] | None = None,
        extra: Mapping[str, str] | None = None,
        new_properties: Mapping[str, str] | None = None,
        may_drop_metadata_table: bool = False,
    ) -> None:
        """Write the completed file: from here on the write is durable.

        Parameters
        ----------
        replaced
            The file groups that this write takes out of the table, by partition.
        new_properties
            What the table is from now on, where the write puts a new table in place of the old one.
        """
        table = self.table
        table.reload()
        self._refuse_if_given_up()
        table.reload_config()
        metadata_table.refuse_or_allow(table, may_drop=may_drop_metadata_table)
        metadata_table.drop(table)
        if new_properties is not None:
            replace_properties(table, self.control, new_properties)
        content = self._metadata(operation, stats, schema, replaced, extra or {}).to_bytes()
        self.completion = next_time(table.clock, table.config, max(table.timeline.newest_time, self.time))
        path = self._file(State.COMPLETED)
        try:
            table.storage.put_if_absent(path, content)
        except (UnavailableError, AlreadyExistsError) as error:
            self._look_after(error, path, content)
        table.timeline = table.timeline.having(self._instant(State.COMPLETED))

    def _metadata(
        self,
        operation: OperationType,
        stats: Sequence[WriteStat],
        schema: str,
        replaced: Mapping[str, Sequence[str]] | None,
        extra: Mapping[str, str],
    ) -> CommitMetadata:
        by_partition: dict[str, tuple[WriteStat, ...]] = {}
        for stat in sorted(stats, key=lambda s: s.path or ""):
            partition = stat.partition_path or ""
            by_partition[partition] = (*by_partition.get(partition, ()), stat)
        extra_metadata = {"schema": schema, NONCE: self.control.nonce, **extra}
        if self.action is Action.REPLACE_COMMIT:
            return ReplaceCommitMetadata(
                partition_to_write_stats=by_partition,
                extra_metadata=extra_metadata,
                operation_type=operation,
                partition_to_replace_file_ids={p: tuple(ids) for p, ids in (replaced or {}).items()},
            )
        return CommitMetadata(
            partition_to_write_stats=by_partition, extra_metadata=extra_metadata, operation_type=operation
        )

    def _refuse_if_given_up(self) -> None:
        mine = self.table.timeline.find(self.time, self.action)
        if mine is None or mine.state is not State.INFLIGHT:
            raise FencedError(
                f"the write {self.time} was rolled back by another writer while it ran; it committed nothing",
                instant=self.time,
                path=self.table.storage.url,
                hint="run one writer at a time, or give both the same lock provider",
            )

    def _look_after(self, error: RobustWriteError, path: str, content: bytes) -> None:
        """The answer to the commit was unclear: find out by looking."""
        for attempt in range(_LOOKS):
            try:
                found = self.table.storage.stat(path)
                if found is not None and self.table.storage.read(path) == content:
                    return
                break
            except UnavailableError:
                if attempt < _LOOKS - 1:
                    self.table.clock.sleep(_LOOK_PAUSE_SECONDS)
        else:
            raise CommitUnknownError(
                f"whether the write {self.time} is durable could not be found out: {error}",
                instant=self.time,
                path=path,
                outcome="Unknown",
                hint=f"it is if {path} exists; else the next write rolls it back",
            ) from error
        raise error

    # -- the end ---------------------------------------------------------------------------------

    def clean_up(self) -> None:
        """After the commit: begin markers, what lost attempts have staged, partitions of a replaced table."""
        sweep_finished_write(self.table, self.control)

    def abort(self) -> None:
        """Undo everything; the table is as it was before.  Safe at any point before the commit."""
        if not self._begun:
            return
        self.table.reload()
        mine = self.table.timeline.find(self.time, self.action)
        if mine is not None and mine.pending:
            roll_back(self.table, mine)
        else:
            if mine is None:
                # Another writer rolled it back while it published: it could not know of these.
                for path in self._published:
                    self.table.storage.delete(path)
            sweep_control_folder(self.table.storage, self.control)
