"""``hoodie.properties``: read, created, and updated so that there is a valid copy at every moment.

Hudi's writers put the old content into a backup, take the file away and write it anew; a reader or
the next update that finds the file missing or torn goes by the backup.  So do we with what they left.
We replace the file in one step, and only the very version that was read: two drivers that finish
the same write may both be at it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timezone

from sparkrobust.core.names import PROPERTIES, PROPERTIES_BACKUP
from sparkrobust.errors import (
    CommitOutcome,
    ConflictError,
    CorruptTableError,
    RobustWriteError,
    TableNotFoundError,
)
from sparkrobust.formats import properties
from sparkrobust.storage.contract import AlreadyExistsError, ChangedError, NotFoundError, Storage
from sparkrobust.world import Clock

CHECKSUM = "hoodie.table.checksum"

_ROUNDS = 5
_PAUSE_SECONDS = 1.0

Values = dict[str, str]


def _valid(storage: Storage, path: str) -> Values:
    return _checked(storage.read(path, at_most=properties.MAX_BYTES), path)


def _checked(data: bytes, path: str) -> Values:
    values = properties.parse(data, path=path)
    if "hoodie.table.name" not in values:
        raise CorruptTableError(f"{path}: there is no hoodie.table.name in it", path=path)
    properties.verify_checksum(values, path)
    return values


def read_properties(storage: Storage, clock: Clock) -> Values:
    """The file, else its backup; both are looked at again while an update may be under way."""
    problem: RobustWriteError | None = None
    for attempt in range(_ROUNDS):
        missing = 0
        for path in (PROPERTIES, PROPERTIES_BACKUP):
            try:
                return _valid(storage, path)
            except NotFoundError:
                missing += 1
            except CorruptTableError as error:
                problem = problem or error
        if attempt == _ROUNDS - 1:
            break
        # With both there and both wrong nobody is at work: waiting would mend nothing.
        if not missing:
            break
        clock.sleep(_PAUSE_SECONDS)
    if problem is not None:
        raise problem
    raise TableNotFoundError(
        f"{storage.url} has a .hoodie folder without {PROPERTIES}",
        path=storage.url,
        hint="if no other writer is making the table just now, remove the empty .hoodie folder",
    )


def _rendered(values: Mapping[str, str], comment: str, clock: Clock) -> bytes:
    now = datetime.fromtimestamp(clock.now_ms() / 1000, timezone.utc)
    stamp = f"{comment} {now.isoformat(timespec='milliseconds').replace('+00:00', 'Z')}"
    return properties.render(values, (stamp, properties.comment_date(now)))


def create_properties(storage: Storage, values: Mapping[str, str], clock: Clock) -> Values | None:
    """Make the file; what stands in it, ``None`` if another writer has made the table meanwhile."""
    whole = {**values, CHECKSUM: str(properties.table_checksum(values))}
    try:
        storage.put_if_absent(PROPERTIES, _rendered(whole, "Properties saved on", clock))
    except AlreadyExistsError:
        return None
    return whole


def update_properties(storage: Storage, change: Callable[[Values], Values], clock: Clock) -> Values:
    """Change the file; ``change`` is asked again if another writer was faster."""
    for _ in range(_ROUNDS):
        _recover(storage)
        data, version = storage.read_versioned(PROPERTIES, at_most=properties.MAX_BYTES)
        before = _checked(data, PROPERTIES)
        values = change(dict(before))
        if values == before:
            return before
        values[CHECKSUM] = str(properties.table_checksum(values))
        try:
            storage.replace_if_unchanged(PROPERTIES, _rendered(values, "Updated at", clock), version)
        except (ChangedError, NotFoundError):
            clock.sleep(_PAUSE_SECONDS)
            continue
        return values
    raise ConflictError(
        f"{PROPERTIES} of {storage.url} was changed by others {_ROUNDS} times in a row",
        path=PROPERTIES,
        outcome=CommitOutcome.RETRYABLE,
    )


def _recover(storage: Storage) -> None:
    """Finish or undo an update that somebody did not end."""
    try:
        backup = storage.read(PROPERTIES_BACKUP, at_most=properties.MAX_BYTES)
    except NotFoundError:
        return
    try:
        _valid(storage, PROPERTIES)
    except (NotFoundError, CorruptTableError):
        _valid(storage, PROPERTIES_BACKUP)
        storage.delete(PROPERTIES)
        storage.put_if_absent(PROPERTIES, backup)
    storage.delete(PROPERTIES_BACKUP)
