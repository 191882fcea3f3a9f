"""One attempt at one slot: the five steps of RFC-79's write handles.

1. The gate: closed means that the write is over, and that nothing more is written.
2. The slot's completion marker: there means that another attempt was faster; its statuses are served.
3. Begin markers and staged files, by the handle (``create``, ``merge``, ``bulk``).
4. Every file closed, durable, and checked.
5. The completion marker, if none is there by now; else our files go, and the winner's statuses are served.

Tasks never publish, so however long an attempt sleeps, nothing that it does can be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from sparkrobust.core.control_object import MAX_BYTES, Kind
from sparkrobust.core.markers import (
    CompletionMarker,
    Fingerprint,
    Gate,
    Step,
    decide_attempt,
    other_rows,
    refuse_other_rows,
)
from sparkrobust.core.written import WrittenFile
from sparkrobust.errors import CorruptTableError, FencedError
from sparkrobust.handles.plan import FINGERPRINT, Attempt, SlotResult, WritePlan
from sparkrobust.handles.remake import remade
from sparkrobust.probe import Point, reached
from sparkrobust.storage.contract import AlreadyExistsError, NotFoundError

_SUM_RANGE = 1 << 64


def _read(plan: WritePlan, path: str) -> bytes:
    return plan.storage.read(path, at_most=MAX_BYTES)


def is_open(plan: WritePlan) -> bool:
    """Whether the gate is open: there, whole, and with our nonce."""
    control = plan.control
    try:
        Gate.parse(_read(plan, control.gate), Kind.GATE, nonce=control.nonce, path=control.gate)
    except (NotFoundError, CorruptTableError):
        return False
    finally:
        reached(Point.GATE_SEEN, instant=control.instant)
    return True


Write = Callable[[Iterator[pa.Table]], list[WrittenFile]]
"""A handle: writes the rows of a slot, and throws away what it wrote if it fails."""


@dataclass(frozen=True, kw_only=True)
class SlotAttempt:
    """An attempt at a slot of a write whose gate was looked at."""

    plan: WritePlan
    attempt: Attempt
    slot: int
    open_gate: bool

    def run(self, tables: Iterable[pa.Table], write: Write) -> SlotResult:
        """Write the slot, or serve what another attempt wrote.

        Raises
        ------
        FencedError
            The write is over, and there is nothing to serve.
        IndeterminateInputError
            The slot was given other rows before.
        """
        marker = self._marker()
        step = decide_attempt(open_gate=self.open_gate, done=marker is not None, reuse=self.plan.reuse)
        if step is Step.WRITE:
            return self._written(tables, write)
        if step is Step.FAIL:
            raise self._fenced()
        again = _Counted(tables).drained()
        if marker is not None:
            refuse_other_rows(marker, again, path=self._path)
        else:
            marker = remade(self.plan, self.attempt, self.slot)
        if marker is None:
            raise self._fenced()
        return SlotResult(slot=self.slot, attempt=self.attempt.token, marker=marker, reused=True)

    @property
    def _path(self) -> str:
        return self.plan.control.completion(self.slot)

    def _marker(self) -> CompletionMarker | None:
        try:
            data = _read(self.plan, self._path)
        except NotFoundError:
            return None
        return CompletionMarker.parse(data, self.plan.control, self.slot)

    def _fenced(self) -> FencedError:
        return FencedError(
            f"the write {self.plan.control.instant} is over; this task came late and wrote nothing",
            instant=self.plan.control.instant,
            path=self.plan.storage.url,
        )

    def _written(self, tables: Iterable[pa.Table], write: Write) -> SlotResult:
        counted = _Counted(tables)
        files = write(iter(counted))
        reached(Point.FILES_STAGED, slot=self.slot, attempt=self.attempt.token)
        mine = CompletionMarker(
            slot=self.slot, attempt=self.attempt.token, input=counted.fingerprint, files=tuple(files)
        )
        expected = self.plan.expected.get(self.slot, mine.input)
        if not expected.agrees_with(mine.input):
            self._discard(files)
            raise other_rows(f"slot {self.slot}", expected, mine.input, path=self._path)
        # An unclear answer is raised: the marker may stand, and then names our files.
        winner = self._win(mine)
        reached(Point.SLOT_DONE, slot=self.slot, attempt=self.attempt.token, winner=winner.attempt)
        if winner.attempt == mine.attempt:
            return SlotResult(slot=self.slot, attempt=self.attempt.token, marker=winner)
        self._discard(files)
        refuse_other_rows(winner, mine.input, path=self._path)
        return SlotResult(slot=self.slot, attempt=self.attempt.token, marker=winner, discarded=len(files))

    def _win(self, mine: CompletionMarker) -> CompletionMarker:
        """Put our marker if there is none; the one that stands."""
        try:
            self.plan.storage.put_if_absent(self._path, mine.render(self.plan.control.nonce))
            return mine
        except AlreadyExistsError:
            winner = self._marker()
        except NotFoundError:
            winner = None
        if winner is None:
            self._discard(mine.files)
            raise self._fenced()
        return winner

    def _discard(self, files: Iterable[WrittenFile]) -> None:
        for file in files:
            self.plan.storage.discard(file.staged.token)


class _Counted:
    """Rows on their way to a handle, counted."""

    def __init__(self, tables: Iterable[pa.Table]) -> None:
        self._tables = tables
        self._rows = 0
        self._keys: int | None = 0

    def __iter__(self) -> Iterator[pa.Table]:
        for table in self._tables:
            self._rows += table.num_rows
            if FINGERPRINT not in table.column_names:
                self._keys = None
            elif self._keys is not None and table.num_rows:
                self._keys = (self._keys + pc.sum(table[FINGERPRINT]).as_py()) % _SUM_RANGE
            yield table

    @property
    def fingerprint(self) -> Fingerprint:
        return Fingerprint(rows=self._rows, keys=self._keys)

    def drained(self) -> Fingerprint:
        """The fingerprint of rows that nobody wants."""
        for _ in self:
            pass
        return self.fingerprint
