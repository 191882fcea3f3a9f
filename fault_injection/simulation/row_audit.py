"""What must hold of the rows, where writers share a table: each commit adds to what was committed before."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from fault_injection.simulation.actors import Told
from fault_injection.simulation.audit import AnyStorage, Auditor, Snapshot, name_of
from fault_injection.simulation.services import Services
from fault_injection.simulation.sharing import ManyWriters
from sparkrobust.core.instant import WRITES, Action, State
from sparkrobust.core.names import (
    HEARTBEATS,
    RECORD_KEY,
    TIMELINE,
    joined,
    parse_instant_file,
)
from sparkrobust.formats.rollback import RollbackPlan

Rows = dict[str, str]
"""Key → what stands in its row."""


class RowAuditor(Auditor):
    """Looks at the rows after every commit, and at who rolls whom back.

    Parameters
    ----------
    writers, services
        Who tell what they were told, and what they are at.
    """

    def __init__(
        self, storage: AnyStorage, read: Callable[[str], bytes], writers: ManyWriters, services: Services
    ) -> None:
        super().__init__(storage, read)
        self._world, self._told, self._pulse = writers.world, writers.told, writers.pulse
        self._services = services
        services.is_alone = self._is_alone
        self._expected: Rows = {}
        """What a reader has to see by now."""
        self._newest: dict[tuple[str, str], tuple[str, str]] = {}
        """File group → instant and path of its newest committed file."""
        self._rows: dict[str, list[tuple[str, str]]] = {}
        self._beats: dict[str, int] = {}
        self._owners: dict[str, str] = {}
        """Instant → who has requested it: others may want it, too, and leave it."""
        self._silent: set[str] = set()
        """Instants whose heartbeat had expired at some moment."""

    def look(self) -> None:
        self._look_at_heartbeats()
        super().look()

    def _look_at_heartbeats(self) -> None:
        now = self._world.clock.now_ms()
        before, self._beats = self._beats, {}
        for path in self._storage.paths():
            if path.startswith(f"{HEARTBEATS}/"):
                instant = path.rpartition("/")[2]
                self._beats[instant] = self._storage.modified_ms(path)
                if now - before.get(instant, now) > self._pulse.lifetime_ms:
                    self._silent.add(instant)

    # -- who rolls back whom -------------------------------------------------------------------------------

    def _instant(self, path: str) -> None:
        before = len(self.completed)
        super()._instant(path)
        found = parse_instant_file(path.rpartition("/")[2])
        assert found is not None
        if len(self.completed) > before:
            self._committed(found.time)
        if found.action is Action.ROLLBACK and found.state is State.REQUESTED:
            self._planned(path)
        elif found.state is State.REQUESTED:
            self._owners[found.time] = self._world.whose
        self._times_are_unique(path)

    def _planned(self, path: str) -> None:
        target = RollbackPlan.from_bytes(self._read(path), path=path).instant_to_rollback.commit_time
        who = self._world.whose
        owner = self._owners[target]
        beat = self._beats.get(target)
        lives = beat is not None and self._pulse.is_alive(beat, self._world.clock.now_ms())
        if lives and who != owner and target not in self._silent:
            self._say(f"{who} rolls {target} back, whose writer {owner} lives")

    def _times_are_unique(self, path: str) -> None:
        """No completed write has a time of another one.

        Who lost the lock may request a time that is taken by then, and gives it up; of a rollback's times
        nothing hangs on that.
        """
        mine = parse_instant_file(path.rpartition("/")[2])
        assert mine is not None
        if mine.completion is None or mine.action not in WRITES:
            return
        for other_path in self.completed.values():
            other = parse_instant_file(other_path.rpartition("/")[2])
            assert other is not None
            if other.time != mine.time and {mine.time, mine.completion} & {other.time, other.completion}:
                self._say(f"{path} has a time of {other_path}")

    # -- table services ------------------------------------------------------------------------------------

    def _is_alone(self, plan: str) -> None:
        """Somebody begins to execute a plan, which nobody else does who lives."""
        *others, me = [actor for actor, other in self._services.at_work if other == plan]
        for other in others:
            if other.alive and plan not in self._silent:
                self._say(f"{me.name} executes {plan}, which {other.name} does, too")

    def _is_nobody_elses(self, instant: str) -> None:
        """A write changes no file group that a pending plan has."""
        there = self._storage.paths()
        for plan, group in self._services.groups.items():
            if plan == instant:
                continue  # it was removed, and where the clock stands its time is the next one again
            pending = any(path.startswith(f"{TIMELINE}/{plan}.") for path in there)
            if pending and group in self._changed(instant):
                self._say(f"{instant} changes {group}, which the pending {plan} has")

    def _changed(self, instant: str) -> set[tuple[str, str]]:
        """The file groups that were there before."""
        return {_group(file.final_path) for file in self.decided[instant].files} & self._newest.keys()

    # -- rows ----------------------------------------------------------------------------------------------

    def _require_whole(self, path: str) -> None:
        self._rows_of(path)

    def _rows_of(self, path: str) -> list[tuple[str, str]]:
        if path not in self._rows:
            self._rows[path] = self._parsed(path, self._read(path))
        return self._rows[path]

    def _parsed(self, path: str, data: bytes) -> list[tuple[str, str]]:
        try:
            table = pq.read_table(io.BytesIO(data), columns=[RECORD_KEY, "by"], use_threads=False)
        except pa.ArrowException as error:
            self._say(f"{path} is visible, and torn: {error}")
        keys, by = (column.to_pylist() for column in table.columns)
        return list(zip(keys, by, strict=True))

    def _committed(self, instant: str) -> None:
        """A write became part of the table: its rows come on top of all that were there, and nothing else."""
        self._is_nobody_elses(instant)
        nonce = self._deciders[instant]
        (told,) = (told for told in self._told if told.nonce == nonce)
        if told.replaces:
            self._expected = {}
        self._expected |= told.rows
        for file in self.decided[instant].files:
            group = _group(file.final_path)
            self._newest[group] = max(self._newest.get(group, ("", "")), (instant, file.final_path))
        self._compare(told)

    def _compare(self, told: Told) -> None:
        rows = (row for path in self._latest() for row in self._rows_of(path))
        self._must_be(rows, self._expected, f"since {told.name} is committed")

    def _latest(self) -> list[str]:
        """The files that the table is made of."""
        groups = self._newest.items()
        return [path for group, (_, path) in groups if joined(*group) not in self.replaced]

    def _must_be(self, rows: Iterable[tuple[str, str]], expected: Mapping[str, str], when: str) -> None:
        found: Rows = {}
        for key, by in rows:
            if key in found:
                self._say(f"{when}, {key} stands twice, by {found[key]} and {by}")
            found[key] = by
        if found != expected:
            wrong = sorted(found.items() ^ expected.items())
            self._say(f"{when}, rows are not what was written: {wrong}")

    # -- readers -------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        return Snapshot(paths=frozenset(self._latest()), rows=dict(self._expected))

    def _are_whole(self, snapshot: Snapshot, files: Mapping[str, bytes]) -> None:
        rows = (row for path, data in files.items() for row in self._parsed(path, data))
        self._must_be(rows, snapshot.rows, "to a reader")


def _group(path: str) -> tuple[str, str]:
    """The partition and the id of the file group that a data file lies in."""
    return path.rpartition("/")[0], name_of(path).file_id
