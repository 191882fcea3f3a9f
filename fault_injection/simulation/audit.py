"""What must hold after every step, and at the end; read from the store itself, not by the code under test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from fault_injection.simulation.actors import MARK, Told, content_of
from fault_injection.simulation.stores import SimulatedBucket, SimulatedDisk, SimulatedObjects
from sparkrobust.core import decision, strict_json
from sparkrobust.core.decision import Commit
from sparkrobust.core.instant import WRITES, Action, State
from sparkrobust.core.markers import CompletionMarker
from sparkrobust.core.names import (
    HEARTBEATS,
    HISTORY,
    HOODIE,
    PROPERTIES,
    ROBUST,
    TEMP,
    TIMELINE,
    BaseFileName,
    ControlFolder,
    joined,
    parse_begin_marker,
    parse_instant_file,
)
from sparkrobust.formats import properties
from sparkrobust.formats.commit_metadata import ReplaceCommitMetadata

AnyStorage = SimulatedDisk | SimulatedObjects
Knowledge = tuple[dict[str, Commit], dict[str, str], dict[str, str], tuple[frozenset[str], ...]]


def _control_folder(path: str) -> str:
    """The control folder that a path lies in; of others what would be one."""
    return "/".join(path.split("/", 3)[:3])


class Violation(Exception):
    """Something is not as it was promised."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """What who lists the timeline at some moment has to see."""

    paths: frozenset[str]
    """The files that the table is made of."""
    rows: Mapping[str, str] = field(default_factory=dict)
    """Key → what stands in its row, where rows are more than a number."""
    start: str = ""
    """What is older passes for archived, and so for committed, as soon as it can be seen."""


class Auditor:
    """Knows everything that ever was decided, and looks at the table after every step."""

    def __init__(self, storage: AnyStorage, read: Callable[[str], bytes], *, direct: bool = False) -> None:
        self._storage, self._read = storage, read
        self._direct = direct
        """Files may be visible before a commit names them, and that is all that is let pass."""
        self._before: dict[str, int] = {}
        self.decided: dict[str, Commit] = {}
        """By instant."""
        self._deciders: dict[str, str] = {}
        """Instant → nonce of the write that was decided."""
        self.completed: dict[str, str] = {}
        """Instant → its completed file."""
        self.rolled_back: set[str] = set()
        self.archived: set[str] = set()
        self.cleaned: set[str] = set()
        """Files that a cleaner has begun to delete, or deleted."""
        self.replaced: set[str] = set()
        """``<partition>/<file id>`` of what overwrites took out of the table."""
        self.closed: set[str] = set()
        """Control folders whose gate was ever taken away."""
        self._removed: set[str] = set()
        """Control folders of a disk that are gone."""
        self._gated: set[str] = set()
        self.unmarked: set[str] = set()
        """Instants whose begin markers were taken away by a writer that knows of no uploads."""
        self._begun: set[str] = set()
        """``<instant>/<upload>``, of which a begin marker ever told."""
        self._done: set[str] = set()
        """Uploads that a completion marker ever told of, or of commit files."""

    def knows(self) -> Knowledge:
        """What it knows by now, of which nothing changes any more."""
        return (
            dict(self.decided),
            dict(self._deciders),
            dict(self.completed),
            tuple(map(frozenset, self._sets)),
        )

    @property
    def _sets(self) -> tuple[set[str], ...]:
        return (
            self.rolled_back, self.archived, self.cleaned, self.replaced, self.closed, self._removed,
            self._gated, self.unmarked, self._begun, self._done,
        )  # fmt: skip

    def remember(self, knowledge: Knowledge) -> None:
        """Know that again, of the table as it now is."""
        decided, deciders, completed, sets = knowledge
        self._before = self._storage.paths()
        self.decided, self._deciders, self.completed = dict(decided), dict(deciders), dict(completed)
        for mine, known in zip(self._sets, sets, strict=True):
            mine.clear()
            mine.update(known)

    def look(self) -> None:
        """After a step."""
        now = self._storage.paths()
        if now == self._before:
            return
        new, gone = now.keys() - self._before.keys(), self._before.keys() - now.keys()
        for path in new:
            self._appeared(path)
        if gone and isinstance(self._storage, SimulatedDisk):
            self._folders_gone(gone, now)
        for path in gone:
            self._vanished(path)
        self._before = now

    def _appeared(self, path: str) -> None:
        if path.startswith(f"{ROBUST}/"):
            if path.endswith("/gate"):
                folder = path.rpartition("/")[0]
                self._gated.add(folder)
                # Only a driver that begins puts one: what the folder was before is over.
                self._removed.discard(folder)
                self.closed.discard(folder)
            if _control_folder(path) in self._removed:
                self._say(f"{path} is there, in a folder that was removed")
            if path.endswith("/decision"):
                self._decision(path)
            self._upload_of_a_commit(path)
            self._completion(path)
        elif path.startswith(f"{HISTORY}/"):
            return
        elif path.startswith(f"{TIMELINE}/"):
            self._instant(path)
        elif path.startswith(f"{TEMP}/"):
            if parse_begin_marker(path) is None:
                self._say(f"{path} is no begin marker: Hudi's rollback would do nothing, or fail for ever")
            token = self._read(path)
            if token:
                self._begun.add(f"{path.split('/')[2]}/{strict_json.loads(token)['upload']}")
        elif path.endswith(".parquet"):
            if path in self.cleaned:
                self._say(f"{path} was cleaned, and is back")
            self._data_file(path)

    def _folders_gone(self, gone: Iterable[str], now: Mapping[str, int]) -> None:
        # Before the gate stands, the driver itself is still making the folder.
        for folder in {_control_folder(path) for path in gone} & self._gated:
            if not any(path.startswith(f"{folder}/") for path in now):
                self._removed.add(folder)

    def _completion(self, path: str) -> None:
        parent, _, slot = path.rpartition("/")
        folder = ControlFolder.parse(_control_folder(path))
        if isinstance(self._storage, SimulatedBucket) and folder and parent == folder.completions:
            files = CompletionMarker.parse(self._read(path), folder, int(slot)).files
            for file in [one for one in files if not one.staged.in_place]:
                self._done.add(strict_json.loads(file.staged.token)["upload"])

    def _upload_of_a_commit(self, path: str) -> None:
        if isinstance(self._storage, SimulatedBucket) and path.rpartition("/")[2].startswith("commit-"):
            self._done.add(strict_json.loads(self._read(path))["upload"])

    def _decision(self, path: str) -> None:
        folder = ControlFolder.parse(path.rpartition("/")[0])
        assert folder is not None
        found = decision.parse(self._read(path), folder)
        if isinstance(found, Commit):
            # A bucket lets a driver that slept through the end decide once more: nothing may come of it.
            self.decided.setdefault(folder.instant, found)
            self._deciders.setdefault(folder.instant, folder.nonce)

    def _instant(self, path: str) -> None:
        found = parse_instant_file(path.rpartition("/")[2])
        if found is None or found.action not in WRITES:
            return
        if found.state is State.REQUESTED:
            self.rolled_back.discard(found.time)  # another write has the same time
        if found.state is not State.COMPLETED:
            return
        other = self.completed.get(found.time)
        if other is not None:
            self._say(f"{found.time} is completed twice, as {other} and as {path}")
        decided = self.decided.get(found.time)
        if decided is None or path != decided.commit_file.final_path:
            self._say(f"{path} is there, and this was not decided")
            return
        if found.time in self.archived:
            self._say(f"{found.time} was archived, and is back as {path}")
        if found.time in self.rolled_back:
            self._say(f"{found.time} is completed, and was rolled back")
        self.completed[found.time] = path
        if found.action is Action.REPLACE_COMMIT:
            self._replaced(path)
        there = self._storage.paths()
        for file in decided.files:
            if file.final_path not in there:
                self._say(f"{path} is there without {file.final_path}")

    def _replaced(self, path: str) -> None:
        metadata = ReplaceCommitMetadata.from_bytes(self._read(path), path=path)
        for partition, ids in metadata.partition_to_replace_file_ids.items():
            self.replaced.update(joined(partition, file_id) for file_id in ids)

    def _data_file(self, path: str) -> None:
        name = name_of(path)
        commit = self.decided.get(name.instant)
        if not self._direct and (commit is None or path not in {file.final_path for file in commit.files}):
            self._say(f"{path} is visible, and no commit was decided that names it")
        self._require_whole(path)

    def _require_whole(self, path: str) -> None:
        if self._read(path) != content_of(path):
            self._say(f"{path} is visible, and torn")

    def _vanished(self, path: str) -> None:
        if path.startswith(f"{ROBUST}/") and path.endswith("/gate"):
            self.closed.add(path.rpartition("/")[0])
        if path.startswith(f"{TIMELINE}/"):
            found = parse_instant_file(path.rpartition("/")[2])
            if found is not None and found.action in WRITES and found.time not in self.archived:
                if found.state is State.COMPLETED:
                    self._say(f"{path} was there, and is gone")
                elif found.state is State.REQUESTED:
                    if found.time in self.completed:
                        self._say(f"{found.time} is completed, and its requested file was taken away")
                    self.rolled_back.add(found.time)
        elif path.endswith(".parquet") and not path.startswith(f"{HOODIE}/"):
            name = name_of(path)
            taken = name.instant in self.completed and path in self._named(name.instant)
            if taken and path not in self.cleaned:
                self._say(f"{path} was committed, and is gone")

    def _properties(self) -> None:
        """The table's properties are those of the overwrite that completed last, or of the beginning."""
        replaced = [self.decided[time] for time in self.completed if self.decided[time].properties]
        newest = max(replaced, key=lambda commit: commit.completion, default=None)
        wanted = newest.properties.after[MARK] if newest and newest.properties else None
        found = properties.parse(self._read(PROPERTIES), path=PROPERTIES).get(MARK)
        if found != wanted:
            self._say(f"the properties are those of {found}, not of {wanted}")

    def _named(self, instant: str) -> set[str]:
        return {file.final_path for file in self.decided[instant].files}

    def _file_ids(self, instant: str) -> frozenset[str]:
        return frozenset(name_of(file.final_path).file_id for file in self.decided[instant].files)

    def _say(self, what: str) -> None:
        raise Violation(what)

    # -- readers -----------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """What there is to be seen by who lists the timeline now.

        Writers that share no lock may overtake each other: then the older one's files are seen one by one.
        """
        start = min(self.completed.keys() - self.archived, default="")
        named = (path for time in self.completed for path in self._named(time))
        paths = frozenset(path for path in named if _group(path) not in self.replaced)
        return Snapshot(paths=paths, start=start)

    def has_seen(self, snapshot: Snapshot, files: Mapping[str, bytes]) -> None:
        """A reader has seen these files, which must be what there was when he listed the timeline."""
        if not self.cleaned.isdisjoint(snapshot.paths):
            return  # he was slower than the cleaner, and is promised nothing
        seen = {path for path in files if path in snapshot.paths or name_of(path).instant >= snapshot.start}
        if seen != snapshot.paths:
            self._say(f"a reader saw other files than he had to: {sorted(seen ^ snapshot.paths)}")
        self._are_whole(snapshot, files)

    def _are_whole(self, snapshot: Snapshot, files: Mapping[str, bytes]) -> None:
        for path, data in files.items():
            if data != content_of(path):
                self._say(f"a reader saw {path} torn")

    # -- the end -----------------------------------------------------------------------------------------

    def close(self, told: list[Told]) -> None:
        """Once everybody has ended, and a write has come after them."""
        there = self._storage.paths()
        for one in told:
            if one.instant is not None:
                self._is_so(one, [other for other in told if _write_of(other) == _write_of(one)])
        self._are_written_once(told)
        self._properties()
        visible = {path for path in there if path.endswith(".parquet") and not path.startswith(f"{HOODIE}/")}
        named = {path for time in self.completed for path in self._named(time)} - self.cleaned
        if visible - self.cleaned != named:
            self._say(f"files and commits differ: {sorted((visible - self.cleaned) ^ named)}")
        left = [path for path in there if path.startswith((f"{ROBUST}/", f"{TEMP}/", f"{HEARTBEATS}/"))]
        if left:
            self._say(f"left behind: {left}")
        if isinstance(self._storage, SimulatedBucket):
            begun = (one.split("/") for one in self._begun)
            known = {upload for instant, upload in begun if instant not in self.unmarked}
            uploads = (known | self._done) & self._storage.bucket.uploads.keys()
            if uploads:
                self._say(f"uploads that markers told of are left behind: {sorted(uploads)}")
        for path in there:
            found = parse_instant_file(path.rpartition("/")[2]) if path.startswith(f"{TIMELINE}/") else None
            if found is not None and found.action in WRITES and found.time not in self.completed:
                self._say(f"{path} is pending, and nobody is left who could end it")

    def _are_written_once(self, told: Iterable[Told]) -> None:
        """Of all runs of a job that said so one has written, and none if none was told so."""
        runs = [one for one in told if one.write_id]
        for job in {one.write_id for one in runs}:
            mine = {one.nonce for one in runs if one.write_id == job and one.nonce}
            times = sorted(time for time in self.completed if self._deciders[time] in mine)
            said = [one.name for one in runs if one.write_id == job and one.outcome == "committed"]
            if len(times) > 1 or (said and not times):
                self._say(f"{job} is written by {times}, as told to {said}")

    def _is_so(self, one: Told, of_its_name: list[Told]) -> None:
        """What a driver was told is what became of its write, and not of another one of the same time."""
        assert one.instant is not None
        durable = one.instant in self.completed and self._deciders[one.instant] == one.nonce
        if durable:
            rows = self._file_ids(one.instant)
            if all(other.files != rows for other in of_its_name):
                self._say(f"{one.instant} has not the rows of {one.name}")
            durable = one.files == rows
        if one.outcome == "committed" and not durable:
            self._say(f"{one.name} was told that {one.instant} is committed")
        if one.outcome == "failed" and durable:
            self._say(f"{one.name} was told that {one.instant} failed: {one.error}")


def name_of(path: str) -> BaseFileName:
    """What the name of a data file says."""
    name = BaseFileName.parse(path.rpartition("/")[2])
    assert name is not None
    return name


def _group(path: str) -> str:
    """The partition and the file group that a data file lies in."""
    return joined(path.rpartition("/")[0], name_of(path).file_id)


def _write_of(told: Told) -> tuple[str | None, str]:
    """By which a write is known."""
    return told.instant, told.nonce
