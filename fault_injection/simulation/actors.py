"""What runs in the simulated world: the real protocol, in the processes that it runs in for users."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from fault_injection.simulation.scheduler import Actor, World
from sparkrobust.coordinator.coordination import Coordination
from sparkrobust.coordinator.recovery import earlier_result
from sparkrobust.coordinator.rollback import roll_back_failed_writes
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.coordinator.write_ids import WrittenEarlier
from sparkrobust.core.conflicts import Strategy
from sparkrobust.core.file_ids import Slot
from sparkrobust.core.heartbeat import Pulse
from sparkrobust.core.instant import Action
from sparkrobust.core.markers import Terms
from sparkrobust.core.names import HOODIE, WRITE_ID, BaseFileName, MarkerType, joined
from sparkrobust.core.write_status import OperationType, WriteStat
from sparkrobust.core.written import WrittenFile
from sparkrobust.errors import CommitUnknownError, RobustWriteError
from sparkrobust.handles.attempt import SlotAttempt, is_open
from sparkrobust.handles.files import begin_file
from sparkrobust.handles.plan import Attempt, FileOptions, Rules, SlotResult, WritePlan
from sparkrobust.storage.contract import Storage
from sparkrobust.storage.direct import DirectStorage
from sparkrobust.storage.locks import FileSystemLock, Grip, Holder, TableLock

SCHEMA = '{"type":"record","name":"t_record","namespace":"hoodie.t","fields":[]}'
MARK = "simulated.overwrite"
"""In the table's properties: which write replaced it last."""
_TASK_FAILURES = 4
LOCK = f"{HOODIE}/lock"

_RULES = Rules(combine=False, match=False, delete=False)
_FILES = FileOptions(codec="none", max_file_bytes=1 << 20, row_group_bytes=1 << 20)
_NO_COLUMNS = pa.schema([])


@dataclass(kw_only=True)
class Told:
    """What a caller of ``save`` was told about its write."""

    name: str
    write_id: str = ""
    """By which other runs of the same job know it."""
    instant: str | None = None
    nonce: str = ""
    files: frozenset[str] = frozenset()
    """The ids of the files that hold its rows."""
    outcome: str = "nothing"
    """``committed``, ``failed``, ``unknown``; ``nothing`` if its driver died first."""
    error: str = ""
    driver: str = ""
    rows: Mapping[str, str] = field(default_factory=dict)
    """Key → what stands in its row, where rows are more than a number."""
    replaces: bool = False
    """It is an overwrite of the table."""
    retry: bool = False
    """Trying again was said to help."""
    redone: int = 0
    """So many slots were done again, since others were faster."""


@dataclass(kw_only=True)
class Settings:
    """How a world's writes are."""

    most_slots: int = 2
    most_files: int = 2
    speculation: float = 0.3
    reuse: bool = True
    bulk: float = 0.3
    overwrite: float = 0.0
    counted: float = 0.0
    """How often the rows are counted before they are written."""
    lock_expires: float | None = None
    """After so many seconds the file lock that all share expires; without, no process knows of another's."""
    pulse_ms: int = 60_000
    even_alive: bool = True
    """Recoverers end writes whose heartbeat has not expired, too."""
    direct: bool = False
    """Tasks make their files visible themselves."""
    sharing: Sharing | None = None
    """The writers know of each other."""


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """How writers that know of each other go about it."""

    lock_seconds: float = 4.0
    """For how long a lock counts that is not renewed."""
    strategy: Strategy = Strategy.START_TIME
    early: bool = False
    """Conflicts are looked for before anything is written."""
    retries: int = 0
    partitions: int = 1
    shared_keys: float = 0.5
    """How often a write has a key that others write, too."""
    wrong_clocks: float = 0.0
    """How often a driver's clock is an hour off, or set back by one."""


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A write before it begins."""

    transaction: Transaction
    slots: int
    bulk: bool = False
    """How many slots it has comes out only at its end."""
    found: Mapping[str, set[str]] = field(default_factory=dict)
    """Where it looked for its keys: the file groups of each partition."""


class NoLock(TableLock):
    """Of a process that knows of no other one: it is always free."""

    shared = False
    pause_seconds = 0.0

    def try_acquire(self, owner: str, nonce: str) -> Grip:
        return _NoGrip()

    def withdraw(self, nonce: str) -> None:
        """Nothing."""

    def holder(self) -> Holder | None:
        return None

    def __str__(self) -> str:
        return "none"


class _NoGrip(Grip):
    def is_held(self) -> bool:
        return True

    def release(self) -> None:
        """Nothing."""


class StageFailed(Exception):
    """Spark has given up the write stage."""


class Pipelines:
    """The users' pipelines, and what they were told."""

    operation = OperationType.INSERT
    schema = SCHEMA

    def __init__(self, world: World, storage: Callable[[], Storage], settings: Settings) -> None:
        self.world, self.storage, self.settings = world, storage, settings
        self.is_closed: Callable[[str], bool] = lambda folder: False
        """Whether the gate of a control folder was ever closed."""
        self.told: list[Told] = []
        self.attempts: list[Actor] = []

    def open(self) -> HudiTable:
        world, storage = self.world, self.storage()
        return HudiTable.open(storage, world.clock, world.ids, world.hands, self._coordination(storage))

    def _coordination(self, storage: Storage) -> Coordination:
        world, settings = self.world, self.settings
        if settings.lock_expires is None:
            lock: TableLock = NoLock(world.clock, world.ids)
        else:
            lock = FileSystemLock(
                storage, LOCK, expire_seconds=settings.lock_expires, clock=world.clock, ids=world.ids
            )
        return Coordination(lock=lock, lock_seconds=4, pulse=self.pulse, skew_ms=20)

    @property
    def pulse(self) -> Pulse:
        return Pulse(interval_ms=self.settings.pulse_ms)

    @property
    def patience_ms(self) -> int:
        """After so long whoever is dead is taken for it."""
        return self.pulse.lifetime_ms

    # -- a write -----------------------------------------------------------------------------------------

    def write(self, name: str, write_id: str = "") -> Callable[[], Told]:
        """A driver that writes once, and believes that no other one is alive."""

        def driver() -> Told:
            running = self.world.running
            told = Told(name=name, write_id=write_id, driver=running.name if running else "")
            self.told.append(told)
            try:
                self._write(told)
                told.outcome = "committed"
            except CommitUnknownError as error:
                told.outcome, told.error = "unknown", str(error)
            except (RobustWriteError, StageFailed) as error:
                # No two worlds have the same URL.
                said = str(error).replace(self.storage().url, "the table")
                told.outcome, told.error = "failed", f"{type(error).__name__}: {said}"
                told.retry = getattr(error, "outcome", "") in ("Conflicted", "Retryable")
            return told

        return driver

    def _write(self, told: Told) -> None:
        table = self.open()
        if told.write_id and earlier_result(table, told.write_id, self.operation.value):
            return
        self._takes_over(table)
        planned = self._planned(table, told)
        transaction, slots = planned.transaction, planned.slots
        counted = self.world.choices.happens(self.settings.counted)
        told.instant, told.nonce = transaction.time, transaction.folder.nonce
        try:
            transaction.begin(slots=None if planned.bulk else slots, counted=counted, found=planned.found)
            told.instant, told.nonce = transaction.time, transaction.folder.nonce
            self._stage(told, transaction, slots)
            slots = self._redone(told, transaction, slots)
            markers = transaction.finalize(slots)
            if counted:
                transaction.compare(markers, [])
            transaction.commit(markers)
        except CommitUnknownError:
            raise
        except WrittenEarlier:
            transaction.abort("another run has committed it")
            told.instant, told.nonce = None, ""  # what it is told is about that other one
            return
        except Exception as error:
            if transaction.abort(f"its driver failed: {type(error).__name__}"):
                raise
            return
        finally:
            transaction.leave()
        with contextlib.suppress(RobustWriteError):  # the next write sweeps
            transaction.clean_up()

    def _takes_over(self, table: HudiTable) -> None:
        """What a driver does before it writes."""
        roll_back_failed_writes(table)

    def _planned(self, table: HudiTable, told: Told) -> Planned:
        """A write by the table as it is now."""
        slots = self.world.choices.random.randint(1, self.settings.most_slots)
        bulk = self.world.choices.happens(self.settings.bulk)
        return Planned(transaction=Transaction(table, self._terms(table, told)), slots=slots, bulk=bulk)

    def _terms(self, table: HudiTable, told: Told) -> Terms:
        extra = {WRITE_ID: told.write_id} if told.write_id else {}
        if not self.world.choices.happens(self.settings.overwrite):
            return Terms(action=Action.COMMIT, operation=self.operation, schema=self.schema, extra=extra)
        return Terms(
            action=Action.REPLACE_COMMIT,
            operation=OperationType.INSERT_OVERWRITE_TABLE,
            schema=self.schema,
            extra=extra,
            replaces_table=True,
            new_properties={**table.config.values, MARK: told.name},
        )

    def _plan(self, told: Told, transaction: Transaction, slots: int) -> WritePlan:
        """What tasks are sent."""
        ids = self.world.ids
        plan = WritePlan(
            storage=DirectStorage(self.storage()) if self.settings.direct else self.storage(),
            control=transaction.folder,
            schema=_NO_COLUMNS,
            rules=_RULES,
            files=_FILES,
            slots=tuple(Slot(index=n, partition=f"p{n % 2}", prefix=ids.uuid()) for n in range(slots)),
            tasks=tuple(range(slots)),
            reuse=self.settings.reuse,
        )
        told.files = frozenset(
            slot.file_id(number) for slot in plan.slots for number in range(files_of(self.settings, slot))
        )
        return plan

    def _stage(self, told: Told, transaction: Transaction, slots: int) -> None:
        plan = self._plan(told, transaction, slots)
        self.run_tasks(told, range(slots), lambda attempt: run_attempt(self, plan, attempt))

    def _redone(self, told: Told, transaction: Transaction, slots: int) -> int:
        """How many slots there are once those were done again that others were faster to change."""
        return slots

    def run_tasks(self, told: Told, slots: Iterable[int], run: Callable[[Attempt], SlotResult]) -> None:
        """Spark's part: a task for each slot, which is tried again, and sometimes runs twice at once."""
        running = [_Task(self, told.name, run, slot) for slot in slots]

        def all_over() -> bool:
            over = [task.is_over() for task in running]  # each of them is looked after
            return all(over)

        self.world.wait(all_over)
        for task in running:
            if task.result is None:
                raise StageFailed(f"task {task.slot} failed {_TASK_FAILURES} times")


@dataclass
class _Task:
    """A task of the write stage, as Spark's scheduler sees it."""

    pipelines: Pipelines
    name: str
    run: Callable[[Attempt], SlotResult]
    slot: int
    attempts: list[Actor] = field(default_factory=list)
    result: SlotResult | None = None

    def __post_init__(self) -> None:
        self._launch()
        if self.pipelines.world.choices.happens(self.pipelines.settings.speculation):
            self._launch()

    def is_over(self) -> bool:
        """Look after the attempts; one more where all have failed."""
        for attempt in self.attempts:
            if attempt.ended and not attempt.failed:
                self.result = attempt.result
                return True
        failed = sum(attempt.failed for attempt in self.attempts)
        if failed >= _TASK_FAILURES:
            return True
        if failed == len(self.attempts):
            self._launch()
        return False

    def _launch(self) -> None:
        world = self.pipelines.world
        number = len(self.attempts)
        attempt = Attempt.of(self.slot, stage=0, ids=world.ids)
        actor = world.spawn(f"{self.name}.{self.slot}.{number}", lambda: self.run(attempt))
        self.attempts.append(actor)
        self.pipelines.attempts.append(actor)


def run_attempt(pipelines: Pipelines, plan: WritePlan, attempt: Attempt) -> SlotResult:
    """One attempt of a task of one slot, by the real steps; only its files are made of little."""
    slot = plan.slots[attempt.task]
    look = is_open(plan)
    over = pipelines.is_closed(plan.control.path)
    step = SlotAttempt(plan=plan, attempt=attempt, slot=slot.index, open_gate=look)
    rows = pa.table({"row": [slot.index]})
    count = files_of(pipelines.settings, slot)
    result = step.run([rows], lambda tables: _files(plan, attempt, slot, tables, count))
    if over and not result.reused:
        raise AssertionError(f"attempt {attempt.token} looked after the gate was closed, and wrote")
    return result


def files_of(settings: Settings, slot: Slot) -> int:
    """How many files the rows of a slot come to."""
    return 1 + int(slot.prefix[0], 16) % settings.most_files


def _files(
    plan: WritePlan, attempt: Attempt, slot: Slot, tables: Iterator[pa.Table], count: int
) -> list[WrittenFile]:
    total = sum(table.num_rows for table in tables)
    written: list[WrittenFile] = []
    try:
        for number in range(count):
            written.append(_file(plan, attempt, slot, number, total if not number else 0))
    except BaseException:
        for file in written:
            plan.storage.discard(file.staged.token)
        raise
    return written


def _file(plan: WritePlan, attempt: Attempt, slot: Slot, number: int, rows: int) -> WrittenFile:
    file_id = slot.file_id(number)
    name = BaseFileName(file_id=file_id, write_token=attempt.token, instant=plan.control.instant)
    path = joined(slot.partition, str(name))
    with begin_file(plan, path, MarkerType.CREATE) as sink:
        sink.write(content_of(path))
        staged = sink.finish()
    stat = WriteStat(
        file_id=file_id,
        path=path,
        partition_path=slot.partition,
        num_writes=rows,
        num_inserts=rows,
        total_write_bytes=staged.size,
        file_size_in_bytes=staged.size,
    )
    return WrittenFile(stat=stat, staged=staged)


def content_of(path: str) -> bytes:
    """What a whole data file of this name holds."""
    return f"rows of {path}".encode()
