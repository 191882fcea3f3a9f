"""Write what is generated: the README's tables of options, the samples in ``conf/``, ``docs/guarantees.md``.

``python -m tools.docs`` writes, ``--check`` only says what is stale.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from fault_injection.faults import FAULTS
from fault_injection.spark.comparison import results as compared
from sparkrobust.core.guarantees import MODES, Promise, guarantees_of
from sparkrobust.options import OPTIONS, READ_OPTIONS, REFUSED, SECTIONS, Kind, Option

ROOT = Path(__file__).resolve().parent.parent
GUARANTEES_FROM = (
    "Written by `make docs` from `sparkrobust/core/guarantees.py`, `fault_injection/faults.py` and what "
    "`fault_injection/spark/comparison` measured."
)
GENERATED = "written by `make docs` from sparkrobust/options"

SAMPLES: dict[str, tuple[str, dict[str, str]]] = {
    "upsert.properties": (
        "Rows are identified by a key, and of two rows with one key the later event wins.",
        {
            "hoodie.table.name": "trips",
            "hoodie.datasource.write.operation": "upsert",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "day",
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.datasource.write.hive_style_partitioning": "true",
        },
    ),
    "bulk-insert.properties": (
        "A first load: nothing is looked up, rows of a partition are written together.",
        {
            "hoodie.table.name": "trips",
            "hoodie.datasource.write.operation": "bulk_insert",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "day",
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.bulkinsert.sort.mode": "PARTITION_SORT",
        },
    ),
    "delete.properties": (
        "The rows' keys are deleted from an existing table, whose own properties say the rest.",
        {"hoodie.table.name": "trips", "hoodie.datasource.write.operation": "delete"},
    ),
    "shared-with-hudi.properties": (
        "For a table that Hudi writes too, one writer at a time: its metadata table, which sparkrobust does\n"
        "# not keep, is dropped.  Hudi's own writers then need hoodie.metadata.enable=false.",
        {
            "hoodie.table.name": "trips",
            "hoodie.datasource.write.operation": "upsert",
            "hoodie.write.robust.drop.metadata.table": "true",
            "hoodie.parquet.compression.codec": "gzip",
        },
    ),
}


def table(options: Iterable[Option]) -> str:
    """Options as rows of Markdown."""
    lines = ["| key | values | default | meaning |", "|---|---|---|---|"]
    for option in options:
        names = "<br>".join(f"`{name}`" for name in (option.key, *option.aliases))
        default = f"`{option.default_text}`" if option.default_text else ""
        lines.append(f"| {names} | {accepted(option)} | {default} | {option.doc} |")
    return "\n".join(lines) + "\n"


def accepted(option: Option) -> str:
    """What may be given, in the words of a reader."""
    if option.kind is Kind.CLASS:
        return "class name"
    if option.values:
        return ", ".join(f"`{value}`" for value in option.values)
    plain = {
        Kind.TEXT: "text",
        Kind.FIELDS: "field, field, …",
        Kind.INT: "whole number",
    }
    return option.unit or plain[option.kind]


def option_tables() -> str:
    """The README's section on options."""
    parts = [f"**{title}**\n\n{table(rows)}" for title, rows in SECTIONS.items()]
    parts.append(f"**Reading**\n\n{table(READ_OPTIONS)}")
    refused = "\n".join(
        ["| key | why |", "|---|---|", *(f"| `{row.key}` | {row.reason} |" for row in REFUSED)]
    )
    parts.append(f"**Refused**, when they ask for anything:\n\n{refused}\n")
    return "\n".join(parts)


def between_marks(text: str, name: str, content: str) -> str:
    """The text with what stands between the marks of this name replaced."""
    start, end = f"<!-- {name}: {GENERATED} -->\n", f"<!-- end of {name} -->\n"
    if text.count(start) != 1 or text.count(end) != 1:
        raise SystemExit(f"README.md must have one pair of lines\n{start}{end}")
    return text[: text.index(start) + len(start)] + "\n" + content + "\n" + text[text.index(end) :]


def sample(about: str, options: dict[str, str]) -> str:
    """A file of options, each with what it means."""
    docs = {name: option.doc for option in OPTIONS for name in (option.key, *option.aliases)}
    lines = [f"# {about}", f"# {GENERATED.capitalize()}.", ""]
    for key, value in options.items():
        lines += [f"# {docs[key]}", f"{key}={value}"]
    return "\n".join(lines) + "\n"


def every_option() -> str:
    """A file that shows every option, each commented out."""
    lines = [f"# Every option, with its default.  {GENERATED.capitalize()}."]
    for title, options in SECTIONS.items():
        lines += ["", f"# -- {title.lower()} " + "-" * (80 - len(title))]
        for option in options:
            choice = f" ({', '.join(option.values)})" if option.values else ""
            unit = f", in {option.unit}" if option.unit else ""
            lines += ["", f"# {option.doc}{unit}{choice}"]
            lines += [f"#{option.key}={option.default_text}"]
    return "\n".join(lines) + "\n"


SPARK_DEFAULTS = f"""# What a cluster needs to run a job that writes with sparkrobust.
# {GENERATED.capitalize()}.
# Its workers need pyarrow and nothing else of ours: the package travels in the archive of `make zip`.
spark.submit.pyFiles  sparkrobust.zip
"""


def promised(mode: str) -> str:
    """Which promises hold, where that is not all."""
    everything = list(Promise)

    def numbers(*, folders: bool) -> str:
        found = guarantees_of(mode, "", folders=folders).promises
        return ", ".join(str(everything.index(promise) + 1) for promise in found)

    if numbers(folders=False) == numbers(folders=True):
        return ""
    return (
        f"  Only on request.  Promised on a store with folders: {numbers(folders=True)}; "
        f"on others: {numbers(folders=False)}."
    )


def guarantees() -> str:
    """The page on what may go wrong, and what is promised then."""
    lines = ["# What writes promise", "", f"{GUARANTEES_FROM}", ""]
    lines += ["For every write, whatever tasks, stages, executors and drivers do:", ""]
    lines += [f"{number}. {promise.value}." for number, promise in enumerate(Promise, 1)]
    for mode in MODES:
        found = guarantees_of(mode, "")
        lines += ["", f"## Mode `{mode}`", "", f"{found.how.capitalize()}.{promised(mode)}  Limits:", ""]
        lines += [f"- {limit}." for limit in found.limits]
    lines += ["", "`sr.Table(path).guarantees()` tells the mode of a table.", "", "## Faults", ""]
    lines += ["| what goes wrong | where | the write | what holds | simulated by |", "|---|---|---|---|---|"]
    for fault in FAULTS:
        shown = ", ".join(fault.simulated)
        lines.append(f"| {fault.name} | {fault.where} | {fault.verdict.value} | {fault.then} | {shown} |")
    lines += [
        "",
        "Simulated: `python -m fault_injection --seeds 0:20000`, or `--scenario` and a story's name.",
    ]
    lines += compared.page(compared.Results.load(compared.RESULTS))
    return "\n".join(lines) + "\n"


def files(root: Path = ROOT) -> dict[Path, str]:
    """Every generated file, as it should be."""
    readme = root / "README.md"
    wanted = {readme: between_marks(readme.read_text(), "options", option_tables())}
    for name, (about, options) in SAMPLES.items():
        wanted[root / "conf" / name] = sample(about, options)
    wanted[root / "conf" / "every-option.properties"] = every_option()
    wanted[root / "conf" / "spark-defaults.conf"] = SPARK_DEFAULTS
    wanted[root / "docs" / "guarantees.md"] = guarantees()
    return wanted


def stale(root: Path = ROOT) -> list[Path]:
    """Generated files that are not what they should be, and files in ``conf/`` that nothing generates."""
    wanted = files(root)
    wrong = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    return wrong + [path for path in sorted((root / "conf").glob("*")) if path not in wanted]


def main(arguments: list[str]) -> None:
    if "--check" in arguments:
        wrong = stale()
        if wrong:
            raise SystemExit("run make docs, these are stale: " + ", ".join(path.name for path in wrong))
        return
    for path, text in files().items():
        path.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
