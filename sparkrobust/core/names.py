"""Every file-name grammar of a table: parsed and formatted here, and nowhere else.

Paths are relative to the table's base path, as the storage contract has them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from sparkrobust.core.instant import Action, Instant, InstantTime, State

HOODIE = ".hoodie"
PROPERTIES = f"{HOODIE}/hoodie.properties"
PROPERTIES_BACKUP = f"{HOODIE}/hoodie.properties.backup"
TIMELINE = f"{HOODIE}/timeline"
HISTORY = f"{TIMELINE}/history"
TEMP = f"{HOODIE}/.temp"
ROBUST = f"{HOODIE}/.robust"
COMMITTING = f"{ROBUST}/committing"
"""Who is about to decide that a write is committed, and has taken the lock for it."""
HEARTBEATS = f"{HOODIE}/.heartbeat"
LOCKS = f"{HOODIE}/.locks"
LOCK_RECORD = f"{LOCKS}/table_lock.json"
"""Of Hudi's storage-based lock."""
LOCK_FILE = f"{HOODIE}/lock"
"""Of Hudi's file lock, where no other folder is named."""
METADATA_TABLE = f"{HOODIE}/metadata"
INDEX_DEFINITIONS = f"{HOODIE}/.index_defs"
PARTITION_METADATA = ".hoodie_partition_metadata"
DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"

META_COLUMNS = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)
COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME = META_COLUMNS
IS_DELETED = "_hoodie_is_deleted"

NONCE = "sparkrobust.nonce"
WRITE_ID = "sparkrobust.write.id"
VERSION = "sparkrobust.version"
WRITER = "sparkrobust.writer"
REMOVABLE = "removable"
"""In a plan's extra metadata: who rolls it back removes it, and nobody executes it again."""
"""Of ours in the extra metadata of a commit."""

NAMES_REMEMBERED = 1 << 15
"""The names of a table's files are parsed again at each look at it, and few of them are new."""


def is_inside(path: str) -> bool:
    """Whether a path, taken from a folder, stays below it; ``""`` is the folder itself."""
    return not path or not ("\0" in path or any(part in ("", ".", "..") for part in path.split("/")))


# -- the timeline -----------------------------------------------------------------------------

_INSTANT_FILE = re.compile(r"(\d+)(?:_(\d+))?\.([a-z]+)(?:\.(requested|inflight))?", re.ASCII)


def parse_instant_file(name: str) -> Instant | None:
    """The instant and state that a file of the timeline folder stands for; ``None`` for other files."""
    match = _INSTANT_FILE.fullmatch(name)
    if match is None:
        return None
    time, completion, word, state = match.groups()
    if word == "inflight" and state is None and completion is None:
        # The one irregular name of the grammar: a commit's inflight file leaves its action out.
        return Instant(time=InstantTime(time), action=Action.COMMIT, state=State.INFLIGHT)
    try:
        action = Action(word)
    except ValueError:
        return None
    if state is None:
        if completion is None or action.when_complete is not action:
            return None
        return Instant(
            time=InstantTime(time), action=action, state=State.COMPLETED, completion=InstantTime(completion)
        )
    if completion is not None or (action is Action.COMMIT and state == "inflight"):
        return None
    return Instant(time=InstantTime(time), action=action, state=State[state.upper()])


def instant_file(instant: Instant) -> str:
    """The path of an instant's file in its state."""
    if instant.state is State.COMPLETED:
        return f"{TIMELINE}/{instant.time}_{instant.completion}.{instant.action.when_complete.value}"
    if instant.state is State.INFLIGHT and instant.action is Action.COMMIT:
        return f"{TIMELINE}/{instant.time}.inflight"
    return f"{TIMELINE}/{instant.time}.{instant.action.value}.{instant.state.name.lower()}"


# -- the archived timeline ----------------------------------------------------------------------

HISTORY_VERSION = "_version_"
"""In the folder of the history: the number of its newest manifest."""
_HISTORY_MANIFEST = re.compile(r"manifest_(\d{1,9})", re.ASCII)
_HISTORY_FILE = re.compile(r"(\d+)_(\d+)_(\d{1,9})\.parquet", re.ASCII)


def parse_history_manifest(name: str) -> int | None:
    """The number of a manifest of the history; ``None`` for other files."""
    match = _HISTORY_MANIFEST.fullmatch(name)
    return int(match[1]) if match else None


def history_manifest(number: int) -> str:
    """The name of a manifest, which says which files make up the history."""
    return f"manifest_{number}"


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryFileName:
    """``<first instant>_<last instant>_<level>.parquet``; some of a level are merged into one of the next."""

    first: InstantTime
    last: InstantTime
    level: int

    @classmethod
    def parse(cls, name: str) -> HistoryFileName | None:
        match = _HISTORY_FILE.fullmatch(name)
        if match is None:
            return None
        return cls(first=InstantTime(match[1]), last=InstantTime(match[2]), level=int(match[3]))

    def __str__(self) -> str:
        return f"{self.first}_{self.last}_{self.level}.parquet"


# -- data files ---------------------------------------------------------------------------------

_BASE_FILE = re.compile(r"([A-Za-z0-9-]+)_([A-Za-z0-9-]+)_(\d+)\.parquet", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseFileName:
    """``<file id>_<write token>_<instant>.parquet``."""

    file_id: str
    write_token: str
    instant: InstantTime

    @classmethod
    @lru_cache(NAMES_REMEMBERED)
    def parse(cls, name: str) -> BaseFileName | None:
        match = _BASE_FILE.fullmatch(name)
        if match is None:
            return None
        file_id, token, instant = match.groups()
        return cls(file_id=file_id, write_token=token, instant=InstantTime(instant))

    def __str__(self) -> str:
        return f"{self.file_id}_{self.write_token}_{self.instant}.parquet"


def joined(folder: str, name: str) -> str:
    """A path in a folder that may be the root."""
    return f"{folder}/{name}" if folder else name


# -- markers ------------------------------------------------------------------------------------


class MarkerType(Enum):
    """What a begin marker says of its file."""

    CREATE = "CREATE"
    MERGE = "MERGE"
    APPEND = "APPEND"


def heartbeat_file(instant: str) -> str:
    """Empty; its time says when the writer of the instant was last alive."""
    return f"{HEARTBEATS}/{instant}"


def marker_folder(instant: str) -> str:
    return f"{TEMP}/{instant}"


def begin_marker(instant: str, data_path: str, kind: MarkerType) -> str:
    return f"{marker_folder(instant)}/{data_path}.marker.{kind.value}"


MARKER_LIST = "MARKERS"
"""Begin markers may also stand as lines in files whose names begin so, if a file says so."""
MARKER_LISTS_SAY = "MARKERS.type"
MARKERS_ARE_LISTED = b"TIMELINE_SERVER_BASED"


def parse_begin_marker(text: str) -> tuple[str, MarkerType] | None:
    """The data file and kind of a marker's path below its instant's marker folder."""
    data_path, found, word = text.rpartition(".marker.")
    if not found or not data_path:
        return None
    try:
        return data_path, MarkerType(word)
    except ValueError:
        return None


# -- our own ------------------------------------------------------------------------------------

_STAGED_COMMIT = "commit-"
_STAGED_ROWS = "rows-"
_CONTROL_FOLDER = re.compile(r"(\d+)-([0-9a-f]+)", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class ControlFolder:
    """``.hoodie/.robust/<instant>-<nonce>``: where one write keeps everything that is not Hudi's."""

    instant: InstantTime
    nonce: str

    @classmethod
    def parse(cls, path: str) -> ControlFolder | None:
        match = _CONTROL_FOLDER.fullmatch(path.rpartition("/")[2])
        return cls(instant=InstantTime(match[1]), nonce=match[2]) if match else None

    @property
    def path(self) -> str:
        return f"{ROBUST}/{self.instant}-{self.nonce}"

    @property
    def gate(self) -> str:
        """There as long as the write's tasks may stage files, with what the write is going to be."""
        return f"{self.path}/gate"

    @property
    def staging(self) -> str:
        """Where tasks write, on a store with folders."""
        return f"{self.path}/staging"

    @property
    def sealed(self) -> str:
        """What ``staging`` becomes when the gate is closed."""
        return f"{self.path}/sealed"

    @property
    def completions(self) -> str:
        return f"{self.path}/cm"

    def completion(self, slot: int) -> str:
        """The completion marker of a slot."""
        return f"{self.completions}/{slot}"

    @property
    def finalize(self) -> str:
        """Put when the gate is closed: what the gate said, how many slots there are, and which ones count."""
        return f"{self.path}/finalize"

    @property
    def compared(self) -> str:
        """Put by a driver that had counted the rows, once the slots together have them all."""
        return f"{self.path}/compared"

    @property
    def committing(self) -> str:
        """There while a driver that has the lock is about to decide, and to do what it has decided."""
        return f"{COMMITTING}/{self.instant}-{self.nonce}"

    @property
    def decision(self) -> str:
        """Put once: whether the write is to be committed, and as what."""
        return f"{self.path}/decision"

    def staged_commit(self, token: str) -> str:
        """The name of a commit file that waits in the folder to be published."""
        return f"{_STAGED_COMMIT}{token}"

    def staged_rows(self, task: int, token: str) -> str:
        """The name of rows on their way to where they are kept."""
        return f"{_STAGED_ROWS}{task}-{token}"

    def is_staged_here(self, path: str) -> bool:
        """Whether it is a staged commit file, or staged rows; where these are uploads, what tells of one."""
        return path.startswith((f"{self.path}/{_STAGED_COMMIT}", f"{self.path}/{_STAGED_ROWS}"))

    def may_come_of_it(self, path: str) -> bool:
        """Whether it is where those go: a file that the timeline has of this write, or rows that are kept."""
        folder, _, name = path.rpartition("/")
        if folder == self.rows_folder:
            return True
        instant = parse_instant_file(name) if folder == TIMELINE else None
        return instant is not None and instant.time == self.instant

    def may_be_staged(self, path: str, final_path: str) -> bool:
        """Whether a file that is to get this final path may wait here until it does.

        A file of the timeline waits in the folder, a data file in one of its two inner ones, under a
        name that begins as its final one.
        """
        folder, _, name = path.rpartition("/")
        where, _, final_name = final_path.rpartition("/")
        of_timeline = where == TIMELINE
        folders = {self.path} if of_timeline else {self.staging, self.sealed}
        begins = _STAGED_COMMIT if of_timeline else final_name
        return is_inside(path) and folder in folders and name.startswith(begins)

    @property
    def rows_folder(self) -> str:
        return f"{self.path}/rows"

    def rows(self, task: int) -> str:
        """The rows that wait for a task."""
        return f"{self.rows_folder}/{task}"
