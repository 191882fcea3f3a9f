"""How a write ends that an error has stopped: the error says what the table holds of it then."""

from __future__ import annotations

from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.core.outcome import tell_committed, tell_undone


def end(transaction: Transaction, error: BaseException) -> bool:
    """Undo a write that an error has stopped, at any point of it; the error then says what became of it.

    So does ``transaction.fenced``, where others had given the write up.

    Returns
    -------
    ``False`` if another driver has committed the write meanwhile.

    Raises
    ------
    CommitUnknownError
        Nobody can tell yet.
    """
    path, instant = transaction.table.storage.url, transaction.time
    if not transaction.abort(f"its driver failed: {error!r:.200}"):
        tell_committed(error, path=path, instant=instant)
        return False
    for one in filter(None, (error, transaction.fenced)):
        tell_undone(one, path=path, instant=instant)
    return True
