"""Look at a table's timeline, writes and locks, and end what dead writers left."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import Enum
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sparkrobust.coordinator import facts
from sparkrobust.coordinator.facts import Fact
from sparkrobust.coordinator.opening import opened as opened_by
from sparkrobust.coordinator.opening import refuse_changing
from sparkrobust.coordinator.recovery import Fate, Recovered, pending_writes, roll_back_writes
from sparkrobust.coordinator.recovery import recover as recover_writes
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.errors import InvalidOptionError, RobustWriteError

_WIDTH_OF_A_FILE = 1000
"""Whoever reads it line by line finds a row in each."""

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


class Output(str, Enum):
    """How a command answers."""

    TEXT = "text"
    JSON = "json"


Path = Annotated[str, typer.Argument(metavar="TABLE", help="the table's base path, as for save and load")]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="KEY=VALUE",
        help="an option of the table's writers: of the store (fs.*), of locks (hoodie.write.lock.*), …",
    ),
]
How = Annotated[Output, typer.Option("--output", help="for a person, or for a program")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="do it without asking")]


def opened(path: str, given: Sequence[str] | None) -> HudiTable:
    """The table, with the lock that the options name."""
    return opened_by(path, _pairs(given))[0]


def opened_to_change(path: str, given: Sequence[str] | None) -> HudiTable:
    """The same, if a write would not refuse it."""
    table, options = opened_by(path, _pairs(given))
    refuse_changing(table, options)
    return table


def _pairs(given: Sequence[str] | None) -> dict[str, str]:
    return dict(_pair(text) for text in given or ())


def _pair(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise InvalidOptionError(f"--option {text!r}: say KEY=VALUE")
    return key, value


# -- looking -----------------------------------------------------------------------------------------------


@app.command()
def timeline(path: Path, option: Options = None, output: How = Output.TEXT) -> None:
    """Every active instant, oldest first."""
    tell(facts.of_timeline(opened(path, option)), output)


@app.command()
def show(
    path: Path,
    instant: Annotated[str, typer.Argument(help="an instant's time")],
    option: Options = None,
    output: How = Output.TEXT,
) -> None:
    """All that is known of one instant."""
    tell_one(facts.of_instant(opened(path, option), instant), output)


@app.command()
def locks(path: Path, option: Options = None, output: How = Output.TEXT) -> None:
    """Who has the table's locks: those that lie in the table, and the one that the options name."""
    tell(facts.of_locks(opened(path, option)), output)


@app.command()
def heartbeats(path: Path, option: Options = None, output: How = Output.TEXT) -> None:
    """Which writers say that they are alive, and when they last did."""
    tell(facts.of_heartbeats(opened(path, option)), output)


@app.command()
def markers(path: Path, option: Options = None, output: How = Output.TEXT) -> None:
    """How far the writes are that are under way, and what dead ones left."""
    tell(facts.of_writes(opened(path, option)), output)


# -- doing -------------------------------------------------------------------------------------------------


@app.command()
def rollback(path: Path, option: Options = None, yes: Yes = False, output: How = Output.TEXT) -> None:
    """Roll back every pending write, alive or not; one whose commit is decided is finished instead."""
    table = opened_to_change(path, option)
    pending = pending_writes(table)
    if not yes:
        _confirm(pending, "rolled back, also those of living writers")
    tell(_fates(roll_back_writes(table, pending)), output)


@app.command()
def recover(
    path: Path,
    option: Options = None,
    even_alive: Annotated[bool, typer.Option(help="also those whose heartbeat has not expired")] = False,
    yes: Yes = False,
    output: How = Output.TEXT,
) -> None:
    """End the pending writes of dead writers: commit what is all there, roll back the rest.

    Writes of Hudi's without a heartbeat are left alone, as its single writers have none.
    """
    table = opened_to_change(path, option)
    if even_alive and not yes:
        _confirm(pending_writes(table), "ended, also those of living writers")
    found = recover_writes(table, even_alive=even_alive)
    tell(_fates(found), output)
    if any(one.fate is Fate.UNKNOWN for one in found):
        why = "a writer of Hudi's may be at work, which has no heartbeat"
        typer.echo(f"unknown: {why}; --even-alive ends such a write too", err=True)


def _confirm(pending: Sequence[object], what: str) -> None:
    if pending:
        typer.confirm(f"{', '.join(map(str, pending))}: are to be {what}. Go on?", abort=True, err=True)


def _fates(found: list[Recovered]) -> list[Fact]:
    return [{"instant": one.instant, "fate": one.fate.value} for one in found]


# -- answers -----------------------------------------------------------------------------------------------


def tell(found: list[Fact], output: Output) -> None:
    """Several things of one kind."""
    if output is Output.JSON:
        typer.echo(json.dumps(found, indent=2))
        return
    if not found:
        typer.echo("none")
        return
    columns = list(dict.fromkeys(name for fact in found for name in fact))
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        shown.add_column(name.replace("_", " "), overflow="fold")
    for fact in found:
        # As it is: a partition may be called what rich takes for markup.
        shown.add_row(*(Text(_text(fact.get(name))) for name in columns))
    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH_OF_A_FILE
    console.print(shown)


def tell_one(fact: Fact, output: Output) -> None:
    """One thing, with all that belongs to it."""
    if output is Output.JSON:
        typer.echo(json.dumps(fact, indent=2))
        return
    for name, value in fact.items():
        if isinstance(value, list):
            typer.echo(f"{name.replace('_', ' ')}:")
            tell(value, output)
        else:
            typer.echo(f"{name.replace('_', ' ')}: {_text(value)}")


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return json.dumps(value) if isinstance(value, dict) else str(value)


def main() -> None:
    """The command; an error of ours is a sentence, and what to do about it."""
    try:
        app()
    except RobustWriteError as error:
        typer.echo(f"{type(error).__name__}: {error}", err=True)
        raise SystemExit(1) from None
