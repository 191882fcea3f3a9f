"""Many writers that know of each other: they share a lock, spare who lives, and find their conflicts.

What they write is real: the real handles write parquet files of a few rows, so that a row that one of
them overwrites, or inserts a second time, is there to be found.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from fault_injection.simulation.actors import Pipelines, Planned, Settings, Sharing, Told
from fault_injection.simulation.scheduler import World
from sparkrobust.coordinator.coordination import Coordination
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.core.conflicts import FileGroup
from sparkrobust.core.file_ids import Slot
from sparkrobust.core.heartbeat import Pulse
from sparkrobust.core.markers import Terms
from sparkrobust.core.redo import Reads
from sparkrobust.core.view import BaseFile
from sparkrobust.core.write_status import OperationType
from sparkrobust.errors import FileGoneError
from sparkrobust.formats.schema import TableSchema
from sparkrobust.handles import work
from sparkrobust.handles.base_file import matching_keys
from sparkrobust.handles.plan import KEY, SLOT, Attempt, FileOptions, Rules, SlotResult, WritePlan
from sparkrobust.options import FailedWritesPolicy
from sparkrobust.storage.contract import Storage
from sparkrobust.storage.storage_lock import StorageLock
from sparkrobust.world import Clock

ROWS = pa.schema([("id", pa.string()), ("by", pa.string())])
_RULES = Rules(combine=True, match=True, delete=False)
_FILES = FileOptions(codec="none", max_file_bytes=1 << 20, row_group_bytes=1 << 18)
_HOUR_MS = 3_600_000
SKEW_MS = 20
_ROLLBACK_DELAY_MS = 2_000


class WrongClock(Clock):
    """A host's clock, which is not the store's, and may be set back."""

    def __init__(self, true: Clock, ahead_ms: int, back_ms: int, after_ms: int) -> None:
        self._true, self._ahead_ms, self._back_ms = true, ahead_ms, back_ms
        self._until = true.now_ms() + after_ms

    def now_ms(self) -> int:
        true = self._true.now_ms()
        return true + self._ahead_ms - (self._back_ms if true > self._until else 0)

    def elapsed(self) -> float:
        return self._true.elapsed()

    def sleep(self, seconds: float) -> None:
        self._true.sleep(seconds)


class ManyWriters(Pipelines):
    """Pipelines of a table that has many writers."""

    operation = OperationType.UPSERT
    schema = TableSchema.of_arrow(ROWS, "t").to_json()

    def __init__(
        self, world: World, storage: Callable[[], Storage], settings: Settings, sharing: Sharing
    ) -> None:
        super().__init__(world, storage, settings)
        self.sharing = sharing
        self.cleaned: Container[str] = ()
        """Files that a cleaner has deleted."""
        self._works: dict[str, _Work] = {}
        """What each write was planned to do."""

    def open(self) -> HudiTable:
        world, storage = self.world, self.storage()
        clock = self._clock()
        return HudiTable.open(storage, clock, world.ids, world.hands, self._sharing(storage, clock))

    @property
    def pulse(self) -> Pulse:
        return Pulse(interval_ms=self.settings.pulse_ms, tolerable_misses=4)

    @property
    def patience_ms(self) -> int:
        return max(self.pulse.lifetime_ms, _ROLLBACK_DELAY_MS + SKEW_MS)

    def _clock(self) -> Clock:
        choices = self.world.choices
        ahead = choices.among([0, choices.random.randint(-SKEW_MS // 2, SKEW_MS // 2)])
        back = 0
        if choices.happens(self.sharing.wrong_clocks):
            ahead, back = choices.among([-_HOUR_MS, _HOUR_MS, 0]), choices.among([0, _HOUR_MS])
        return WrongClock(self.world.clock, ahead, back, choices.random.randint(0, 2_000))

    def _sharing(self, storage: Storage, clock: Clock) -> Coordination:
        world, validity = self.world, self.sharing.lock_seconds
        return Coordination(
            lock=StorageLock(
                storage,
                validity_seconds=validity,
                renew_seconds=validity / 4,
                clock=clock,
                ids=world.ids,
                hands=world.hands,
            ),
            lock_seconds=4 * validity,
            pulse=self.pulse,
            skew_ms=SKEW_MS,
            strategy=self.sharing.strategy,
            failed_writes=FailedWritesPolicy.LAZY,
            rollback_delay_ms=_ROLLBACK_DELAY_MS,
        )

    # -- a write -----------------------------------------------------------------------------------------

    def write(self, name: str, write_id: str = "") -> Callable[[], Told]:
        """A driver that writes once, and a few times more if others were faster."""

        def driver() -> Told:
            for number in range(self.sharing.retries + 1):
                this = f"{name} again {number}" if number else name
                told = super(ManyWriters, self).write(this, write_id)()
                if told.outcome != "failed" or not told.retry:
                    break
            return told

        return driver

    def _planned(self, table: HudiTable, told: Told) -> Planned:
        mine = self._works[told.name] = self._work(table, told)
        return Planned(transaction=Transaction(table, mine.terms), slots=len(mine.slots), found=mine.found)

    def _work(self, table: HudiTable, told: Told) -> _Work:
        """What the rows come to, by the table as it is now."""
        choices = self.world.choices
        self.world.pause()  # while Spark makes the rows, others go on
        partition = f"p{choices.random.randrange(self.sharing.partitions)}"
        keys = [f"{told.name}'s"] if choices.happens(0.7) else []
        if not keys or choices.happens(self.sharing.shared_keys):
            keys.append(f"shared in {partition}")
        told.rows = dict.fromkeys(keys, told.name)
        terms = self._terms(table, told)
        told.replaces = terms.replaces_table
        files = [] if told.replaces else table.base_files([partition])
        found = {partition: {base.file_id for base in files}}
        slots = tuple(self._slots(table, files, partition, keys))
        return _Work(
            terms=terms,
            slots=tuple(slot for slot, _ in slots),
            keys=tuple(tuple(mine) for _, mine in slots),
            by=told.name,
            found={} if told.replaces else found,
        )

    def _slots(
        self, table: HudiTable, files: list[BaseFile], partition: str, keys: list[str]
    ) -> Iterator[tuple[Slot, list[str]]]:
        """Each key goes to the file that has it; a new one into any file, or one of its own."""
        choices, new = self.world.choices, list(keys)
        found: list[tuple[BaseFile, list[str]]] = []
        for base in files:
            held = [keys[at] for at in matching_keys(table.storage, base, pa.array(keys)).to_pylist()]
            new = [key for key in new if key not in held]
            found.append((base, held))
        if new and found and choices.happens(0.4):
            choices.among(found)[1].extend(new)
            new = []
        numbers = iter(range(len(keys)))
        for base, held in found:
            if held:
                index = next(numbers)
                yield Slot(index=index, partition=partition, base=base, prefix=base.file_id), held
        if new:
            yield Slot(index=next(numbers), partition=partition, prefix=self.world.ids.uuid()), new

    def _stage(self, told: Told, transaction: Transaction, slots: int) -> None:
        mine = self._works[told.name]
        if self.sharing.early:
            transaction.refuse_conflicts_early(mine.changed)
        told.files = frozenset(slot.file_id(0) for slot in mine.slots)
        self._run_slots(told, transaction, range(slots))

    def _redone(self, told: Told, transaction: Transaction, slots: int) -> int:
        mine = self._works[told.name]
        reads = Reads.MORE if mine.terms.replaces_table else Reads.WHICH_KEYS_ARE_NEW
        for _ in range(self.sharing.retries):
            again = transaction.redo(mine.slots, reads)
            if not again:
                break
            keys = tuple(mine.keys[old] for old in again)
            mine = replace(mine, slots=(*mine.slots, *again.values()), keys=(*mine.keys, *keys))
            self._works[told.name] = mine
            self._run_slots(told, transaction, [new.index for new in again.values()])
            told.redone += len(again)
        return len(mine.slots)

    def _run_slots(self, told: Told, transaction: Transaction, slots: Iterable[int]) -> None:
        """A task for each of these."""
        mine = self._works[told.name]
        plan = WritePlan(
            storage=self.storage(),
            control=transaction.folder,
            schema=ROWS,
            rules=_RULES,
            files=_FILES,
            slots=mine.slots,
            tasks=tuple(range(len(mine.slots))),
            reuse=self.settings.reuse,
            key_hashes=True,
        )

        def attempt(attempt: Attempt) -> SlotResult:
            return self._written(plan, attempt, mine.rows(attempt.task))

        self.run_tasks(told, slots, attempt)

    def _written(self, plan: WritePlan, attempt: Attempt, rows: pa.Table) -> SlotResult:
        over = self.is_closed(plan.control.path)
        (result,) = work.run(plan, attempt, iter(rows.to_batches()))
        if result.problem:
            name, message, path = result.problem
            if name != FileGoneError.__name__ or path not in self.cleaned:
                raise AssertionError(f"attempt {attempt.token}: {result.problem}")
            raise FileGoneError(message, path=path)
        if over and not result.reused:
            raise AssertionError(f"attempt {attempt.token} looked after the gate was closed, and wrote")
        return result


@dataclass(frozen=True, kw_only=True)
class _Work:
    """A write as it was planned."""

    terms: Terms
    slots: tuple[Slot, ...]
    keys: tuple[tuple[str, ...], ...]
    """Of each slot."""
    by: str
    found: dict[str, set[str]]
    """The file groups of the partitions that were looked at."""

    @property
    def changed(self) -> list[FileGroup]:
        return [(slot.partition, slot.base.file_id) for slot in self.slots if slot.base]

    def rows(self, index: int) -> pa.Table:
        """What the task of a slot is given."""
        keys = list(self.keys[index])
        table = pa.table([keys, [self.by] * len(keys)], schema=ROWS)
        table = table.append_column(KEY, pa.array(keys, pa.string()))
        return table.append_column(SLOT, pa.array([index] * len(keys), pa.int32()))
