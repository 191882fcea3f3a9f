"""A table as the driver sees it: its properties, its timeline, its files, its schema.

What is read here is what any reader may rely on; nothing of a write is in this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeVar

from sparkrobust.coordinator.coordination import Coordination
from sparkrobust.coordinator.foreign import kind_of_foreign_table
from sparkrobust.coordinator.properties import read_properties
from sparkrobust.core.conflicts import Work, work_of
from sparkrobust.core.instant import Action, Instant, State
from sparkrobust.core.lock_name import name_of_lock
from sparkrobust.core.names import (
    HOODIE,
    PARTITION_METADATA,
    PROPERTIES,
    TIMELINE,
    instant_file,
    parse_instant_file,
)
from sparkrobust.core.table_config import TableConfig
from sparkrobust.core.timeline import Timeline
from sparkrobust.core.view import BaseFile, Replaced, latest_base_files
from sparkrobust.errors import CorruptTableError, FileGoneError, TableNotFoundError
from sparkrobust.formats.commit_metadata import CommitMetadata, CompletedWrite, ReplaceCommitMetadata
from sparkrobust.formats.plans import (
    COMPACTION_PLAN,
    REPLACE_PLAN,
    clustered_groups,
    compacted_groups,
    extra_metadata,
)
from sparkrobust.formats.schema import TableSchema
from sparkrobust.remembered import Remembered
from sparkrobust.storage.contract import Look, NotFoundError, Storage
from sparkrobust.storage.locks import InProcessLock
from sparkrobust.world import Clock, Hands, Ids

ARCHIVED = "archived-meanwhile"
"""The kind of an error about a file whose instant has left the timeline: who looks anew does not miss it."""
_LISTING_THREADS = 16
_LOOKS = 5
_COMMITS_HELD_AGAINST_LISTING = 100
_MANY_NAMES = 1000
"""To list so many takes as long as much of what else is done under the lock."""


_commits: Remembered[tuple[str, str], CommitMetadata] = Remembered(2048)
"""By table and path.  A table that is made anew at the same place has instants with other times."""

Seen = TypeVar("Seen")
Listing = dict[str, list[tuple[str, int]]]
"""Partition → name and size of every file in it."""


@dataclass(kw_only=True)
class HudiTable:
    """One table; ``reload`` before a decision, everything else is as of the last reload."""

    storage: Storage
    config: TableConfig
    coordination: Coordination
    timeline: Timeline = field(default_factory=lambda: Timeline(()))
    clock: Clock = field(default_factory=Clock)
    ids: Ids = field(default_factory=Ids)
    hands: Hands = field(default_factory=Hands)
    _seen: tuple[Look, Timeline] | None = field(default=None, init=False, repr=False, compare=False)
    """The last look at the timeline's folder, and what it showed."""
    _kept: dict[str, CommitMetadata] = field(default_factory=dict, init=False, repr=False, compare=False)
    """By path, what is not to be forgotten."""

    @classmethod
    def open(
        cls,
        storage: Storage,
        clock: Clock | None = None,
        ids: Ids | None = None,
        hands: Hands | None = None,
        coordination: Coordination | None = None,
    ) -> HudiTable:
        """The table at the storage's root, or ``TableNotFoundError``.

        Without any other ``coordination`` only the threads of this process are kept apart.
        """
        if not exists(storage):
            foreign = kind_of_foreign_table(storage)
            raise TableNotFoundError(
                f"there is no Hudi table at {storage.url}" + (f", but {foreign}" if foreign else ""),
                path=storage.url,
                hint="the first write makes one: give it hoodie.table.name and the key field",
            )
        values = read_properties(storage, clock or Clock())
        table = cls.of_properties(storage, values, clock, ids, hands, coordination)
        table.reload()
        return table

    @classmethod
    def of_properties(
        cls,
        storage: Storage,
        values: Mapping[str, str],
        clock: Clock | None = None,
        ids: Ids | None = None,
        hands: Hands | None = None,
        coordination: Coordination | None = None,
    ) -> HudiTable:
        """The table that has these properties, its timeline not looked at yet."""
        return cls(
            storage=storage,
            config=TableConfig.of(values, path=PROPERTIES),
            coordination=coordination or Coordination(lock=InProcessLock(storage.url, clock, ids)),
            clock=clock or Clock(),
            ids=ids or Ids(),
            hands=hands or Hands(),
        )

    @property
    def lock_name(self) -> str:
        """The lock by which its writes go, as all call it who share it; empty where only threads do."""
        lock = self.coordination.lock
        return name_of_lock(str(lock), self.storage.url) if lock.shared else ""

    def reload(self) -> None:
        """See the timeline anew."""
        if self._seen is None:
            look = self.storage.look(TIMELINE)
            self._seen = look, Timeline.of_names(look.names)
        else:
            before, timeline = self._seen
            look = self.storage.look(TIMELINE, before)
            if look is not before:
                self._seen = look, timeline.renewed(look.names, look.names ^ before.names)
        self.timeline = self._seen[1]

    def shows(self, path: str) -> bool:
        """Whether the last reload saw this file on the timeline, which knows but the last of each instant."""
        return self._seen is not None and path.removeprefix(f"{TIMELINE}/") in self._seen[0].names

    def look_ahead(self) -> None:
        """See the timeline anew where that may spare a listing to who has to wait for the table's lock."""
        settling = self.storage.settles_in(TIMELINE)
        if settling is None:
            return
        if self.coordination.lock.shared and self._seen and len(self._seen[0].names) > _MANY_NAMES:
            # Else a write that took no longer than this would list them while all others wait.
            self.clock.sleep(settling)
        self.reload()
        self.timeline.work_out()

    def reload_config(self) -> None:
        """See the properties anew: another writer may have changed them."""
        self.config = TableConfig.of(read_properties(self.storage, self.clock), path=PROPERTIES)

    def look_anew(self, look: Callable[[], Seen]) -> Seen:
        """What a reader's look finds: once more where others archived or cleaned away what it was after."""
        for _ in range(_LOOKS - 1):
            before = self.timeline
            try:
                return look()
            except FileGoneError:
                self.reload_config()
                self.reload()
                if self.timeline == before:
                    raise
        return look()

    def read(self, path: str) -> bytes:
        """A file that the timeline says is there."""
        try:
            return self.storage.read(path)
        except NotFoundError as error:
            if self._has_left_timeline(path):
                told = f"{path} is gone: it was archived, or taken back, since the timeline was looked at"
                raise FileGoneError(told, path=path, kind=ARCHIVED) from error
            raise CorruptTableError(f"{path} is gone, though the timeline listed it", path=path) from error

    def _has_left_timeline(self, path: str) -> bool:
        instant = parse_instant_file(path.removeprefix(f"{TIMELINE}/"))
        return instant is not None and self._as_of_now(instant) is None

    def _as_of_now(self, instant: Instant) -> Instant | None:
        """What the timeline shows of an instant now; it itself stays as it is.

        Who plans a write goes to the end by what was seen at first.
        """
        now = Timeline.of_names(self.storage.look(TIMELINE).names)
        return now.find(instant.time, instant.action)

    def requested(self, pending: Instant) -> bytes | None:
        """The requested file of a pending instant; ``None`` if that has ended since the last reload."""
        try:
            return self.read(_plan_path(pending))
        except CorruptTableError:
            now = self._as_of_now(pending)
            if now is None or not now.pending:
                return None
            raise

    # -- what commits say ------------------------------------------------------------------------

    def commit(self, instant: Instant) -> CommitMetadata:
        """The metadata of a completed write."""
        path = instant_file(instant)
        place = (self.storage.url, path)
        found = self._kept.get(path) or _commits.get(place)
        if found is None:
            found = CompletedWrite.from_bytes(instant, self.read(path), path=path).metadata
            _commits.keep(place, found)
        return found

    def keep_commit(self, instant: Instant, metadata: CommitMetadata) -> None:
        """From now on it is known what a completed write says, though it be archived."""
        self._kept[instant_file(instant)] = metadata

    def completed(self, instant: Instant) -> CompletedWrite:
        """A completed write with its metadata."""
        return CompletedWrite(instant=instant, metadata=self.commit(instant))

    def newest_commits(self) -> Iterator[tuple[Instant, CommitMetadata]]:
        """The completed writes with their metadata, newest first."""
        for instant in reversed(self.timeline.completed_writes):
            yield instant, self.commit(instant)

    def replaced(self) -> dict[str, frozenset[str]]:
        """The file groups that completed replacecommits took out, by partition."""
        found: dict[str, frozenset[str]] = {}
        for instant in self.timeline.completed_writes:
            if instant.action is Action.REPLACE_COMMIT:
                metadata = self.commit(instant)
                assert isinstance(metadata, ReplaceCommitMetadata)
                for partition, ids in metadata.partition_to_replace_file_ids.items():
                    found[partition] = found.get(partition, frozenset()) | frozenset(ids)
        return found

    def schema(self) -> TableSchema | None:
        """The newest schema that a write recorded, else the one the table was made with."""
        found = self.schema_text()
        return TableSchema.of_avro(found[0], path=found[1]) if found else None

    def schema_text(self, besides: AbstractSet[str] = frozenset()) -> tuple[str, str] | None:
        """The same as Avro's JSON, and where it stands, had there not been the writes of these times."""
        for instant in reversed(self.timeline.completed_writes):
            if instant.time in besides:
                continue
            metadata = self.commit(instant)
            operation = metadata.operation_type
            if metadata.schema and (operation is None or operation.may_change_schema):
                return metadata.schema, instant_file(instant)
        created = self.config.values.get("hoodie.table.create.schema")
        return (created, PROPERTIES) if created else None

    def file_ids_in_services(self) -> dict[str, Instant]:
        """The file groups that a pending clustering is to replace, with its instant."""
        found: dict[str, Instant] = {}
        for instant in self.timeline.pending:
            if instant.action is Action.CLUSTERING:
                groups = self.groups_in_plan(instant) or ()
                found |= dict.fromkeys((file_id for _, file_id in groups), instant)
        return found

    def work_of(self, pending: Instant) -> Work | None:
        """What a pending instant does to file groups, if anything.

        A clustering that was scheduled before Hudi had a word for it goes as a replacecommit, as do an insert
        overwrite and a deletion of partitions: its plan names file groups, and theirs never do.  Without any
        plan it is what is left of a write, whose inflight file came when it had been rolled back.
        """
        replacing = pending.action is Action.REPLACE_COMMIT
        if replacing and self.storage.stat(_plan_path(pending)) and self.groups_in_plan(pending):
            return Work.CLUSTERING
        return work_of(pending)

    def groups_in_plan(self, service: Instant) -> list[tuple[str, str]] | None:
        """Partition and id of the file groups that a pending table service is about to change.

        ``None`` if it has ended since the last reload: it changes none any more, or has changed them.
        """
        groups_in = clustered_groups if _is_replacing(service) else compacted_groups
        plan = self.requested(service)
        return None if plan is None else groups_in(plan, path=_plan_path(service))

    def plan_says(self, service: Instant, key: str) -> str | None:
        """What the plan of a pending table service says besides, under this key: nothing if it has ended."""
        record = REPLACE_PLAN if _is_replacing(service) else COMPACTION_PLAN
        plan = self.requested(service)
        return None if plan is None else extra_metadata(plan, record, path=_plan_path(service)).get(key)

    # -- files -----------------------------------------------------------------------------------

    def partitions(self) -> list[str]:
        """The paths of all partitions, by the partition files that lie in them."""
        return sorted(partition for partition, _ in self._walk_partitions())

    def listing(self, partitions: Iterable[str] | None = None) -> Listing:
        """What lies in all partitions, or in some."""
        if partitions is None:
            return dict(self._walk_partitions())
        wanted = list(partitions)
        found = self.hands.map(self._listed, wanted, most=_LISTING_THREADS)
        return dict(zip(wanted, (files for files, _ in found), strict=True))

    def names(self, partitions: Iterable[str]) -> list[str]:
        """The names of everything that lies in some partitions."""
        found = self.hands.map(self.storage.names, partitions, most=_LISTING_THREADS)
        return [name for names in found for name in names]

    def base_files(self, partitions: Iterable[str] | None = None) -> list[BaseFile]:
        """The latest snapshot's files, of all partitions or of some."""
        listing = self.listing(partitions)
        return self.latest(listing, whole=partitions is None)

    def latest(self, listing: Listing, *, whole: bool) -> list[BaseFile]:
        """The latest snapshot's files among those that were listed, of the ``whole`` table or of a part."""
        replaced = self.replaced()
        files = ((partition, name, size) for partition, found in listing.items() for name, size in found)
        latest = latest_base_files(files, self.timeline, replaced)
        self._refuse_gone(latest, replaced, None if whole else listing.keys())
        return latest

    def _refuse_gone(
        self, latest: list[BaseFile], replaced: Replaced, partitions: AbstractSet[str] | None
    ) -> None:
        """The newest file of each group that recent commits name is there, or ``FileGoneError``.

        A file that was taken away would else be a version of its group that reads as the newest, or
        rows that nobody misses.
        """
        newest: dict[tuple[str, str], str] = {(b.partition, b.file_id): b.name.instant for b in latest}
        for instant, metadata in islice(self.newest_commits(), _COMMITS_HELD_AGAINST_LISTING):
            for stat in metadata.write_stats:
                partition = stat.partition_path or ""
                if stat.path is None or (partitions is not None and partition not in partitions):
                    continue
                held = newest.setdefault((partition, stat.file_id), "")
                if held < instant.time and stat.file_id not in replaced.get(partition, ()):
                    raise FileGoneError(
                        f"the base file {stat.path} is gone, though the timeline names its instant",
                        path=stat.path,
                        instant=instant.time,
                    )

    def _listed(self, folder: str) -> tuple[list[tuple[str, int]], list[str]]:
        files, folders = self.storage.list(folder)
        return [(info.path.rpartition("/")[2], info.size) for info in files], folders

    def _walk_partitions(self) -> Iterator[tuple[str, list[tuple[str, int]]]]:
        """Level by level: a folder with a partition file is a partition, and nothing below it is."""
        level = [""]
        while level:
            below: list[str] = []
            listed = self.hands.map(self._listed, level, most=_LISTING_THREADS)
            for folder, (files, folders) in zip(level, listed, strict=True):
                if any(name.startswith(PARTITION_METADATA) for name, _ in files):
                    yield folder, files
                else:
                    below += [path for path in folders if path != HOODIE]
            level = below


def _plan_path(pending: Instant) -> str:
    return instant_file(replace(pending, state=State.REQUESTED))


def _is_replacing(instant: Instant) -> bool:
    return instant.action.when_complete is Action.REPLACE_COMMIT


def exists(storage: Storage) -> bool:
    """Whether there is a table: its folder of metadata."""
    files, folders = storage.list(HOODIE)
    return bool(files or folders)
