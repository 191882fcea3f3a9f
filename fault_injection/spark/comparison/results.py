"""The outcomes that were measured: a file of JSON, and tables for readers.  Nothing here needs Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results.json")

Facts = dict[str, Any]
"""Of one try: how the job ended, the rows at once and after the next write, that write, the orphans."""


@dataclass
class Results:
    """All cells, and where they were measured."""

    measured: dict[str, Any] = field(default_factory=dict)
    cells: dict[tuple[str, str], Facts] = field(default_factory=dict)
    """By the subject's and the fault's name."""

    @classmethod
    def load(cls, file: Path) -> Results:
        """Those in a file; none if there is no such file."""
        if not file.exists():
            return cls()
        known = json.loads(file.read_text())
        return cls(known["measured"], {(cell["subject"], cell["fault"]): cell for cell in known["cells"]})

    def save(self, file: Path) -> None:
        """Write the file anew."""
        known = {"measured": self.measured, "cells": list(self.cells.values())}
        file.write_text(json.dumps(known, indent=1) + "\n")

    def begin(self, subject: str, fault: str, *, merges: bool) -> None:
        """Tries of this cell follow; earlier ones are forgotten."""
        self.cells[subject, fault] = {
            "subject": subject, "fault": fault, "merges": merges, "no effect": 0, "outcomes": [],
        }  # fmt: skip

    def sort(self, order: Iterable[tuple[str, str]]) -> None:
        """Put the cells into this order, without those that are not in it."""
        self.cells = {key: self.cells[key] for key in order if key in self.cells}

    def add(self, subject: str, fault: str, outcome: Facts) -> None:
        """Count a try; nothing came of the fault where there is no outcome."""
        cell = self.cells[subject, fault]
        if not outcome:
            cell["no effect"] += 1
            return
        for known in cell["outcomes"]:
            if {**known, "tries": 0} == {"tries": 0, **outcome}:
                known["tries"] += 1
                return
        cell["outcomes"].append({"tries": 1, **outcome})


_HOW = (
    "On a real Spark cluster whose hosts can be cut off from each other, with tables on a local disk.  "
    "Each try writes into a table that has some rows, and the fault happens; then a fresh driver reads the "
    "table by the engine's own reader, writes once more and reads again.",
    "- **rows right**: each row is there once and whole; of a write that failed none is there, of one whose "
    "driver was killed all or none.",
    "- **orphan**: a data file that no commit or snapshot names after that next write, by a look without its "
    "engine; of plain parquet, one that stays in `_temporary`.",
    "- Hudi's tables are read with and without their metadata table, sparkrobust's by its own reader and, "
    "without it, by what the timeline names; where one outcome is told, both agree.",
    "- **rows counted** is `hoodie.write.robust.pin.input=check`.  Without it rows that Spark's own "
    "functions send about by chance are stored before they are written; the fault comes while they are.",
    "- What is cut off reaches the disk and nothing else; when the job has ended it goes on for 10 s before "
    "its host can be reached again, and it is told to end.",
    "- **Near the end**: for sparkrobust and plain parquet, when the first file appears in the table's "
    "folder; for Hudi, when its metadata table's commit does; for Delta and Iceberg, when the last task has "
    "passed its last row on.  These writes have 32 tasks.",
    "- **not tried**: nothing was measured there, which speaks for nobody.",
    "- The tries are few: they show what can happen, not how often, and a fault that an engine survived here "
    "it may not survive elsewhere.  A file that is deleted while a task writes it is gone on a local disk; "
    "on an object store it would appear when the task closes it.  A try whose fault changed nothing is not "
    "counted.",
)


def page(results: Results) -> Iterator[str]:
    """The part of the page on guarantees that tells all this."""
    if not results.cells:
        return
    versions = ", ".join(f"{name} {version}" for name, version in results.measured["versions"].items())
    yield from ("", "## The same faults elsewhere", "", *_lines())
    yield from ("", f"Measured on {results.measured['date']}, {results.measured['machine']}: {versions}.")
    yield (
        "Again, as root, on Spark 3.5: `python benchmarks/install.py` for the engines' jars, then "
        "`python -m fault_injection.spark.comparison`."
    )
    yield from tables(results)


def _lines() -> Iterator[str]:
    first, *rest = _HOW
    yield from (first, "", *rest)


def tables(results: Results) -> Iterator[str]:
    """Two tables of Markdown: of writes that add rows, and of those that merge."""
    for title, merging in (("Writes that add rows", False), ("Writes that merge by key", True)):
        cells = {key: cell for key, cell in results.cells.items() if cell["merges"] == merging}
        subjects = dict.fromkeys(subject for subject, _ in cells)
        yield from ("", f"{title}:", "", f"| what goes wrong | {' | '.join(subjects)} |")
        yield "|---" * (len(subjects) + 1) + "|"
        for fault in dict.fromkeys(fault for _, fault in cells):
            told = (_told(cells.get((subject, fault))) for subject in subjects)
            yield f"| {fault} | {' | '.join(told)} |"


def _told(cell: Facts | None) -> str:
    if cell is None:
        return "not tried"
    alike: dict[str, list[Facts]] = {}
    for outcome in cell["outcomes"]:
        alike.setdefault(_NUMBER.sub("", in_words(outcome)), []).append(outcome)
    tries = sum(outcome["tries"] for outcome in cell["outcomes"])
    told = []
    for outcomes in alike.values():
        so_many = sum(outcome["tries"] for outcome in outcomes)
        such_as = "such as " if len(outcomes) > 1 else ""
        told.append(f"{such_as}{in_words(outcomes[0])} ({so_many} of {tries})")
    return "<br>".join(told) or f"the fault changed nothing in {_counted(cell['no effect'], 'try', 'tries')}"


_NUMBER = re.compile(r"[\d,]*\d (?=rows|of)")
"""Numbers of rows, which differ from try to try."""


def _counted(number: int, one: str, more: str) -> str:
    return f"{number} {one if number == 1 else more}"


def in_words(outcome: Facts) -> str:
    """One outcome."""
    said = []
    if outcome["job"].startswith("failed"):
        said.append(f"the job {outcome['job']}")
    said.append(_rows(outcome["at once"]))
    if outcome["next"]:
        said.append(f"**the next write fails: {outcome['next'].partition(':')[0]}**")
    if outcome["afterwards"] != outcome["at once"]:
        said.append(f"after the next write {_rows(outcome['afterwards'])}")
    if outcome["orphans"]:
        said.append(_counted(outcome["orphans"], "orphan", "orphans"))
    return ", ".join(said)


def _rows(told: str) -> str:
    return "rows right" if told == "right" else f"**{told}**"
