"""One write on the timeline, from its first trace to its end, which is one decision.

Theory of operation (RFC-79; ``docs/architecture.md``, "How a write ends")
-------------------------------------------------------------------------
Tasks stage their files and put a completion marker for each slot; nothing that they do can be seen.
The driver closes the gate, reads every marker, stages the completed instant's file, and puts the
*decision*: one object, if absent, ``COMMIT`` with all names or ``ABORT``.  Only after ``COMMIT`` does
anything become visible, by a driver: this one, or any that comes later and finds the decision.  Who
wants to undo the write has to put ``ABORT`` first, and finishes the write where ``COMMIT`` stands.

So a driver that dies leaves a write that the next one finishes or undoes, a driver that sleeps finds
out what was decided meanwhile, and what a caller is told is what stands on the timeline.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from dataclasses import replace
from types import MappingProxyType

from sparkrobust.coordinator import metadata_table
from sparkrobust.coordinator.conflicts import (
    Plan,
    group_of,
    read_ahead,
    refuse_conflicts,
    refuse_conflicts_early,
)
from sparkrobust.coordinator.content import content_of
from sparkrobust.coordinator.control import SHARED_LOCK, Control
from sparkrobust.coordinator.create import refuse_if_forgotten
from sparkrobust.coordinator.forward import Ending, look, roll_forward, rolled_forward, tidy_up
from sparkrobust.coordinator.heartbeat import Heartbeat
from sparkrobust.coordinator.key_conflicts import KeyCheck
from sparkrobust.coordinator.leftovers import delete_unnamed
from sparkrobust.coordinator.locking import finish_undone, locked
from sparkrobust.coordinator.overtaken import is_taken_away
from sparkrobust.coordinator.partitions import make_room
from sparkrobust.coordinator.planned import Found, look_beside, refuse_if_changed, with_archived
from sparkrobust.coordinator.redo import made_from, slots_to_redo
from sparkrobust.coordinator.rollback import roll_back
from sparkrobust.coordinator.rollback_plans import pending_targets
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.times import next_time
from sparkrobust.coordinator.write_ids import asked_beforehand, refuse_if_written
from sparkrobust.core.conflicts import FileGroup
from sparkrobust.core.decision import Abort, Commit, NewProperties
from sparkrobust.core.file_ids import Slot
from sparkrobust.core.instant import Instant, InstantTime, State
from sparkrobust.core.markers import CompletionMarker, Fingerprint, Gate, Terms, other_way, refuse_lost_rows
from sparkrobust.core.names import NONCE, ControlFolder, heartbeat_file, instant_file
from sparkrobust.core.redo import Reads
from sparkrobust.core.table_config import TableConfig
from sparkrobust.core.write_status import WriteStat
from sparkrobust.core.written import StagedFile, WrittenFile
from sparkrobust.errors import (
    CommitOutcome,
    CommitUnknownError,
    ConflictError,
    FencedError,
    RobustWriteError,
    StorageFullError,
)
from sparkrobust.probe import Point, reached
from sparkrobust.storage.contract import AlreadyExistsError
from sparkrobust.storage.locks import Grip, Waiting

_TRIES = 5


class Transaction:
    """A write from its first trace on the timeline to its end."""

    def __init__(self, table: HudiTable, terms: Terms, folder: ControlFolder | None = None) -> None:
        self.table, self.terms = table, terms
        self._nonce = folder.nonce if folder else table.ids.nonce()
        self._be(folder or self._new_folder())
        self._decided: Commit | None = None
        self._first_hand = self._begun = self._requested = self._counted = self._deciding = False
        # What it was planned from; what is completed since then may stand in the way.
        self._known = Plan.at(self.folder, table.timeline)
        self._config: TableConfig | None = table.config
        self._superseded, self._lock = dict[int, int](), table.lock_name
        self.done: Instant | None = None
        """The completed instant, once the write is durable."""
        self.fenced: FencedError | None = None
        """What became of it, where :meth:`abort` found that others had given it up before."""

    @classmethod
    def of_another(cls, table: HudiTable, folder: ControlFolder, gate: Gate) -> Transaction:
        """A write that another driver has begun, to be ended by this one."""
        transaction = cls(table, gate.terms, folder)
        transaction._counted, transaction._config = gate.counted, None
        transaction._known = replace(transaction._known, begun=gate.begun, seen=None)
        transaction._superseded, transaction._lock = dict(gate.superseded), gate.lock
        transaction._begun = transaction._requested = True
        return transaction

    @property
    def time(self) -> InstantTime:
        return self.folder.instant

    @property
    def _owner(self) -> str:
        """What the lock is told."""
        return f"{self.folder.instant}-{self.folder.nonce}"

    def _file(self, state: State) -> str:
        return instant_file(Instant(time=self.time, action=self.terms.action, state=state))

    # -- the steps ---------------------------------------------------------------------------------------

    def begin(
        self,
        *,
        slots: int | None,
        counted: bool = False,
        requested: bytes = b"",
        inflight: bytes = b"",
        found: Found = MappingProxyType({}),
        waiting: Waiting = contextlib.nullcontext,
    ) -> None:
        """Open the gate, then put the requested and the inflight file.

        Parameters
        ----------
        slots
            How many there will be, where the driver knows.
        counted
            The rows were counted, and :meth:`compare` is going to be called.
        found
            Where the write was planned from what it found in the table: the file groups.
        waiting
            What is around each wait for the table's lock.
        """
        self._counted = counted
        with locked(self.table, self._owner, of=self.folder, waiting=waiting) as grip:
            self._request(self._gate(slots), requested, grip)
        self._known = replace(self._known, beside=look_beside(self.table, self._plan(()), found))
        self.table.storage.put_if_absent(self._file(State.INFLIGHT), inflight)
        reached(Point.INFLIGHT, instant=self.time)

    def _gate(self, slots: int | None) -> Gate:
        begun = self._known.begun
        return Gate(terms=self.terms, slots=slots, counted=self._counted, begun=begun, lock=self._lock)

    def refuse_conflicts_early(self, groups: Iterable[FileGroup]) -> None:
        """``ConflictError`` if another writer is about to change these file groups, or has, by now."""
        refuse_conflicts_early(self.table, self._plan(groups))

    def redo(self, slots: Sequence[Slot], reads: Reads) -> dict[int, Slot]:
        """Before :meth:`finalize`: by number, what is done in place of slots that others are in the way of.

        None where only the whole write can be made again, which :meth:`commit` tells.
        """
        plan, found = self._plan((slot.partition, slot.file_id(0)) for slot in slots), {}
        with contextlib.suppress(RobustWriteError):  # it would be to spare work: who can't look goes on
            found = slots_to_redo(self.table, plan, reads, self.terms.schema, slots, self._superseded)
        if found:
            self._superseded |= {old: new.index for old, new in found.items()}
            reached(Point.OVERTAKEN, instant=self.time, folder=self.folder, slots=len(slots) + len(found))
        return found

    def _plan(self, groups: Iterable[FileGroup]) -> Plan:
        changed = None if self.terms.replaces_table else frozenset(groups)
        return replace(self._known, folder=self.folder, groups=changed)

    def _request(self, gate: Gate, content: bytes, grip: Grip) -> None:
        """Under the lock: the first traces of the write, with an instant that is later than all others."""
        table, shared = self.table, self.table.coordination.lock.shared
        refuse_if_forgotten(table)
        self._begun = True
        if shared:
            table.reload()
            if table.timeline.newest_time >= self.time:
                self._be(self._new_folder())
        for _ in range(_TRIES):
            self._heartbeat.start()
            self._control.open_gate(gate)
            reached(Point.GATE_OPENED, instant=self.time, folder=self.folder, slots=gate.slots)
            try:
                self._requested = True
                table.storage.put_if_absent(self._file(State.REQUESTED), content)
            except AlreadyExistsError:
                # Another writer was faster by less than a millisecond: what goes by its time is its own.
                self._leave_instant()
                continue
            reached(Point.REQUESTED, instant=self.time)
            if self._is_newest(grip) or not shared:
                return
            # It slept, and others went on without it: files of so old an instant could count as theirs.
            table.storage.delete(self._file(State.REQUESTED))
            table.storage.delete(heartbeat_file(self.time))
            self._leave_instant()
        raise ConflictError(
            f"{_TRIES} times another writer was faster to take an instant",
            path=table.storage.url,
            outcome=CommitOutcome.RETRYABLE,
        )

    def _is_newest(self, grip: Grip) -> bool:
        """Whether nobody else went on since the lock was taken."""
        grip.refuse_if_lost()
        self.table.reload()
        return self.table.timeline.newest_time == self.time

    def _leave_instant(self) -> None:
        """Take another instant."""
        self.leave()
        self._requested = False
        self.table.storage.delete_tree(self.folder.path)
        self.table.reload()
        self._be(self._new_folder())

    def _new_folder(self) -> ControlFolder:
        table = self.table
        time = next_time(table.clock, table.config, table.timeline.newest_time)
        # The same nonce: by it who takes the lock away finds the write, whatever its instant became.
        return ControlFolder(instant=time, nonce=self._nonce)

    def _be(self, folder: ControlFolder) -> None:
        self.folder = folder
        self._control = Control(self.table, folder)
        self._heartbeat = Heartbeat(self.table, folder.instant)

    def finalize(self, slots: int, without_rows: Collection[int] = ()) -> list[CompletionMarker]:
        """Close the gate, and read what every slot came to that counts; no attempt writes from here on.

        Parameters
        ----------
        slots
            How many there are, those included that others were done in place of.
        without_rows
            Slots of which no task of the stage told, though each has ended, and which may have got no rows.
            Only of counted rows, since only :meth:`compare` tells such a slot from one whose rows were lost.

        Raises
        ------
        IndeterminateInputError
            Another slot was not done, though the stage has ended: it got no rows.
        """
        gate = replace(self._gate(slots), superseded=self._superseded)
        self._control.close_gate(gate)
        reached(Point.GATE_CLOSED, instant=self.time)
        if self._counted:
            self._control.put_without_rows(slot for slot in gate.standing if slot in without_rows)
        found = self._control.completions(gate.standing)
        missing = slots - len(gate.superseded) - len(found)
        if missing:
            self._refuse_if_ended()
            raise other_way(missing)
        markers = list(found.values())
        files = [file for marker in markers for file in marker.files]
        self._control.verify_staged(files)
        visible = {file.staged.final_path for file in files if file.staged.in_place}
        if visible:
            # Files of attempts that lost, or died: after the commit readers would take them for rows of it.
            delete_unnamed(self.table.storage, self.time, visible)
        reached(Point.MARKERS_READ, instant=self.time)
        return markers

    def compare(
        self, markers: Iterable[CompletionMarker], expected: Iterable[tuple[Set[int], Fingerprint]]
    ) -> None:
        """See that the slots have the rows that were counted; from here on others can tell that they do.

        Raises
        ------
        IndeterminateInputError
            The input gave other rows when it was read again.
        """
        refuse_lost_rows(markers, expected, self._superseded)
        self._control.put_compared()

    def commit(self, markers: Collection[CompletionMarker]) -> None:
        """Decide that the write becomes part of the table, and make it so.

        Raises
        ------
        CommitUnknownError
            It is or will be part of the table, or nobody can tell; nothing may be undone.
        WrittenEarlier
            Another run of the same job has committed it.
        RobustWriteError
            Any other: it was not decided, and can be aborted.
        """
        files = [file for marker in markers for file in marker.files]
        plan = self._plan(group_of(file.stat) for file in files)
        plan = replace(plan, made_from=made_from(markers, self._superseded))
        same_keys = KeyCheck(self.table, files)
        # What takes long on a long timeline is done while nobody waits for it, and the rest under the lock.
        self.table.look_ahead()
        asked = asked_beforehand(self.table, self.terms)
        same_keys.refuse_beforehand(plan)
        read_ahead(self.table, plan)
        with locked(self.table, self._owner, of=self.folder) as grip, self._saying_so():
            self._commit(files, plan, same_keys, asked, grip)

    @contextlib.contextmanager
    def _saying_so(self) -> Iterator[None]:
        """Others can tell that this driver has the lock, and may decide in the block."""
        if not self.table.coordination.lock.shared:
            yield
            return
        self._control.put_committing()
        try:
            yield
        finally:
            # What may be decided, and is not finished, whoever gets the lock has to finish first.
            if self.done is not None or not self._deciding:
                self._control.remove_committing()

    def _commit(
        self,
        files: Collection[WrittenFile],
        plan: Plan,
        same_keys: KeyCheck,
        asked: Set[InstantTime],
        grip: Grip,
    ) -> None:
        table = self.table
        finish_undone(table, self.folder)
        table.reload()
        plan = with_archived(table, plan)
        self._refuse_if_given_up()
        refuse_if_written(table, self.terms, besides=asked)
        stats = [file.stat for file in files]
        table.reload_config()
        refuse_if_changed(table, plan, self.terms, stats, self._config)
        refuse_conflicts(table, plan)
        same_keys.refuse(plan)
        metadata_table.refuse_or_drop(table, may_drop=self.terms.may_drop_metadata_table)
        partitions = {stat.partition_path or "" for stat in stats}
        new = make_room(table, partitions, replacing=self.terms.replaces_table)
        completion = next_time(table.clock, table.config, max(table.timeline.newest_time, self.time))
        wanted = Commit(
            action=self.terms.action,
            completion=completion,
            commit_file=self._stage_commit(completion, stats),
            files=tuple(file.staged for file in files),
            new_partitions=tuple(new),
            properties=self._new_properties(),
        )
        reached(Point.COMMIT_STAGED, instant=self.time)
        self._heartbeat.refuse_if_lost()
        grip.refuse_if_lost()
        self._deciding = True
        self._decide(wanted)
        reached(Point.DECIDED, instant=self.time)
        self._finish()

    def _refuse_if_ended(self) -> None:
        """``FencedError`` if another driver has ended the write, and so taken its markers away."""
        ended = isinstance(self._control.decision(), Abort)
        if ended or look(self.table, self.folder, self.terms.action) is not None:
            raise self._given_up("while it ran")

    def _given_up(self, when: str) -> FencedError:
        return FencedError(
            f"the write {self.time} was rolled back by another writer {when}; it committed nothing",
            instant=self.time,
            path=self.table.storage.url,
            hint=SHARED_LOCK,
        )

    def _refuse_if_given_up(self) -> None:
        mine = self.table.timeline.find(self.time, self.terms.action)
        if mine is None or mine.state is not State.INFLIGHT or self.time in pending_targets(self.table):
            raise self._given_up("while it ran")

    def _new_properties(self) -> NewProperties | None:
        after = self.terms.new_properties
        return None if after is None else NewProperties(before=self.table.config.values, after=after)

    def _stage_commit(self, completion: InstantTime, stats: Collection[WriteStat]) -> StagedFile:
        done = Instant(time=self.time, action=self.terms.action, state=State.COMPLETED, completion=completion)
        content = content_of(self.table, self.terms, self.folder, stats).to_bytes()
        return self._control.stage_commit(instant_file(done), content)

    def _decide(self, wanted: Commit) -> None:
        try:
            decided = self._control.decide(wanted)
        except (FencedError, StorageFullError):
            with contextlib.suppress(RobustWriteError):
                self.table.storage.discard(wanted.commit_file.token)
            raise
        except RobustWriteError as error:
            raise self._unknown(f"whether it was decided could not be found out: {error}") from error
        if decided != wanted:
            # What else stands is certain, so nobody will ever publish this one.
            self.table.storage.discard(wanted.commit_file.token)
        if isinstance(decided, Abort):
            raise FencedError(
                f"the write {self.time} was given up by another writer: {decided.reason}",
                instant=self.time,
                path=self.table.storage.url,
                hint=SHARED_LOCK,
            )
        self._decided = decided
        self._first_hand = decided == wanted

    def _finish(self) -> None:
        assert self._decided is not None
        try:
            ending = rolled_forward(self.table, self._control, self._decided, first_hand=self._first_hand)
            taken_away = is_taken_away(self.table, self.time, self._file(State.INFLIGHT))
        except Exception as error:  # whatever it is: nothing may be undone any more
            raise self._unknown(f"it is decided, and not finished: {error}") from error
        if ending is Ending.GIVEN_UP:
            raise self._given_up("while it was published")
        if ending is Ending.OUT_OF_SIGHT:
            raise self._unknown("it is older than the active timeline by now")
        if taken_away:
            raise self._unknown("another writer rolls it back, or has: it shares no lock, or has taken it")
        self.done = self._decided.instant(self.folder)
        self.table.timeline = self.table.timeline.having(self.done)

    def _unknown(self, why: str) -> CommitUnknownError:
        return CommitUnknownError(
            f"the outcome of the write {self.time} is not known: {why}",
            instant=self.time,
            path=self.table.storage.url,
            hint=f"it is durable if the timeline has a completed {self.time}; "
            "else the next write finishes it, if that is decided, or rolls it back",
        )

    # -- the end -----------------------------------------------------------------------------------------

    def clean_up(self) -> None:
        """After the commit: begin markers, what lost attempts have staged, partitions of a replaced table."""
        assert self._decided is not None
        self.leave()
        tidy_up(self.table, self._control, self._decided)
        reached(Point.CLEANED_UP, instant=self.time)

    def leave(self) -> None:
        """The driver does nothing more for the write, however it stands: its heartbeat ends."""
        self._heartbeat.stop()

    def abort(self, reason: str) -> bool:
        """Undo everything; the table is as it was before.  Safe at any point.

        What can't be undone now, since the store is away, the next write undoes.

        Returns
        -------
        ``False`` if another driver has committed the write meanwhile: then it is ``done``, and stays so.

        Raises
        ------
        CommitUnknownError
            Another driver may commit it yet, or has; nobody can tell.
        """
        if not self._begun:
            return True
        self.leave()
        if not self._requested:
            # Nobody takes it for a write yet; what is left of it the next one sweeps.
            with contextlib.suppress(RobustWriteError):
                self._control.remove()
            return True
        try:
            return self._aborted(reason)
        except CommitUnknownError:
            raise
        except Exception as error:  # whatever it is: another driver may commit it
            raise self._unknown(f"it could not be given up: {error}") from error

    def _aborted(self, reason: str) -> bool:
        decided = None
        with contextlib.suppress(FencedError):  # the folder is gone: the write has ended
            decided = self._control.give_up(reason)
        if isinstance(decided, Abort) and decided.reason != reason:
            self.fenced = self._given_up("while it ran")
        if isinstance(decided, Commit):
            with locked(self.table, self._owner, of=self.folder):
                roll_forward(self.table, self._control, decided)
        ending = look(self.table, self.folder, self.terms.action)
        mine = self.table.timeline.find(self.time, self.terms.action)
        if ending is Ending.OUT_OF_SIGHT and mine is None:
            raise self._unknown("it is older than the active timeline by now")
        if ending is Ending.DURABLE:
            assert mine is not None
            if self.table.commit(mine).extra_metadata.get(NONCE) != self.folder.nonce:
                return True  # of another write, to which the time was given again
            self.done = mine
            return False
        if mine is None:
            self.fenced = self._given_up("while it ran")
        with contextlib.suppress(RobustWriteError):  # what is left the next write takes away
            if mine is None:
                self._control.remove()
            elif not roll_back(self.table, mine, reason):
                self.done = self.table.timeline.find(self.time, self.terms.action)
        return self.done is None
