"""The faults that are compared: what happens, when, and how it is seen that it has done something."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from fault_injection.spark import faults as f
from fault_injection.spark.comparison.subjects import TASKS, Subject
from fault_injection.spark.faults import at
from fault_injection.spark.report import Report

Make: TypeAlias = "Callable[[Subject, str], f.Fault | None]"
"""A fault of a write of the subject's into a table."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One thing that goes wrong in a write of each subject."""

    name: str
    of_inserts: Make | None = None
    of_merges: Make | None = None
    how: str = "source"
    took_effect: Callable[[Report], bool] = lambda report: True
    speculation: bool = False
    kills_driver: bool = False

    def of(self, subject: Subject, table: str) -> f.Fault | None:
        """The fault of a write of the subject's, if there is any."""
        make = self.of_merges if subject.merges else self.of_inserts
        return make(subject, table) if make else None


_ALONE_SECONDS = 10.0
"""Enough to finish a file."""


def _half() -> f.At:
    """A task has passed half its rows on; its files are open."""
    return at("source half", partition="0")


def _open(subject: Subject, table: str) -> f.When:
    """A task writes a data file: where a merge has no source in the stage that writes."""
    if subject.family == "sparkrobust":
        return at("file begun", who="task")
    return f.Opens(f"{table}/*.parquet", writing=True)


def _lost_executor(report: Report) -> bool:
    return bool(report.reaction.executors_lost)


def _failed_task(report: Report) -> bool:
    return bool(report.reaction.tasks_failed)


def _repeated(report: Report) -> bool:
    return report.reaction.stages_repeated > 0


def _lose_shuffle(subject: Subject, table: str) -> f.Fault:
    """Where the first task is half done, and the last ones have not begun."""
    first = TASKS + 1 if subject.counts_first else 1
    return f.Fault("lost", at("source half", nth=first), f.LoseShuffle())


def _driver_dies_near_the_end(subject: Subject, table: str) -> f.Fault | None:
    when = subject.near_the_end(table)
    return f.Fault("kill", when, f.KillDriver()) if when else None


COMPARED = (
    Compared(
        name="a task raises after half its rows",
        of_inserts=lambda subject, table: f.Fault("raises", _half(), f.Raise()),
        took_effect=_failed_task,
    ),
    Compared(
        name="a task raises after its last row",
        of_inserts=lambda subject, table: f.Fault("raises", at("source ends", partition="0"), f.Raise()),
        took_effect=_failed_task,
    ),
    Compared(
        name="a task's Python process exits after half its rows",
        of_inserts=lambda subject, table: f.Fault("exits", _half(), f.ExitWorker()),
        took_effect=_failed_task,
    ),
    Compared(
        name="an executor is killed while it writes a file",
        of_inserts=lambda subject, table: f.Fault("kill", _half(), f.KillExecutor()),
        of_merges=lambda subject, table: f.Fault("kill", _open(subject, table), f.KillExecutor()),
        took_effect=_lost_executor,
    ),
    Compared(
        name="an executor is cut off before its task's first row, and wakes after the commit",
        of_inserts=lambda subject, table: f.Fault(
            "cut off", at("source begins", partition="0"), f.Partition(alone=_ALONE_SECONDS)
        ),
        took_effect=_lost_executor,
    ),
    Compared(
        name="an executor is cut off while it writes a file, and wakes after the commit",
        of_inserts=lambda subject, table: f.Fault("cut off", _half(), f.Partition(alone=_ALONE_SECONDS)),
        of_merges=lambda subject, table: f.Fault(
            "cut off", _open(subject, table), f.Partition(frozen=True, alone=_ALONE_SECONDS)
        ),
        took_effect=_lost_executor,
    ),
    Compared(
        name="two copies of a task come to their end at once (speculation)",
        of_inserts=lambda subject, table: f.Fault(
            "copies",
            at("source half", partition="0", attempt="0"),
            f.Hold(),
            until=at("source ends", partition="0", attempt="1"),
        ),
        took_effect=lambda report: report.reaction.copies > 0,
        speculation=True,
    ),
    Compared(
        name="shuffle files below the write are lost",
        of_inserts=_lose_shuffle,
        of_merges=lambda subject, table: f.Fault("lost", _open(subject, table), f.LoseShuffle()),
        how="shuffled",
        took_effect=_repeated,
    ),
    Compared(
        name="the same, below a shuffle by Spark's rand() over rows that come in any order",
        of_inserts=_lose_shuffle,
        how="chance",
        took_effect=_repeated,
    ),
    Compared(
        name="the same, below a shuffle by chance in a Python function",
        of_inserts=_lose_shuffle,
        how="python chance",
        took_effect=_repeated,
    ),
    Compared(
        name="the driver is killed while a task writes a file",
        of_inserts=lambda subject, table: f.Fault("kill", _half(), f.KillDriver()),
        of_merges=lambda subject, table: f.Fault("kill", _open(subject, table), f.KillDriver()),
        kills_driver=True,
    ),
    Compared(
        name="the driver is killed near the end",
        of_inserts=_driver_dies_near_the_end,
        of_merges=_driver_dies_near_the_end,
        how="many",
        kills_driver=True,
    ),
)
