"""``sr.write(df)``: what ``df.write.format("hudi")`` takes, and nothing else to change."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NoReturn

from pyspark.sql import DataFrame

from sparkrobust.coordinator import metadata_table
from sparkrobust.coordinator.conflicts import SERVICE_CONFLICT
from sparkrobust.coordinator.coordination import Coordination, coordination_of
from sparkrobust.coordinator.create import (
    forget_table,
    is_made,
    make_table,
    new_properties,
    overwriting_properties,
    refuse_contradictions,
)
from sparkrobust.coordinator.foreign import kind_of_foreign_table
from sparkrobust.coordinator.recovery import earlier_result
from sparkrobust.coordinator.rollback import roll_back_failed_writes
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.names import HOODIE, META_COLUMNS
from sparkrobust.core.outcome import WriteResult, tell_committed, tell_undone
from sparkrobust.core.table_config import TableConfig
from sparkrobust.errors import (
    CommitOutcome,
    CommitUnknownError,
    ConflictError,
    InvalidInputError,
    InvalidOptionError,
    OperationCancelled,
    RobustWriteError,
    TableNotFoundError,
)
from sparkrobust.formats.schema import TableSchema
from sparkrobust.options import Given, Mode, Operation, WriteOptions, parse
from sparkrobust.spark.intent import Intent
from sparkrobust.spark.interrupts import Interrupts, JobGroup, Terminated
from sparkrobust.spark.pipeline import WriteRun
from sparkrobust.spark.prepare import check_fields
from sparkrobust.spark.progress import watching
from sparkrobust.spark.schema import to_arrow
from sparkrobust.storage.contract import Staging, Storage
from sparkrobust.storage.resolve import require_put_if_absent, storage_for
from sparkrobust.world import Clock, Hands, Ids

__all__ = ["CommitOutcome", "WriteResult", "Writer", "write"]

_log = logging.getLogger("sparkrobust")

_SAID: set[str] = set()
"""The tables of which it was said that they are written in mode direct."""
_MODES = {
    "append": "append",
    "overwrite": "overwrite",
    "ignore": "ignore",
    "error": "errorifexists",
    "errorifexists": "errorifexists",
    "default": "errorifexists",
}

Value = str | bool | int | float | None


def write(df: DataFrame) -> Writer:
    """Begin to write a DataFrame into a Hudi table.

    Examples
    --------
    >>> sr.write(df).options(**options).mode("append").save(path)  # doctest: +SKIP
    """
    return Writer(df)


class Writer:
    """Collects options as Spark's own writer does; ``save`` writes."""

    def __init__(self, df: DataFrame) -> None:
        self._df = df
        self._options: dict[str, Value] = {}
        self._mode = "errorifexists"
        self._partition_by: tuple[str, ...] = ()

    def format(self, source: str) -> Writer:
        """Accepts ``"hudi"``, so that nothing but ``df.write`` need change in a pipeline."""
        if source.lower() not in ("hudi", "org.apache.hudi"):
            raise InvalidOptionError(f"sparkrobust writes Hudi tables, not {source!r}")
        return self

    def option(self, key: str, value: Value) -> Writer:
        """Set one option."""
        self._options[key] = value
        return self

    def options(self, **options: Value) -> Writer:
        """Set several options."""
        self._options.update(options)
        return self

    def mode(self, saveMode: str | None) -> Writer:
        """``append``, ``overwrite``, ``ignore`` or ``errorifexists`` (the default)."""
        if saveMode is not None:
            if saveMode.lower() not in _MODES:
                raise InvalidOptionError(
                    f"unknown mode {saveMode!r}", hint="append, overwrite, ignore or errorifexists"
                )
            self._mode = _MODES[saveMode.lower()]
        return self

    def partitionBy(self, *cols: str | list[str]) -> Writer:
        """The partition columns, if ``hoodie.datasource.write.partitionpath.field`` does not say them."""
        flat: list[str] = []
        for col in cols:
            flat += [col] if isinstance(col, str) else list(col)
        self._partition_by = tuple(flat)
        return self

    def save(
        self,
        path: str | None = None,
        format: str | None = None,
        mode: str | None = None,
        partitionBy: str | list[str] | None = None,
        **options: Value,
    ) -> WriteResult:
        """Write, and return when the write is durable.

        Raises
        ------
        RobustWriteError
            Its ``outcome`` says what became of the write.  ``CONFLICTED`` or ``RETRYABLE``: nothing of it is
            part of the table, or ever will be, and it can be made again.  ``UNKNOWN``: it may be, and the
            message says what to look at.  ``None``: no write was begun, or the caller has to change
            something first; nothing of it is part of the table.
        Exception
            Spark's own, or the pipeline's: nothing of the write is part of the table.  If one was begun, the
            error has been given an ``outcome``, too.
        KeyboardInterrupt
            Ctrl-C came too late to stop the write; ``outcome`` says whether it is durable, or had failed.
        """
        if format is not None:
            self.format(format)
        self.mode(mode).options(**options)
        if partitionBy is not None:
            self.partitionBy(partitionBy)
        target = path if path is not None else self._options.get("path")
        if not target:
            raise InvalidOptionError("save needs the path of the table")
        if not isinstance(self._df, DataFrame) and not hasattr(self._df, "mapInArrow"):
            raise InvalidInputError(f"sr.write takes a DataFrame, not {type(self._df).__name__}")
        if getattr(self._df, "isStreaming", False):
            raise InvalidInputError("a streaming DataFrame can't be written by a batch write")
        parsed = parse(self._given())
        for key in parsed.unknown:
            _log.warning("nobody knows the option %s", key)
        if parsed.ignored:
            _log.info("options that mean nothing here: %s", ", ".join(sorted(parsed.ignored)))
        storage = storage_for(str(target), parsed.storage)
        try:
            _look_at_mode(parsed.mode, storage)
            return _save(self._df, storage, parsed, self._mode)
        except RobustWriteError as error:
            tell_undone(error, path=storage.url)
            raise

    def _given(self) -> Given:
        given = dict(self._options)
        key = "hoodie.datasource.write.partitionpath.field"
        if self._partition_by and key not in given:
            given[key] = ",".join(self._partition_by)
        return given

    def saveAsTable(self, name: str, *args: object, **kwargs: object) -> NoReturn:
        """Not without a catalog that knows Hudi; says what to do instead."""
        raise InvalidInputError(
            f"saveAsTable({name!r}) needs a catalog that knows Hudi",
            hint="write with save(path), and register the path with Hudi's jar: "
            "CREATE TABLE … USING hudi LOCATION 'path'",
        )

    def insertInto(self, name: str, *args: object, **kwargs: object) -> NoReturn:
        """As :meth:`saveAsTable`."""
        raise InvalidInputError(
            f"insertInto({name!r}) needs a catalog that knows Hudi", hint="use save(path)"
        )


def _look_at_mode(mode: Mode, storage: Storage) -> None:
    if mode is Mode.COPY and storage.staging is not Staging.COPY:
        raise InvalidOptionError(
            f"hoodie.write.robust.mode=copy is for stores that publish by copying; at {storage.url} auto "
            f"means {storage.staging.value}, which promises the same",
            path=storage.url,
            hint="leave the option out",
        )
    if mode is Mode.DIRECT and storage.url not in _SAID:
        _SAID.add(storage.url)
        _log.warning(
            "hoodie.write.robust.mode=direct: files of %s are visible before their commit; what is promised "
            "then, sr.Table(path).guarantees(mode='direct') tells",
            storage.url,
        )


def _save(df: DataFrame, storage: Storage, options: WriteOptions, mode: str) -> WriteResult:
    clock, ids = Clock(), Ids()
    coordination = coordination_of(options, storage, clock, ids)
    there = is_made(storage)
    done_before = partial(_done_before, storage, options, mode, clock, ids, coordination)
    group = f"sparkrobust-{ids.nonce()}"
    what = f"{options.operation.value} into {storage.url}"
    with (
        Interrupts(storage.url) as interrupts,
        JobGroup(df.sparkSession, group, f"sparkrobust: {storage.url}") as jobs,
        watching(df.sparkSession, options.progress, what, storage, clock, Hands()),
    ):
        try:
            done = _asked(done_before, interrupts) if there else None
            if done is not None:
                return done
            if options.operation is Operation.DELETE:
                _look_at_delete(storage, mode, there=there)
            if there:
                table, made = HudiTable.open(storage, clock, ids, coordination=coordination), False
            else:
                with interrupts.undisturbed():
                    table, made = _make_table(df, storage, options, clock, ids, coordination)
                # The mode speaks of a table that another writer was faster to make, too.
                done = None if made else _asked(done_before, interrupts)
                if done is not None:
                    return done
            try:
                interrupts.give_in()
                replacing = not made and mode == "overwrite"
                into_table = partial(_into_table, df, table, options, jobs, interrupts, replacing=replacing)
                return _until_no_conflict(into_table, table, options)
            except CommitUnknownError:
                raise
            except BaseException:
                if made:
                    with interrupts.undisturbed():
                        forget_table(table)
                raise
        except RobustWriteError:
            raise  # it says what became of the write
        except BaseException as error:
            interrupt = interrupts.behind(error)
            if interrupts.too_late:
                tell_committed(error, path=storage.url)
            if interrupt is None or interrupts.too_late:
                raise
            why = "SIGTERM" if isinstance(interrupt, Terminated) else "Ctrl-C"
            raise OperationCancelled(
                f"the write into {storage.url} was stopped by {why} and rolled back; "
                "the table is as it was before",
                path=storage.url,
                instant=getattr(error, "instant", None),
            ) from error


def _look_at_delete(storage: Storage, mode: str, *, there: bool) -> None:
    if mode != "append":
        raise InvalidInputError('a delete works on the rows of a table: say mode("append")')
    if not there:
        raise TableNotFoundError(
            f"there is no Hudi table at {storage.url} to delete rows from",
            path=storage.url,
            hint="look at the path",
        )


def _asked(done_before: Callable[[], WriteResult | None], interrupts: Interrupts) -> WriteResult | None:
    """What ``done_before`` says; it may end the write of an earlier run, which is not to be cut."""
    with interrupts.undisturbed():
        done = done_before()
        interrupts.too_late = done is not None and done.earlier
    if not interrupts.too_late:
        interrupts.give_in()
    return done


def _done_before(
    storage: Storage,
    options: WriteOptions,
    mode: str,
    clock: Clock,
    ids: Ids,
    coordination: Coordination,
) -> WriteResult | None:
    """The result of a write that has nothing to do, since there is a table; ``None`` if it has."""
    if options.write_id is not None:
        # Before the mode is looked at: a job that made the table runs again in the same mode.
        opened = HudiTable.open(storage, clock, ids, coordination=coordination)
        earlier = earlier_result(opened, options.write_id, options.operation.value)
        if earlier is not None:
            return earlier
    if mode == "errorifexists":
        raise InvalidInputError(
            f"there is a Hudi table at {storage.url} already",
            path=storage.url,
            kind="table-exists",
            hint='say mode("append") to write into it',
        )
    return WriteResult(path=storage.url, operation=options.operation.value) if mode == "ignore" else None


def _make_table(
    df: DataFrame,
    storage: Storage,
    options: WriteOptions,
    clock: Clock,
    ids: Ids,
    coordination: Coordination,
) -> tuple[HudiTable, bool]:
    # What is wrong with the rows' schema shows before there is a table.
    config = TableConfig.of(new_properties(options), path=storage.url)
    check_fields(df, config, options)
    TableSchema.of_arrow(to_arrow(df.drop(*META_COLUMNS).schema), config.name)
    foreign = kind_of_foreign_table(storage)
    if foreign is not None:
        raise InvalidInputError(
            f"{storage.url} holds {foreign}, not a Hudi table",
            path=storage.url,
            kind="foreign-table",
            hint="write to a path of its own",
        )
    storage.make_folder(HOODIE)
    require_put_if_absent(storage, HOODIE)
    return make_table(storage, options, clock, ids, coordination)


def _until_no_conflict(
    write: Callable[[], WriteResult], table: HudiTable, options: WriteOptions
) -> WriteResult:
    """Write, and after a conflict that another try can get past write again, as often as is asked for."""
    retries = 0
    while True:
        try:
            return replace(write(), retries=retries)
        except ConflictError as error:
            if retries == options.conflict_retries or error.kind == SERVICE_CONFLICT:
                raise
            retries += 1
            _log.info("try %d of %d after a conflict: %s", retries, options.conflict_retries, error)
        table.reload_config()
        table.reload()


def _into_table(
    df: DataFrame,
    table: HudiTable,
    options: WriteOptions,
    jobs: JobGroup,
    interrupts: Interrupts,
    *,
    replacing: bool,
) -> WriteResult:
    url = table.storage.url
    metadata_table.refuse_or_allow(table, may_drop=options.drop_metadata_table)
    if not replacing:
        table.config.refuse_writing(url)
    # First of all, since a replacing write that failed may have left its own properties.
    with interrupts.undisturbed():
        rolled_back = roll_back_failed_writes(table)
    interrupts.give_in()
    values = overwriting_properties(table.config, options) if replacing else None
    if values is None:
        refuse_contradictions(table.config, options)
    else:
        table.config = TableConfig.of(values, path=url)
    intent = Intent(table=table, options=options, replacing=replacing)
    run = WriteRun(df=df, intent=intent, jobs=jobs, interrupts=interrupts, new_properties=values)
    return replace(run.run(), rolled_back=tuple(str(instant.time) for instant in rolled_back))
