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
from collections.abc import Collection, Iterable, Mapping, Set

from sparkrobust.coordinator import metadata_table
from sparkrobust.coordinator.control import Control
from sparkrobust.coordinator.forward import Ending, look, roll_forward, tidy_up
from sparkrobust.coordinator.leftovers import delete_unnamed
from sparkrobust.coordinator.partitions import make_room
from sparkrobust.coordinator.rollback import roll_back
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.times import next_time
from sparkrobust.core.decision import Abort, Commit, NewProperties
from sparkrobust.core.instant import Action, Instant, InstantTime, State
from sparkrobust.core.markers import CompletionMarker, Fingerprint, Gate, Terms, refuse_lost_rows
from sparkrobust.core.names import NONCE, WRITE_ID, ControlFolder, instant_file
from sparkrobust.core.write_status import WriteStat
from sparkrobust.core.written import StagedFile
from sparkrobust.errors import (
    CommitUnknownError,
    ConflictError,
    FencedError,
    IndeterminateInputError,
    RobustWriteError,
    UnavailableError,
)
from sparkrobust.formats.commit_metadata import CommitMetadata, ReplaceCommitMetadata
from sparkrobust.probe import Point, reached
from sparkrobust.storage.contract import AlreadyExistsError, StorageFullError

_TRIES = 5
_PAUSE_SECONDS = 1.0


class WrittenEarlier(Exception):
    """A write of the same id is durable; this one was not decided, and is to be aborted."""

    def __init__(self, instant: Instant) -> None:
        super().__init__(f"{instant} has the same write id")
        self.instant = instant


class Transaction:
    """A write from its first trace on the timeline to its end."""

    def __init__(self, table: HudiTable, terms: Terms, folder: ControlFolder | None = None) -> None:
        self.table, self.terms = table, terms
        self._be(folder or self._new_folder())
        self._decided: Commit | None = None
        self._first_hand = False
        self._begun = self._requested = self._counted = False
        # What was planned from; a write that was finished by others since then may stand in the way.
        self._seen = frozenset(done.time for done in table.timeline.completed_writes)
        self.done: Instant | None = None
        """The completed instant, once the write is durable."""

    @classmethod
    def of_another(cls, table: HudiTable, folder: ControlFolder, gate: Gate) -> Transaction:
        """A write that another driver has begun, to be ended by this one."""
        transaction = cls(table, gate.terms, folder)
        transaction._counted = gate.counted
        transaction._begun = transaction._requested = True
        return transaction

    @property
    def time(self) -> InstantTime:
        return self.folder.instant

    def _file(self, state: State) -> str:
        return instant_file(Instant(time=self.time, action=self.terms.action, state=state))

    # -- the steps ---------------------------------------------------------------------------------------

    def begin(
        self, *, slots: int | None, counted: bool = False, requested: bytes = b"", inflight: bytes = b""
    ) -> None:
        """Open the gate, then put the requested and the inflight file.

        Parameters
        ----------
        slots
            How many there will be, where the driver knows.
        counted
            The rows were counted, and :meth:`compare` is going to be called.
        """
        self._counted = counted
        self._begun = True
        for _ in range(_TRIES):
            self._control.open_gate(Gate(terms=self.terms, slots=slots, counted=counted))
            reached(Point.GATE_OPENED, instant=self.time)
            try:
                self._requested = True
                self.table.storage.put_if_absent(self._file(State.REQUESTED), requested)
                break
            except AlreadyExistsError:
                self._leave_instant()
        else:
            raise ConflictError(
                f"{_TRIES} times another writer took the instant that this one had in mind",
                path=self.table.storage.url,
                outcome="Retryable",
            )
        reached(Point.REQUESTED, instant=self.time)
        self.table.storage.put_if_absent(self._file(State.INFLIGHT), inflight)
        reached(Point.INFLIGHT, instant=self.time)

    def _leave_instant(self) -> None:
        """Another writer was faster by less than a millisecond: what goes by its time is its own now."""
        self._requested = False
        self.table.storage.delete_tree(self.folder.path)
        self.table.reload()
        self._be(self._new_folder())

    def _new_folder(self) -> ControlFolder:
        table = self.table
        time = next_time(table.clock, table.config, table.timeline.newest_time)
        return ControlFolder(instant=time, nonce=table.ids.nonce())

    def _be(self, folder: ControlFolder) -> None:
        self.folder = folder
        self._control = Control(self.table, folder)

    def finalize(self, slots: int) -> list[CompletionMarker]:
        """Close the gate, and read what every slot came to; no attempt writes from here on.

        Raises
        ------
        IndeterminateInputError
            A slot was not done, though the stage has ended: it got no rows.
        """
        self._control.close_gate(Gate(terms=self.terms, slots=slots, counted=self._counted))
        reached(Point.GATE_CLOSED, instant=self.time)
        found = self._control.completions(range(slots))
        missing = slots - len(found)
        if missing:
            self._refuse_if_ended()
            raise IndeterminateInputError(
                f"the rows of {missing} file groups did not come the way that was planned: "
                "the input gave other rows when it was read again",
                hint="write rows that a second reading gives again: cache them, or store them first",
            )
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
        refuse_lost_rows(markers, expected)
        self._control.put_compared()

    def commit(self, markers: Iterable[CompletionMarker]) -> None:
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
        table = self.table
        files = [file for marker in markers for file in marker.files]
        table.reload()
        self._refuse_if_given_up()
        self._refuse_if_written()
        self._refuse_conflicts([file.stat for file in files])
        table.reload_config()
        metadata_table.refuse_or_allow(table, may_drop=self.terms.may_drop_metadata_table)
        metadata_table.drop(table)
        partitions = {file.stat.partition_path or "" for file in files}
        new = make_room(table, partitions, replacing=self.terms.replaces_table)
        completion = next_time(table.clock, table.config, max(table.timeline.newest_time, self.time))
        wanted = Commit(
            action=self.terms.action,
            completion=completion,
            commit_file=self._stage_commit(completion, [file.stat for file in files]),
            files=tuple(file.staged for file in files),
            new_partitions=tuple(new),
            properties=self._new_properties(),
        )
        reached(Point.COMMIT_STAGED, instant=self.time)
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
            hint="run one writer at a time, or give all the same lock provider",
        )

    def _refuse_if_given_up(self) -> None:
        mine = self.table.timeline.find(self.time, self.terms.action)
        if mine is None or mine.state is not State.INFLIGHT:
            raise self._given_up("while it ran")

    def _refuse_if_written(self) -> None:
        """Another run of the same job may have been faster than this one."""
        name = self.terms.extra.get(WRITE_ID)
        found = None if name is None else find_write(self.table, name)
        if found is not None:
            raise WrittenEarlier(found)

    def _refuse_conflicts(self, stats: Collection[WriteStat]) -> None:
        """``ConflictError`` if another write has changed what this one was planned from."""
        mine = {(stat.partition_path or "", stat.file_id) for stat in stats if stat.prev_base_file}
        for other in self.table.timeline.completed_writes:
            if other.time in self._seen and (other.completion or other.time) < self.time:
                continue
            metadata = self.table.commit(other)
            theirs = {(stat.partition_path or "", stat.file_id) for stat in metadata.write_stats}
            if isinstance(metadata, ReplaceCommitMetadata):
                replaced = metadata.partition_to_replace_file_ids.items()
                theirs |= {(partition, file_id) for partition, ids in replaced for file_id in ids}
            if mine & theirs or self.terms.replaces_table:
                raise ConflictError(
                    f"{other} was completed while this write ran, and changed "
                    f"{len(mine & theirs) or 'the'} file groups that it was made from",
                    instant=self.time,
                    path=self.table.storage.url,
                    outcome="Conflicted",
                    hint="write again: it starts from the table as it is now; run one writer at a time",
                )

    def _new_properties(self) -> NewProperties | None:
        after = self.terms.new_properties
        return None if after is None else NewProperties(before=self.table.config.values, after=after)

    def _stage_commit(self, completion: InstantTime, stats: Collection[WriteStat]) -> StagedFile:
        done = Instant(time=self.time, action=self.terms.action, state=State.COMPLETED, completion=completion)
        name = self.folder.staged_commit(self.table.ids.nonce())
        with self.table.storage.stage(self.folder.path, name, instant_file(done)) as writer:
            writer.write(self._metadata(stats).to_bytes())
            return writer.finish()

    def _metadata(self, stats: Collection[WriteStat]) -> CommitMetadata:
        in_partition: dict[str, list[WriteStat]] = {}
        for stat in sorted(stats, key=lambda s: s.path or ""):
            in_partition.setdefault(stat.partition_path or "", []).append(stat)
        by_partition = {partition: tuple(found) for partition, found in in_partition.items()}
        extra = {"schema": self.terms.schema, NONCE: self.folder.nonce, **self.terms.extra}
        if self.terms.action is Action.REPLACE_COMMIT:
            return ReplaceCommitMetadata(
                partition_to_write_stats=by_partition,
                extra_metadata=extra,
                operation_type=self.terms.operation,
                partition_to_replace_file_ids=self._replaced(),
            )
        return CommitMetadata(
            partition_to_write_stats=by_partition, extra_metadata=extra, operation_type=self.terms.operation
        )

    def _replaced(self) -> Mapping[str, tuple[str, ...]]:
        """The file groups that this write takes out of the table, by partition."""
        found: dict[str, list[str]] = {}
        if self.terms.replaces_table:
            for base in self.table.base_files():
                found.setdefault(base.partition, []).append(base.file_id)
        return {partition: tuple(ids) for partition, ids in found.items()}

    def _decide(self, wanted: Commit) -> None:
        try:
            decided = self._control.decide(wanted)
        except (FencedError, StorageFullError):
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
                hint="run one writer at a time, or give both the same lock provider",
            )
        self._decided = decided
        self._first_hand = decided == wanted

    def _finish(self) -> None:
        try:
            ending = self._rolled_forward()
            inflight = self.table.storage.stat(self._file(State.INFLIGHT))
        except Exception as error:  # whatever it is: nothing may be undone any more
            raise self._unknown(f"it is decided, and not finished: {error}") from error
        if ending is Ending.GIVEN_UP:
            raise self._given_up("while it was published")
        if ending is Ending.OUT_OF_SIGHT:
            raise self._unknown("it is older than the active timeline by now")
        if inflight is None:
            raise self._unknown(
                "another writer, which shares no lock with this one, rolled it back meanwhile"
            )
        assert self._decided is not None
        done = self.table.timeline.find(self.time, self.terms.action)
        if done is None or done.pending:
            done = self._decided.instant(self.folder)
            self.table.timeline = self.table.timeline.having(done)
        self.done = done

    def _rolled_forward(self) -> Ending:
        assert self._decided is not None
        for number in range(_TRIES - 1):
            try:
                first = self._first_hand and not number
                return roll_forward(self.table, self._control, self._decided, first_hand=first)
            except UnavailableError:
                self.table.clock.sleep(_PAUSE_SECONDS)
        return roll_forward(self.table, self._control, self._decided)

    def _unknown(self, why: str) -> CommitUnknownError:
        return CommitUnknownError(
            f"the outcome of the write {self.time} is not known: {why}",
            instant=self.time,
            path=self.table.storage.url,
            outcome="Unknown",
            hint=f"it is durable if the timeline has a completed {self.time}; "
            "else the next write finishes it, if that is decided, or rolls it back",
        )

    # -- the end -----------------------------------------------------------------------------------------

    def clean_up(self) -> None:
        """After the commit: begin markers, what lost attempts have staged, partitions of a replaced table."""
        assert self._decided is not None
        tidy_up(self.table, self._control, self._decided)
        reached(Point.CLEANED_UP, instant=self.time)

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
        if not self._requested:
            # Nobody takes it for a write yet; what is left of it the next one sweeps.
            with contextlib.suppress(RobustWriteError):
                self._control.remove()
            return True
        try:
            return self._aborted(reason)
        except CommitUnknownError:
            raise
        except RobustWriteError as error:
            raise self._unknown(f"it could not be given up: {error}") from error

    def _aborted(self, reason: str) -> bool:
        decided = None
        with contextlib.suppress(FencedError):  # the folder is gone: the write has ended
            decided = self._control.give_up(reason)
        if isinstance(decided, Commit):
            roll_forward(self.table, self._control, decided)
        ending = look(self.table, self.folder, self.terms.action)
        if ending is Ending.OUT_OF_SIGHT:
            raise self._unknown("it is older than the active timeline by now")
        mine = self.table.timeline.find(self.time, self.terms.action)
        if ending is Ending.DURABLE:
            self.done = mine
            return False
        with contextlib.suppress(RobustWriteError):  # what is left the next write takes away
            if mine is None:
                self._control.remove()
            elif not roll_back(self.table, mine, reason):
                self.done = self.table.timeline.find(self.time, self.terms.action)
        return self.done is None


def find_write(table: HudiTable, write_id: str) -> Instant | None:
    """The completed write of this id, if the active timeline has one."""
    for instant in reversed(table.timeline.completed_writes):
        if table.commit(instant).extra_metadata.get(WRITE_ID) == write_id:
            return instant
    return None
