"""What stands in a write's control folder, and what an attempt concludes from it (RFC-79).

* The **gate** is open while it is there with the write's nonce: absent, unreadable or another one
  means closed.  A fence that is there only while it holds could be missing for the wrong reason.
* A **completion marker** says that a slot is done, by which attempt, with which files.  Whoever
  puts it first has won the slot; everybody else serves what it says.  The driver puts the one of a
  slot that no rows came to, which no task tells of.
* The **finalize marker** is the driver's: from now on no attempt writes, and the slots are these.

Completion markers are put if absent, whole and durable; none is ever replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from enum import Enum

from sparkrobust.core import control_object
from sparkrobust.core.conflicts import NOTHING, Begun
from sparkrobust.core.control_object import Kind
from sparkrobust.core.fields import Fields, is_text
from sparkrobust.core.instant import Action, InstantTime
from sparkrobust.core.names import BaseFileName, ControlFolder, joined
from sparkrobust.core.partition_path import problem_with
from sparkrobust.core.redo import done_last
from sparkrobust.core.write_status import OperationType
from sparkrobust.core.written import WrittenFile
from sparkrobust.errors import IndeterminateInputError

_ATTEMPT_LENGTH = 64
_NO_ATTEMPT = "none"
_SAME_ROWS = "write rows that a second reading gives again: cache them, or store them first"
_SUM_RANGE = 1 << 64


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a write is going to be: all that a commit says and that its files do not tell."""

    action: Action
    operation: OperationType
    schema: str
    extra: Mapping[str, str] = field(default_factory=dict)
    """Of the commit's extra metadata."""
    replaces_table: bool = False
    """Every file group that is there when it commits goes."""
    new_properties: Mapping[str, str] | None = None
    """What the table is afterwards, where the write puts a new one in place of the old one."""
    may_drop_metadata_table: bool = False

    def to_plain(self) -> dict[str, object]:
        return {
            "action": self.action.value,
            "operation": self.operation.value,
            "schema": self.schema,
            "extra": dict(self.extra),
            "replaces_table": self.replaces_table,
            "new_properties": None if self.new_properties is None else dict(self.new_properties),
            "may_drop_metadata_table": self.may_drop_metadata_table,
        }

    @classmethod
    def from_plain(cls, plain: object, *, path: str) -> Terms:
        names = {field.name for field in cls.__dataclass_fields__.values()}
        found = Fields(plain, names, path=path)
        action, operation = found.text("action"), found.text("operation")
        if action not in (Action.COMMIT.value, Action.REPLACE_COMMIT.value):
            found.refuse("an action of a write", action)
        if operation not in {one.value for one in OperationType}:
            found.refuse("an operation", operation)
        return cls(
            action=Action(action),
            operation=OperationType(operation),
            schema=found.text("schema"),
            extra=found.texts("extra"),
            replaces_table=found.flag("replaces_table"),
            new_properties=found.optional("new_properties", found.texts),
            may_drop_metadata_table=found.flag("may_drop_metadata_table"),
        )


@dataclass(frozen=True, kw_only=True)
class Gate:
    """The open gate, and the finalize marker that takes its place."""

    terms: Terms
    slots: int | None
    """How many there are; ``None`` as long as only Spark knows, which decides how many tasks it runs."""
    counted: bool = False
    """Its driver knows which rows the slots must have together, and says so when it has compared them."""
    begun: Begun = NOTHING
    """What it was planned from, for whoever commits it."""
    lock: str = ""
    """The lock by which it goes, as all call it who share it, and under which alone others may commit it;
    empty where only the threads of a process do."""
    superseded: Mapping[int, int] = field(default_factory=dict)
    """Slots that do not count, each with the one that was done in its place; the gate knows of none."""

    @property
    def standing(self) -> Iterator[int]:
        """The slots that count."""
        return (slot for slot in range(self.slots or 0) if slot not in self.superseded)

    def render(self, kind: Kind, nonce: str) -> bytes:
        plain = {"terms": self.terms.to_plain(), "slots": self.slots, "counted": self.counted}
        begun = {"newest": self.begun.newest, "pending": sorted(self.begun.pending)}
        superseded = [list(pair) for pair in sorted(self.superseded.items())]
        more = {"begun": begun, "lock": self.lock, "superseded": superseded}
        return control_object.render(kind, nonce, {**plain, **more})

    @classmethod
    def parse(cls, data: bytes, kind: Kind, *, nonce: str, path: str) -> Gate:
        plain = control_object.parse(data, kind, nonce=nonce, path=path)
        found = Fields(plain, {"terms", "slots", "counted", "begun", "lock", "superseded"}, path=path)
        terms = Terms.from_plain(found.plain("terms"), path=path)
        slots = found.optional("slots", found.count)
        begun = Fields(found.plain("begun"), {"newest", "pending"}, path=path)
        pending = begun.items("pending")
        if not all(map(is_text, pending)):
            begun.refuse("instants", pending)
        superseded = found.items("superseded")
        if not all(_is_in_place(one, slots or 0) for one in superseded) or (superseded and kind is Kind.GATE):
            found.refuse("slots, and those that were done in their place", superseded)
        if len(dict(superseded)) < len(superseded) or len({new for _, new in superseded}) < len(superseded):
            found.refuse("each slot in the place of one", superseded)
        return cls(
            terms=terms,
            slots=slots,
            counted=found.flag("counted"),
            begun=Begun(newest=begun.text("newest"), pending=frozenset(pending)),
            lock=found.text("lock"),
            superseded=dict(superseded),
        )


def _is_in_place(pair: object, slots: int) -> bool:
    """Whether it is a slot, and one that came after it."""
    if not (isinstance(pair, list) and len(pair) == 2 and all(type(one) is int for one in pair)):
        return False
    old, new = pair
    return bool(0 <= old < new < slots)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fingerprint:
    """Which rows a slot was given, whatever their order: how many, and the sum of their keys' hashes."""

    rows: int
    keys: int | None = None
    """``None`` where the rows can't differ from one reading to the next."""

    def plus(self, other: Fingerprint) -> Fingerprint:
        """Of these rows and those."""
        known = self.keys is not None and other.keys is not None
        keys = ((self.keys or 0) + (other.keys or 0)) % _SUM_RANGE if known else None
        return Fingerprint(rows=self.rows + other.rows, keys=keys)

    def agrees_with(self, other: Fingerprint) -> bool:
        """Whether both can be of the same rows."""
        if self.keys is None or other.keys is None:
            return self.rows == other.rows
        return self == other

    def __str__(self) -> str:
        return f"{self.rows} rows" + (f" with the sum {self.keys:x}" if self.keys is not None else "")


NO_ROWS = Fingerprint(rows=0, keys=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class CompletionMarker:
    """A slot that is done."""

    slot: int
    attempt: str
    """The write token of the attempt that won."""
    input: Fingerprint
    files: tuple[WrittenFile, ...]

    @classmethod
    def without_rows(cls, slot: int) -> CompletionMarker:
        """Of a slot that no rows came to, and no attempt worked on."""
        return cls(slot=slot, attempt=_NO_ATTEMPT, input=NO_ROWS, files=())

    def without_keys(self) -> CompletionMarker:
        """The same without the hashes of keys, which may be many."""
        return replace(self, files=tuple(replace(file, new_keys=b"") for file in self.files))

    def to_plain(self) -> dict[str, object]:
        return {
            "slot": self.slot,
            "attempt": self.attempt,
            "rows": self.input.rows,
            "keys": self.input.keys,
            "files": [file.to_plain() for file in self.files],
        }

    @classmethod
    def from_plain(cls, plain: object, control: ControlFolder, slot: int) -> CompletionMarker:
        """A marker of this slot, with no file outside of where a write's files belong."""
        found = Fields(plain, {"slot", "attempt", "rows", "keys", "files"}, path=control.completion(slot))
        if found.count("slot") != slot:
            found.refuse(f"a marker of slot {slot}", found.count("slot"))
        attempt = found.text("attempt")
        if not 0 < len(attempt) <= _ATTEMPT_LENGTH:
            found.refuse("an attempt's token", attempt)
        keys = found.plain("keys")
        if keys is not None and (type(keys) is not int or not 0 <= keys < _SUM_RANGE):
            found.refuse("a sum of hashes", keys)
        path = control.completion(slot)
        files = tuple(WrittenFile.from_plain(one, path=path) for one in found.items("files"))
        for file in files:
            problem = _misplaced(file, control.instant, attempt)
            if problem is not None:
                found.refuse(problem, file.staged.final_path)
        if len({file.staged.final_path for file in files}) != len(files):
            found.refuse("each file once", attempt)
        fingerprint = Fingerprint(rows=found.count("rows"), keys=keys)
        return cls(slot=slot, attempt=attempt, input=fingerprint, files=files)

    def render(self, nonce: str) -> bytes:
        return control_object.render(Kind.COMPLETION, nonce, self.to_plain())

    @classmethod
    def parse(cls, data: bytes, control: ControlFolder, slot: int) -> CompletionMarker:
        path = control.completion(slot)
        plain = control_object.parse(data, Kind.COMPLETION, nonce=control.nonce, path=path)
        marker = cls.from_plain(plain, control, slot)
        for file in marker.files:
            if not file.staged.belongs_to(control):
                control_object.refuse(path, f"a staged file of {control.path}", repr(file.staged.token[:200]))
        return marker


def _misplaced(file: WrittenFile, instant: InstantTime, attempt: str) -> str | None:
    """What the place of a file should have been."""
    stat, partition = file.stat, file.stat.partition_path or ""
    if problem_with(file.staged.final_path) is not None:
        return "a file in a partition of the table"
    name = BaseFileName(file_id=stat.file_id, write_token=attempt, instant=instant)
    if BaseFileName.parse(str(name)) != name:
        return "the name of a base file"
    if not file.staged.final_path == stat.path == joined(partition, str(name)):
        return f"the file {joined(partition, str(name))}"
    if stat.file_size_in_bytes != file.staged.size:
        return f"{stat.file_size_in_bytes} bytes"
    return None


# -- what an attempt does --------------------------------------------------------------------------------


class Step(Enum):
    """What an attempt does next."""

    WRITE = "write"
    """Nobody has done the slot."""
    SERVE = "serve"
    """Somebody has: read the rows only to compare them, and return what the marker says."""
    REMAKE = "remake"
    """The write is over: return what was written for the slot, and write nothing."""
    FAIL = "fail"
    """The write is over, and the write asked for a failure then."""


def decide_attempt(*, open_gate: bool, done: bool, reuse: bool) -> Step:
    """What an attempt does after its look.

    Parameters
    ----------
    open_gate
        The gate is there, with our nonce.
    done
        The slot has a completion marker.
    reuse
        ``hoodie.write.robust.on.finalized`` is ``reuse``.
    """
    if open_gate:
        return Step.SERVE if done else Step.WRITE
    if not reuse:
        return Step.FAIL
    return Step.SERVE if done else Step.REMAKE


def other_rows(
    what: str, first: Fingerprint, again: Fingerprint, *, path: str | None = None
) -> IndeterminateInputError:
    """The error for rows that were others when they were read again."""
    return IndeterminateInputError(
        f"{what} was given {first} at first, and {again} when the input was read again",
        path=path,
        hint=_SAME_ROWS,
    )


def other_way(slots: int) -> IndeterminateInputError:
    """The error for slots that were not done, though each task of the stage has ended."""
    return IndeterminateInputError(
        f"the rows of {slots} file groups did not come the way that was planned: "
        "the input gave other rows when it was read again",
        hint=_SAME_ROWS,
    )


def refuse_other_rows(marker: CompletionMarker, again: Fingerprint, *, path: str) -> None:
    """``IndeterminateInputError`` if another reading of a slot's rows gave other rows."""
    if not marker.input.agrees_with(again):
        raise other_rows(f"slot {marker.slot}", marker.input, again, path=path)


def refuse_lost_rows(
    markers: Iterable[CompletionMarker],
    expected: Iterable[tuple[Set[int], Fingerprint]],
    superseded: Mapping[int, int],
) -> None:
    """``IndeterminateInputError`` unless the slots together got the rows that were counted before.

    A slot that was done in the place of another one must have its rows.
    """
    given = {marker.slot: marker.input for marker in markers}
    for slots, rows in expected:
        found = NO_ROWS
        for slot in slots:
            found = found.plus(given[done_last(slot, superseded)])
        if not rows.agrees_with(found):
            raise other_rows(f"a set of {len(slots)} slots", rows, found)
