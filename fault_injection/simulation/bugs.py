"""Mistakes that the protocol could have, each to be built in on purpose: the simulated world must find them.

A bug is a patch of the real code, in place as long as its ``with`` block.  A world that doesn't find
one that it is meant to find says nothing when it finds nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary

from greenlet import getcurrent

from fault_injection.simulation import actors
from fault_injection.simulation.stores import SimulatedBucket, SimulatedDisk, StagedBytes
from sparkrobust.coordinator import (
    conflicts,
    forward,
    locking,
    planned,
    redo,
    rollback,
    services,
    transaction,
)
from sparkrobust.coordinator.control import Control
from sparkrobust.coordinator.key_conflicts import KeyCheck
from sparkrobust.core import decision
from sparkrobust.core import redo as core_redo
from sparkrobust.core.conflicts import FileGroup
from sparkrobust.core.decision import Abort, Commit, Decision
from sparkrobust.core.file_ids import Slot
from sparkrobust.core.instant import InstantTime
from sparkrobust.core.markers import CompletionMarker, Fingerprint
from sparkrobust.core.names import ControlFolder, marker_folder
from sparkrobust.core.written import StagedFile
from sparkrobust.handles.attempt import SlotAttempt
from sparkrobust.storage.contract import NotFoundError, Storage
from sparkrobust.storage.turns import CopyingStorage

Patch = Callable[[ExitStack], None]
BUGS: dict[str, Patch] = {}


@contextmanager
def with_bug(name: str) -> Iterator[None]:
    """Build a bug in."""
    with ExitStack() as stack:
        BUGS[name](stack)
        yield


def _bug(function: Patch) -> Patch:
    BUGS[function.__name__.strip("_").replace("_", " ")] = function
    return function


def _put(stack: ExitStack, where: Any, name: str, what: Any) -> None:
    stack.enter_context(mock.patch.object(where, name, what))


@_bug
def _marker_before_sync(stack: ExitStack) -> None:
    """The marker is put before the files are whole, and nobody looks at their sizes."""
    real_finish, real_run = StagedBytes.finish, SlotAttempt.run
    unfinished: WeakKeyDictionary[Any, list[Callable[[], None]]] = WeakKeyDictionary()

    def finish(self: StagedBytes) -> StagedFile:
        if not self.final_path.endswith(".parquet"):
            return real_finish(self)
        data = bytes(self.data)
        late = lambda: self.storage.finish_staged(self.token, data)  # noqa: E731
        unfinished.setdefault(getcurrent(), []).append(late)
        self.settled = True
        return StagedFile(final_path=self.final_path, token=self.token, size=len(data))

    def run(self: SlotAttempt, tables: Any, write: Any) -> Any:
        result = real_run(self, tables, write)
        for late in unfinished.pop(getcurrent(), []):
            late()
        return result

    _put(stack, StagedBytes, "finish", finish)
    _put(stack, SlotAttempt, "run", run)
    _put(stack, Control, "verify_staged", lambda self, files: None)


@_bug
def _publish_before_marker(stack: ExitStack) -> None:
    """The RFC's literal order: a task makes its files visible, and the loser deletes its own."""
    real = SlotAttempt._win

    def win(self: SlotAttempt, mine: CompletionMarker) -> CompletionMarker:
        self.plan.storage.publish_all([file.staged for file in mine.files])
        return real(self, mine)

    _put(stack, SlotAttempt, "_win", win)


@_bug
def _no_decision_object(stack: ExitStack) -> None:
    """Everybody decides for himself."""
    _put(stack, Control, "decide", lambda self, wanted: wanted)
    _put(stack, Control, "decision", lambda self: None)


@_bug
def _rollback_without_abort(stack: ExitStack) -> None:
    """A rollback decides nothing; the driver that it believes dead may still commit."""
    real = Control.decide

    def decide(self: Control, wanted: Decision) -> Decision:
        return wanted if isinstance(wanted, Abort) else real(self, wanted)

    _put(stack, Control, "decide", decide)


@_bug
def _decision_read_again(stack: ExitStack) -> None:
    """Whoever finishes a write goes by what lies there when he comes to it, not by what he had looked at."""
    real = forward.roll_forward

    def roll_forward(table: Any, where: Control, commit: Commit, **how: Any) -> Any:
        if forward.look(table, where.folder, commit.action) is None:
            again: object = None
            with suppress(NotFoundError):
                again = decision.parse(where.storage.read(where.folder.decision), where.folder)
            if isinstance(again, Commit):
                table.storage.publish_all(again.files)
                table.storage.publish(again.commit_file)
                return forward.Ending.DURABLE
        return real(table, where, commit, **how)

    for module in (transaction, rollback):
        _put(stack, module, "roll_forward", roll_forward)


@_bug
def _no_look_after_deciding(stack: ExitStack) -> None:
    """What happened while a driver slept does not interest it."""
    _put(stack, forward, "look", lambda table, folder, action: None)
    _put(stack, forward, "_glance", lambda table, folder, commit: None)


@_bug
def _commit_file_put_plainly(stack: ExitStack) -> None:
    """The commit file is written, and not consumed from where it was staged."""
    _commit_by(stack, lambda storage, staged, data: storage.put_if_absent(staged.final_path, data))


@_bug
def _commit_file_linked(stack: ExitStack) -> None:
    """The commit file is copied into place: its source stays."""

    def link(storage: Storage, staged: StagedFile, data: bytes) -> None:
        storage.put(staged.final_path, data)

    _commit_by(stack, link)


def _commit_by(stack: ExitStack, how: Callable[[Storage, StagedFile, bytes], None]) -> None:
    contents: dict[str, bytes] = {}
    real_finish = StagedBytes.finish

    def finish(self: StagedBytes) -> StagedFile:
        contents[self.token] = bytes(self.data)
        return real_finish(self)

    _put(stack, StagedBytes, "finish", finish)
    for kind in (SimulatedBucket, SimulatedDisk):
        real = kind.publish

        def publish(self: Any, staged: StagedFile, real: Any = real) -> None:
            if staged.final_path.endswith(".parquet"):
                real(self, staged)
            else:
                how(self, staged, contents[staged.token])

        _put(stack, kind, "publish", publish)


@_bug
def _blind_sweep(stack: ExitStack) -> None:
    """What is not on the active timeline was never committed, says a sweep that knows no archive."""
    real = forward.look

    def look(table: Any, folder: ControlFolder, action: Any) -> Any:
        found = real(table, folder, action)
        return forward.Ending.GIVEN_UP if found is forward.Ending.OUT_OF_SIGHT else found

    _put(stack, forward, "look", look)


@_bug
def _parents_made_by_tasks(stack: ExitStack) -> None:
    """A task that finds its folders gone makes them again."""
    real_folder, real_stage, real_put = (
        SimulatedDisk.make_folder,
        SimulatedDisk.stage,
        SimulatedDisk.put_if_absent,
    )

    def make_folder(self: Any, folder: str, *, under: str = "") -> None:
        real_folder(self, folder)

    def stage(self: Any, folder: str, name: str, final_path: str) -> Any:
        real_folder(self, folder)
        return real_stage(self, folder, name, final_path)

    def put_if_absent(self: Any, path: str, data: bytes) -> None:
        real_folder(self, path.rpartition("/")[0])
        real_put(self, path, data)

    _put(stack, SimulatedDisk, "make_folder", make_folder)
    _put(stack, SimulatedDisk, "stage", stage)
    _put(stack, SimulatedDisk, "put_if_absent", put_if_absent)


@_bug
def _negative_gate(stack: ExitStack) -> None:
    """A write is open as long as no finalize marker is there, which goes with the other markers."""

    def is_open(plan: Any) -> bool:
        return plan.storage.stat(plan.control.finalize) is None

    _put(stack, actors, "is_open", is_open)


@_bug
def _control_files_in_temp(stack: ExitStack) -> None:
    """Completion markers lie beside the begin markers, where Hudi's rollback stumbles over them."""

    def completion(self: ControlFolder, slot: int) -> str:
        return f"{marker_folder(self.instant)}/{slot}.cm"

    _put(stack, ControlFolder, "completion", completion)


@_bug
def _no_nonce(stack: ExitStack) -> None:
    """A write is known by its instant alone, which may come again."""

    def new_folder(self: transaction.Transaction) -> ControlFolder:
        return replace(real(self), nonce="0")

    real = transaction.Transaction._new_folder
    _put(stack, transaction.Transaction, "_new_folder", new_folder)


@_bug
def _a_slot_without_a_marker_is_taken_for_an_empty_one(stack: ExitStack) -> None:
    """Finalize does not insist on every slot."""
    real = Control.completions

    def completions(self: Control, slots: Any) -> Any:
        wanted = list(slots)
        found = real(self, wanted[:-1]) if len(wanted) > 1 else real(self, wanted)
        return {
            slot: found.get(slot)
            or CompletionMarker(slot=slot, attempt="0-0-0", input=Fingerprint(rows=0), files=())
            for slot in wanted
        }

    _put(stack, Control, "completions", completions)


@_bug
def _the_decision_is_removed_first(stack: ExitStack) -> None:
    """Cleaning up begins with the decision, so a rollback that comes late decides anew."""
    real = Control.remove

    def remove(self: Control, published: Any = None) -> None:
        if not self.storage.staging.has_folders:
            self.storage.delete(self.folder.decision)
        real(self, published)

    _put(stack, Control, "remove", remove)


@_bug
def _a_failed_write_says_nothing_to_the_others(stack: ExitStack) -> None:
    """A driver that fails does not decide ABORT, and tells its caller that the write failed."""
    _put(stack, transaction.Transaction, "abort", lambda self, reason: True)


@_bug
def _completion_markers_are_removed_unread(stack: ExitStack) -> None:
    """What only they tell of, when Hudi has taken the begin markers away, stays for ever."""
    _put(stack, Control, "_discard_completed", lambda self, paths: None)


@_bug
def _copied_without_a_turn(stack: ExitStack) -> None:
    """The commit file is copied by anybody from where it was staged, as data files are."""
    _put(stack, CopyingStorage, "publish_last", Storage.publish_last)


@_bug
def _a_turn_without_a_look(stack: ExitStack) -> None:
    """Whether the write has ended is asked before the turn is taken, and not again."""
    real = CopyingStorage.publish_last

    def publish_last(self: Any, staged: StagedFile, look: Any, *, alone: bool = False) -> Any:
        ended = look()
        return ended or real(self, staged, lambda: None, alone=alone)

    _put(stack, CopyingStorage, "publish_last", publish_last)


@_bug
def _a_turn_that_leaves_the_others(stack: ExitStack) -> None:
    """Who takes a turn does not delete the ones before."""
    _put(stack, CopyingStorage, "_outdo", lambda self, *lower: None)


# -- many writers ------------------------------------------------------------------------------------------


@_bug
def _file_groups_are_not_compared(stack: ExitStack) -> None:
    """A write commits whatever others have done to its file groups."""
    _put(stack, transaction, "refuse_conflicts", lambda table, plan: None)


@_bug
def _keys_are_not_compared(stack: ExitStack) -> None:
    """A key that another write has inserted meanwhile is inserted once more."""
    _put(stack, KeyCheck, "refuse", lambda self: None)


@_bug
def _done_again_from_the_old_file(stack: ExitStack) -> None:
    """A slot that is done once more is made from the file that it was planned with, and passes for newer."""
    real_in_place, real_made_from = core_redo.in_place, redo.made_from

    def in_place(slots: Any, *how: Any) -> dict[int, Slot]:
        found = real_in_place(slots, *how)
        return {old: replace(new, base=slots[old].base) for old, new in found.items()}

    def made_from(markers: Any, superseded: Any) -> dict[FileGroup, str]:
        return dict.fromkeys(real_made_from(markers, superseded), "9")

    _put(stack, redo, "in_place", in_place)
    _put(stack, transaction, "made_from", made_from)


@_bug
def _done_again_behind_a_later_write(stack: ExitStack) -> None:
    """A slot is done once more whoever came before, also one whose file is taken for the newer one."""
    real = core_redo.may_redo

    def may_redo(me: Any, *how: Any) -> bool:
        return real(InstantTime("9"), *how)

    _put(stack, redo, "may_redo", may_redo)


@_bug
def _pending_plans_are_not_compared(stack: ExitStack) -> None:
    """A write commits to a file group that a table service is going to change, or is about to."""
    _put(stack, conflicts, "pending_candidates", lambda *how: iter(()))


@_bug
def _nobody_lives(stack: ExitStack) -> None:
    """Whatever is pending has failed."""
    _put(stack, rollback, "living", lambda table: frozenset())


@_bug
def _who_loses_the_lock_goes_on(stack: ExitStack) -> None:
    """A driver that lost the lock while it slept, after its last look, decides all the same."""
    _put(stack, locking, "_fence", lambda table, mine: None)


@_bug
def _executed_by_two(stack: ExitStack) -> None:
    """Nobody asks whether another one executes the plan of a table service."""
    _put(stack, services, "_refuse_if_alive", lambda table, plan: None)


@_bug
def _groups_that_are_gone_are_not_missed(stack: ExitStack) -> None:
    """A write whose keys were in files that a cleaner took away takes them for new."""
    real = planned.look_beside
    _put(stack, transaction, "look_beside", lambda table, plan, found: real(table, plan, {}))


@_bug
def _what_is_archived_is_forgotten(stack: ExitStack) -> None:
    """Only what is on the active timeline stands in the way of a write."""
    _put(stack, planned, "_may_be_archived", lambda table, plan: False)
    _put(stack, transaction, "look_beside", lambda table, plan, found: None)


@_bug
def _staged_commits_are_removed_unread(stack: ExitStack) -> None:
    """Nobody throws the uploads of commit files away that came to nothing."""
    _put(stack, Control, "_discard_noted", lambda self, paths: None)
