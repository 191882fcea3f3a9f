"""What writes to a table promise, by how its store makes staged files visible."""

from __future__ import annotations

import html
from dataclasses import dataclass
from enum import Enum


class Promise(Enum):
    """What holds for every write, whatever tasks, stages, executors and drivers do."""

    EXACTLY_ONCE = "every accepted row stands in the table exactly once, and no key in two file groups"
    NOTHING_SPURIOUS = "no data file that no commit names is ever visible, and none remains"
    ONE_TRUTH = "the commits and the files in the store agree"
    NO_ZOMBIE = "a task or a driver that was given up can make nothing visible, however late it wakes"
    HONEST_OUTCOME = (
        "a durable write is never reported as failed nor a failed one as durable; one that nobody can "
        "tell raises CommitUnknownError and is settled by the next write"
    )


@dataclass(frozen=True, kw_only=True)
class Guarantees:
    """The mode of a table's store, what it promises, and where that ends."""

    url: str
    mode: str
    how: str
    """How files become visible."""
    promises: tuple[Promise, ...] = tuple(Promise)
    limits: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.url}: mode {self.mode}; {self.how}", "promised:"]
        lines += [f"  {number}. {promise.value}" for number, promise in enumerate(self.promises, 1)]
        lines += ["limits:", *(f"  - {limit}" for limit in self.limits)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        promised = "".join(f"<li>{html.escape(promise.value)}</li>" for promise in self.promises)
        limits = "".join(f"<li>{html.escape(limit)}</li>" for limit in self.limits)
        head = html.escape(f"{self.url}: mode {self.mode}; {self.how}")
        return f"<p>{head}</p><ol>{promised}</ol><p>limits</p><ul>{limits}</ul>"


FOREIGN_WRITER = (
    "a writer that shares no lock with ours (Hudi in its single-writer mode rolls back whatever is pending) "
    "can take a write away up to its last step: the write then fails, or says that its outcome is unknown"
)
SEVERAL_WRITERS = (
    "writers that are at work at once need a lock in common, and "
    "hoodie.write.concurrency.mode=optimistic_concurrency_control, or one takes the others for dead; of two "
    "that rewrite the same files, or insert the same key by upserts, the second fails then"
)
ARCHIVED = (
    "a driver that sleeps until its write was ended by others and archived is told that the outcome is "
    "unknown: the active timeline can't tell any more; a job with a write id that runs again finds it"
)
UPLOADS = (
    "a task or a driver that dies right after it began an upload may leave an upload that nobody sees and "
    "nobody knows, and so may a task that had not ended when Hudi rolled its write back: let the bucket "
    "expire incomplete uploads, later than the longest job"
)
COPIES = (
    "it was tried on an emulator of Azure's blob store, not on the service, and not on accounts with a "
    "hierarchical namespace; a service that takes its time to copy shows a file before it is whole"
)
OVERWRITE = (
    "between the decision of an overwrite and its commit file the old rows are read by the new properties"
)

UNCOUNTED = (
    "bulk_insert does not count its rows unless hoodie.write.robust.pin.input=check, and sees chance in a "
    "plan only by Spark's own functions; over Spark Connect "
    "rows that are made again while they are being pinned are not noticed"
)

EARLY = (
    "files are visible before the commit, and so are those of attempts that lose and of writes that fail, "
    "until they are deleted; readers that go by the timeline pass over them as long as the write is pending"
)
OUTLIVING = (
    "where there are no folders (S3, Azure) a task that outlives its write can make a file visible after the "
    "commit, and readers take its rows for committed a second time, until it deletes the file; if it dies "
    "before, for ever; or after the rollback, and the file stays"
)

_LIMITS = {
    "rename": (SEVERAL_WRITERS, FOREIGN_WRITER, ARCHIVED, OVERWRITE, UNCOUNTED),
    "multipart": (SEVERAL_WRITERS, FOREIGN_WRITER, ARCHIVED, UPLOADS, OVERWRITE, UNCOUNTED),
    "copy": (SEVERAL_WRITERS, FOREIGN_WRITER, ARCHIVED, COPIES, OVERWRITE, UNCOUNTED),
    "direct": (EARLY, OUTLIVING, SEVERAL_WRITERS, FOREIGN_WRITER, ARCHIVED, OVERWRITE, UNCOUNTED),
}
_HOW = {
    "rename": "tasks stage files in a folder that only the driver makes, and the driver renames them",
    "multipart": "tasks upload without completing, and the driver completes the uploads",
    "copy": "tasks stage objects in the write's control folder, and the driver has the store copy them",
    "direct": "tasks make their files visible, then put the completion marker; who lost deletes his own",
}
MODES = tuple(_HOW)


_DIRECT = (Promise.HONEST_OUTCOME,)
_DIRECT_WITH_FOLDERS = (Promise.EXACTLY_ONCE, Promise.ONE_TRUTH, Promise.HONEST_OUTCOME)


def guarantees_of(mode: str, url: str, *, folders: bool = False) -> Guarantees:
    """What holds for a table at this place.

    Parameters
    ----------
    folders
        The store has folders, so that one can be taken away from the tasks that write in it; what is
        promised of mode ``direct`` depends on it.
    """
    promises = tuple(Promise)
    if mode == "direct":
        promises = _DIRECT_WITH_FOLDERS if folders else _DIRECT
    return Guarantees(url=url, mode=mode, how=_HOW[mode], promises=promises, limits=_LIMITS[mode])
