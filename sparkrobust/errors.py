"""Every error that sparkrobust raises, in one tree, grouped by what the caller does next.

An error carries what a program needs to act on it (``kind``, ``instant``, ``path``, ``hint``,
``outcome``) and what a person needs to understand it (the message, with the hint appended).  It
survives pickling, because errors cross from executors to the driver.
"""

from __future__ import annotations

from enum import Enum
from typing import Any


class CommitOutcome(str, Enum):
    """What became of a write.  ``save`` returns for the first, and raises for the others.

    Each is a text, too, so that it can be compared with one, logged and sent as it is.
    """

    COMMITTED = "Committed"
    """It is part of the table."""
    CONFLICTED = "Conflicted"
    """It is not, and never will be: another writer won."""
    RETRYABLE = "Retryable"
    """It is not, and never will be: to make it again doubles nothing."""
    UNKNOWN = "Unknown"
    """It may be part of the table, or become one; the error says what to look at."""

    def __str__(self) -> str:
        return self.value


class RobustWriteError(Exception):
    """Base of all errors of this library.

    Parameters
    ----------
    message
        What happened, in a sentence.
    kind
        A stable, append-only word for programs; the default is the class's own.
    instant, path
        The instant and the table or file concerned, when there is one.
    hint
        What the caller can do about it.
    outcome
        What became of the write that the error ends.  ``None`` where none was begun, or where the caller
        has to change something first: nothing of it is part of the table then, or ever will be.
    """

    default_kind = "error"
    default_outcome: CommitOutcome | None = None
    """Where an error of the class can only be raised when so much is known."""

    def __init__(
        self,
        message: str,
        *,
        kind: str | None = None,
        instant: str | None = None,
        path: str | None = None,
        hint: str | None = None,
        outcome: CommitOutcome | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind or self.default_kind
        self.instant = instant
        self.path = path
        self.hint = hint
        self.outcome = outcome or self.default_outcome

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.__dict__.copy())


def _rebuild(cls: type[RobustWriteError], message: str, state: dict[str, Any]) -> RobustWriteError:
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


# -- the caller must change something; nothing was written ------------------------------------


class InvalidInputError(RobustWriteError, ValueError):
    """The input or the call is wrong; nothing was written."""

    default_kind = "invalid-input"


class InvalidOptionError(InvalidInputError):
    """One or more options are unknown, malformed, or contradict the table; all are named."""

    default_kind = "invalid-option"


class SchemaConflictError(InvalidInputError):
    """The rows' schema can't be reconciled with the table's."""

    default_kind = "schema-conflict"


class InvalidKeyError(InvalidInputError):
    """A record key or an ordering value is missing, null or empty."""

    default_kind = "invalid-key"


class UnsafePathError(InvalidInputError):
    """A partition value that would leave the table, or its own place in it."""

    default_kind = "unsafe-path"


class IndeterminateInputError(InvalidInputError):
    """The input gave other rows when it was read again; nothing was committed."""

    default_kind = "indeterminate-input"


# -- no table, or one that we can't serve -------------------------------------------------------


class TableNotFoundError(RobustWriteError):
    """There is no Hudi table at the path."""

    default_kind = "table-not-found"


class UnsupportedTableError(RobustWriteError):
    """The table, or the store below it, has a feature that we refuse; the hint names the way out."""

    default_kind = "unsupported-table"


# -- others got there first ----------------------------------------------------------------------


class ConflictError(RobustWriteError):
    """Another writer won."""

    default_kind = "conflict"
    default_outcome = CommitOutcome.CONFLICTED


class FencedError(RobustWriteError):
    """This attempt or driver was given up by others; it changed nothing."""

    default_kind = "fenced"


class OperationCancelled(RobustWriteError):
    """Stopped by request, Ctrl-C or SIGTERM; the write was rolled back."""

    default_kind = "cancelled"
    default_outcome = CommitOutcome.RETRYABLE


# -- services ------------------------------------------------------------------------------------


class LockError(RobustWriteError):
    """The table's lock could not be had, or was lost."""

    default_kind = "lock"


class HeartbeatLostError(RobustWriteError):
    """Our heartbeat expired: others may already be rolling this write back."""

    default_kind = "heartbeat-lost"


class UnavailableError(RobustWriteError):
    """The storage or a service failed; trying again is right."""

    default_kind = "unavailable"


class StorageFullError(RobustWriteError):
    """No space is left on the store."""

    default_kind = "storage-full"


class PermissionDeniedError(RobustWriteError):
    """The store refuses us this operation."""

    default_kind = "permission-denied"


class CommitUnknownError(RobustWriteError):
    """Whether the write is durable could not be found out; the message says what to look at."""

    default_kind = "commit-unknown"
    default_outcome = CommitOutcome.UNKNOWN


class CorruptTableError(RobustWriteError):
    """A file of the table is missing, torn or not what it must be; the path names it."""

    default_kind = "corrupt-table"


class FileGoneError(CorruptTableError):
    """A file of the table is not there, though the timeline tells of it."""

    default_kind = "file-gone"


class InternalError(RobustWriteError):
    """A bug of ours."""

    default_kind = "internal"
