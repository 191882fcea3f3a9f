"""The control folder of a write, as drivers use it: open and close the gate, read what is done, decide.

Every step may be done again, and by another driver: whoever comes second finds what the first one
did and goes on from there.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Iterable
from dataclasses import replace

from sparkrobust.coordinator.leftovers import discard_staged, discard_uploads, remove_markers
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core import decision as decisions
from sparkrobust.core.control_object import MAX_BYTES, Kind
from sparkrobust.core.decision import Abort, Commit, Decision
from sparkrobust.core.markers import CompletionMarker, Gate
from sparkrobust.core.names import COMMITTING, ControlFolder, heartbeat_file, marker_folder
from sparkrobust.core.written import StagedFile, WrittenFile, path_of_upload
from sparkrobust.errors import (
    CorruptTableError,
    FencedError,
    RobustWriteError,
    StorageFullError,
    UnavailableError,
)
from sparkrobust.storage.contract import AlreadyExistsError, NotFoundError, Storage

SHARED_LOCK = (
    "give all writers the same lock provider, "
    "and hoodie.write.concurrency.mode=optimistic_concurrency_control"
)
"""What helps a write that was taken for dead."""
_READERS = 16
_MARKERS_AT_ONCE = 1024
_LOOKS = 5
_ROUNDS = 20
_LOOK_PAUSE_SECONDS = 1.0


class Control:
    """One write's control folder."""

    def __init__(self, table: HudiTable, folder: ControlFolder) -> None:
        self.folder = folder
        self._table = table
        self._staged_commit = ""
        """Where the driver of this has staged a commit file, or what tells of it."""

    @property
    def storage(self) -> Storage:
        return self._table.storage

    # -- the gate ----------------------------------------------------------------------------------------

    def open_gate(self, gate: Gate) -> None:
        """Make the places that tasks write to, and let them in."""
        storage, folder = self.storage, self.folder
        storage.make_staging(folder.staging)
        storage.make_folder(folder.completions)
        storage.make_marks(marker_folder(folder.instant))
        try:
            self._put(folder.gate, gate.render(Kind.GATE, folder.nonce))
        except NotFoundError as error:
            raise self._given_up() from error

    def gate(self) -> Gate | None:
        """What the write is to be, from the gate or from the finalize marker, if either is there."""
        for path, kind in ((self.folder.finalize, Kind.FINALIZE), (self.folder.gate, Kind.GATE)):
            with contextlib.suppress(NotFoundError):
                return Gate.parse(self._read(path), kind, nonce=self.folder.nonce, path=path)
        return None

    def close_gate(self, gate: Gate) -> None:
        """From here on no attempt begins, and on a store with folders none ends.

        Raises
        ------
        FencedError
            Somebody gave the write up meanwhile.
        """
        storage, folder = self.storage, self.folder
        try:
            first = self._put(folder.finalize, gate.render(Kind.FINALIZE, folder.nonce))
            # The gate goes after the finalize marker: who puts a first one behind it has slept
            # through the end of the write, and its cleaning up.
            if first and storage.stat(folder.gate) is None:
                raise self._given_up()
            # Who took this driver for dead may have closed it before some slots were done again.
            if not first and self.gate() != gate:
                raise self._given_up()
            storage.delete(folder.gate)
            storage.seal(folder.staging, folder.sealed)
        except NotFoundError as error:
            raise self._given_up() from error

    def _given_up(self) -> FencedError:
        return FencedError(
            f"the write {self.folder.instant} was given up by another writer; it committed nothing",
            instant=self.folder.instant,
            path=self.storage.url,
            hint=SHARED_LOCK,
        )

    def _read(self, path: str) -> bytes:
        return self.storage.read(path, at_most=MAX_BYTES)

    # -- what is done ------------------------------------------------------------------------------------

    def completions(self, slots: Iterable[int]) -> dict[int, CompletionMarker]:
        """The completion markers of these slots that are there, their files where they now lie.

        Each is asked for by its name: a listing may not show it yet.
        """

        def read(slot: int) -> bytes | None:
            with contextlib.suppress(NotFoundError):
                return self._read(self.folder.completion(slot))
            return None

        found: dict[int, CompletionMarker] = {}
        wanted = iter(slots)
        # What was read waits for no longer than until it is understood: there may be very many.
        while some := list(itertools.islice(wanted, _MARKERS_AT_ONCE)):
            for slot, data in zip(some, self._table.hands.map(read, some, most=_READERS), strict=True):
                if data is not None:
                    found[slot] = self._sealed(CompletionMarker.parse(data, self.folder, slot))
        return found

    def put_without_rows(self, slots: Iterable[int]) -> None:
        """The completion markers of slots that no rows came to, unless an attempt has put one all the same.

        Raises
        ------
        FencedError
            Somebody gave the write up meanwhile.
        """
        folder = self.folder

        def put(slot: int) -> bool:
            marker = CompletionMarker.without_rows(slot)
            return self._put(folder.completion(slot), marker.render(folder.nonce))

        try:
            list(self._table.hands.map(put, slots, most=_READERS))
        except NotFoundError as error:
            raise self._given_up() from error

    def _sealed(self, marker: CompletionMarker) -> CompletionMarker:
        folder = self.folder
        if not self.storage.staging.has_folders:
            return marker

        def moved(file: WrittenFile) -> WrittenFile:
            return replace(file, staged=file.staged.moved(folder.staging, folder.sealed))

        return replace(marker, files=tuple(map(moved, marker.files)))

    def verify_staged(self, files: Iterable[WrittenFile]) -> None:
        """``CorruptTableError`` unless every file lies there with its size, where the store can tell."""
        wanted = [file.staged for file in files]
        there = self._sizes(wanted)
        for file in wanted:
            if not (file.in_place or self.storage.staging.is_listed):
                continue  # the parts' tags are checked by the store when it puts them together
            size = there.get(file.token)
            if size != file.size:
                raise CorruptTableError(
                    f"{file.token} was staged with {file.size} bytes and now has "
                    f"{'none' if size is None else size}",
                    path=file.token,
                    instant=self.folder.instant,
                )

    def _sizes(self, files: Collection[StagedFile]) -> dict[str, int]:
        """By token, as far as they can be seen."""
        visible = [file.final_path for file in files if file.in_place]
        found = self._table.hands.map(self.storage.stat, visible, most=_READERS)
        sizes = {info.path: info.size for info in found if info is not None}
        how, folder = self.storage.staging, self.folder
        if how.is_listed and any(not file.in_place for file in files):
            place = folder.sealed if how.has_folders else folder.staging
            sizes |= {info.path: info.size for info in self.storage.list(place)[0]}
        return sizes

    def put_compared(self) -> None:
        """The slots have the rows that the driver had counted."""
        self._put(self.folder.compared, self.folder.nonce.encode())

    def is_compared(self) -> bool:
        return self.storage.stat(self.folder.compared) is not None

    def stage_commit(self, path: str, content: bytes) -> StagedFile:
        """The file by which the write is going to be completed, where nobody looks yet."""
        storage, name = self.storage, self.folder.staged_commit(self._table.ids.nonce())
        self._staged_commit = f"{self.folder.path}/{name}"
        with storage.stage(self.folder.path, name, path) as writer:
            if storage.staging.needs_its_token:
                # Like a begin marker: if nothing comes of the upload, who cleans up finds it by this.
                storage.put(self._staged_commit, writer.token.encode())
            writer.write(content)
            return writer.finish()

    # -- the decision ------------------------------------------------------------------------------------

    def decision(self) -> Decision | None:
        """How it was decided that the write ends."""
        try:
            return self._valid(decisions.parse(self._read(self.folder.decision), self.folder))
        except NotFoundError:
            return None

    def _valid(self, decision: Decision) -> Decision | None:
        """The decision that stands, unless it decides nothing.

        Cleaning up takes the finalize marker away before the decision, so a commit that stands without
        one was put by a driver that slept through the end.
        """
        void = isinstance(decision, Commit) and self.storage.stat(self.folder.finalize) is None
        return None if void else decision

    def decide(self, wanted: Decision) -> Decision:
        """Put the decision if there is none; the one that stands, which may be another.

        Raises
        ------
        FencedError
            The write has ended, and was cleaned away.
        UnavailableError
            It could not be found out.
        """
        data = decisions.render(wanted, self.folder.nonce)
        unclear: UnavailableError | None = None
        for attempt in range(_LOOKS):
            if attempt:
                self._table.clock.sleep(_LOOK_PAUSE_SECONDS)
            try:
                mine = self._put(self.folder.decision, data)
                there = self._valid(wanted) if mine else self.decision()
            except UnavailableError as error:
                unclear = error
                continue
            except StorageFullError:
                if unclear is None:
                    raise
                continue  # an earlier try may have put it all the same
            except NotFoundError as error:
                raise self._given_up() from error
            if there is None:
                raise self._given_up()
            return there
        assert unclear is not None
        raise unclear

    def give_up(self, reason: str) -> Decision | None:
        """See to it that the write is never committed, if it is not yet; how it was decided.

        On a full disk there may be no room for the decision.  What takes its place has to be one step, which
        a commit meets that another driver puts now: were the finalize marker only deleted, a commit that it
        has put, found valid and acts on would be void to all others.

        Raises
        ------
        StorageFullError
            There is no room, and no such step: the write may be committed yet.
        """
        try:
            return self.decide(Abort(reason=reason))
        except StorageFullError:
            if self.storage.staging.has_folders:
                self._move_to_decision()
            else:
                # Who has closed the gate by now may commit; who comes to it later finds it gone.
                self.storage.delete(self.folder.gate)
            decided = self.decision()
            if decided is None and self.storage.stat(self.folder.finalize) is not None:
                raise
            return decided

    def _move_to_decision(self) -> None:
        """Have the gate, or the finalize marker, lie where the decision would, unless there is one.

        In this order, as whoever closes the gate puts the finalize marker first.
        """
        for path in (self.folder.gate, self.folder.finalize):
            found = self.storage.stat(path)
            if found is not None:
                moved = StagedFile(token=path, final_path=self.folder.decision, size=found.size)
                with contextlib.suppress(AlreadyExistsError, NotFoundError):
                    self.storage.publish(moved)

    def _put(self, path: str, data: bytes) -> bool:
        """Put what says the same whoever puts it; whether we were the first."""
        try:
            self.storage.put_if_absent(path, data)
        except AlreadyExistsError:
            return False
        return True

    def put_committing(self) -> None:
        """Under the lock: say that a decision is about to be put.

        Who gets the lock while this still stands knows that it was lost by who had it, however that came.
        """
        self.storage.make_folder(COMMITTING)
        self._put(self.folder.committing, b"")

    def remove_committing(self) -> None:
        """It is certain how the write ends, or that its driver puts no commit any more."""
        with contextlib.suppress(RobustWriteError):  # who has the lock next looks, and removes it
            self.storage.delete(self.folder.committing)

    # -- the end -----------------------------------------------------------------------------------------

    def revoke(self) -> None:
        """Throw away all that is staged: nothing of the write can become visible any more."""
        storage, folder = self.storage, self.folder
        storage.delete(folder.gate)
        # In this order, as a driver that seals in between would move files out of our reach.
        storage.delete_tree(folder.staging)
        storage.delete_tree(folder.sealed)
        discard_uploads(storage, folder.instant)

    def remove(self, published: Collection[str] | None = None) -> None:
        """Remove all traces of a write that has ended, but for what it published; ``None``: it was undone.

        The decision goes last: whoever slept through the end must still find how it was decided.
        """
        storage, folder = self.storage, self.folder
        remove_markers(storage, folder.instant, published or ())
        if storage.staging.has_folders:
            storage.delete_tree(folder.path)
        else:
            # The gate first: what is listed after that has every finalize marker that was put by who found
            # the gate; a commit could follow on one that is still there when the decision is gone.
            storage.delete(folder.gate)
            self._remove_seen(published, first=True)
            for _ in range(_ROUNDS):
                if not self._remove_seen(published):
                    break  # else who sleeps may have put something meanwhile
            if published is None:
                # It would show the folder always.  What came since is left to the next who looks at it:
                # a driver that sleeps may have told of an upload.
                storage.delete_mark(folder.path)
        storage.delete(heartbeat_file(folder.instant))

    def _remove_seen(self, published: Collection[str] | None, *, first: bool = False) -> bool:
        """Remove what there is, and the uploads that only it tells of; whether there was anything.

        At first the decision stays.
        """
        found = [info.path for info in self.storage.walk(self.folder.path)]
        # Of what this driver has staged nothing is left, if the write was completed.
        over = self._staged_commit if published is not None else ""
        self._discard_noted(path for path in found if self.folder.is_staged_here(path) and path != over)
        if published is None:
            self._discard_completed(found)
        self.storage.delete_all([path for path in found if not (first and path == self.folder.decision)])
        return bool(found)

    def _discard_noted(self, paths: Iterable[str]) -> None:
        """Throw away the uploads of commit files and rows that these tell of; what was completed stays."""
        if not self.storage.staging.needs_its_token:
            return
        for path in paths:
            with contextlib.suppress(NotFoundError, CorruptTableError):
                token = self._read(path).decode(errors="replace")
                if self.folder.may_come_of_it(path_of_upload(token)):
                    self.storage.discard(token)

    def _discard_completed(self, paths: Iterable[str]) -> None:
        """Throw away the uploads that completion markers tell of.

        The begin markers told of them as well, but Hudi's rollback takes those away and knows of no upload.
        """
        if not self.storage.staging.needs_its_token:
            return
        for path in paths:
            folder, _, slot = path.rpartition("/")
            if folder != self.folder.completions or not slot.isdecimal():
                continue
            # Nobody may be kept from cleaning up by what can't be read.
            with contextlib.suppress(NotFoundError, CorruptTableError):
                marker = CompletionMarker.parse(self._read(path), self.folder, int(slot))
                discard_staged(self.storage, [file.staged for file in marker.files])
