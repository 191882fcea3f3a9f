"""What happens in a world: drawn as a whole, or one of the stories that would be drawn too seldom."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from fault_injection.faults import Fault
from fault_injection.simulation.actors import Settings, Sharing
from fault_injection.simulation.scheduler import Choices, Patience, Rates
from sparkrobust.core.conflicts import Strategy

STORES = {"disk": "publish", "bucket": "complete", "copy": "copy"}
"""The stores, and how a call begins that makes something visible."""

_MOMENTS = (
    *(".commit", "/decision", "/finalize", "/cm/", "/gate", "inflight", *STORES.values(), "seal"),
    *("delete_tree .hoodie/.temp", "walk .hoodie/.temp", "put_if_absent .hoodie/.temp", "stage", "upload"),
)
"""Parts of calls, before which it is bad to be stopped."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A world before it begins."""

    store: str
    rates: Rates
    settings: Settings
    actors: tuple[tuple[str, int], ...]
    """What each does, and for how many steps it waits before."""
    founders: int = 0
    """How many writes have been there before, in peace."""
    time_stands: bool = False
    """The clock does not go on: a time may come again that the timeline knows no more."""

    @property
    def is_read(self) -> bool:
        """Somebody goes by what a reader sees, as a writer does who updates rows."""
        return self.settings.sharing is not None or any(what == "reader" for what, _ in self.actors)

    @property
    def has_archivers(self) -> bool:
        return any("archiver" in what for what, _ in self.actors)


def drawn(choices: Choices) -> Scenario:
    """Any world."""
    rates = _rates(choices)
    store = choices.among(list(STORES))
    settings = Settings(
        most_slots=choices.among([1, 2, 3]),
        most_files=choices.among([1, 2]),
        speculation=choices.among([0.0, 0.3, 1.0]),
        reuse=choices.happens(0.7),
        overwrite=choices.among([0.0, 0.0, 0.4]),
        counted=choices.among([0.0, 0.5]),
        lock_expires=choices.among([None, None, 1.0, 4.0]),
        pulse_ms=choices.among([300, 2000, 60_000]),
        even_alive=choices.happens(0.5),
    )
    writer = choices.among(["writer", "writer", "job"])
    actors = [(writer, 0)]
    for _ in range(choices.among([0, 1, 2, 3, 5])):
        what = choices.among([writer, "writer", "rollback", "recover"])
        actors.append((what, choices.random.randint(0, choices.among([120, 400]))))
    actors += _besides(choices, writer)
    if choices.happens(0.2):
        actors.append(("hudi", 0))
    return Scenario(store=store, rates=rates, settings=settings, actors=tuple(actors))


def _besides(choices: Choices, writer: str) -> Iterator[tuple[str, int]]:
    """Who reads the table, and who tidies it up."""
    for _ in range(choices.among([0, 0, 1, 3])):
        yield choices.among(["reader", "cleaner"]), choices.random.randint(0, 600)
    # Of a job these would have to leave what it is known by; tests of the archived timeline see to that.
    for _ in range(choices.among([0, 0, 1, 3]) if writer != "job" else 0):
        yield choices.among(["archiver", "foreign archiver"]), choices.random.randint(50, 600)


def _rates(choices: Choices) -> Rates:
    """How bad a world is: mostly a few faults, sometimes none of a kind, sometimes many."""
    among = choices.among
    if choices.happens(0.15):
        # Nothing but one thing that happens at the worst moment, and then long nothing.
        if choices.happens(0.3):
            return Rates(deadly=among(list(_MOMENTS)))
        return Rates(sleepy=among(list(_MOMENTS)), longest_freeze=900)

    def rate(most: float) -> float:
        return among([0.0, most / 8, most / 2, most])

    return Rates(
        faults={
            Fault.KILLED_BEFORE: rate(0.02),
            Fault.KILLED_AFTER: rate(0.02),
            Fault.DROPPED: rate(0.05),
            Fault.ANSWER_LOST: rate(0.05),
            Fault.LATE: rate(0.03),
            Fault.TWICE: rate(0.05),
            Fault.TORN: rate(0.1),
            Fault.STALE: rate(0.2),
            Fault.BUSY: rate(0.03),
            Fault.BUSY_AFTER: rate(0.05),
        },
        freeze=rate(0.04),
        longest_freeze=among([5, 50, 300, 600]),
        sleepy=among(["", "", *_MOMENTS]),
    )


# -- stories ---------------------------------------------------------------------------------------------


def sleepers_decide(choices: Choices) -> Scenario:
    """Drivers fall asleep as they are about to decide, or to read what is decided; no folders."""
    begins = sorted(choices.random.randint(30, 250) for _ in range(3))
    return Scenario(
        store=choices.among(["bucket", "copy"]),
        rates=Rates(sleepy="/decision", longest_freeze=choices.among([60, 200, 600])),
        settings=Settings(most_slots=1, most_files=1, speculation=0.0),
        actors=(("writer", 0), *((choices.among(["recover", "rollback"]), begin) for begin in begins)),
    )


def archived_while_asleep(choices: Choices) -> Scenario:
    """A driver falls asleep as it is about to complete its write; others finish it, and archive it."""
    begins = [choices.random.randint(30, 90), choices.random.randint(120, 250)]
    ends = [choices.random.randint(250, 500) for _ in range(3)]
    return Scenario(
        store=choices.among(list(STORES)),
        rates=Rates(sleepy=choices.among([".commit", "walk", "delete_tree"]), longest_freeze=1200),
        settings=Settings(most_slots=1, most_files=1, speculation=0.0),
        actors=(
            ("writer", 0),
            *(("writer", begin) for begin in begins),
            *((choices.among(["archiver", "foreign archiver"]), end) for end in ends),
        ),
    )


def late_tasks(choices: Choices) -> Scenario:
    """Tasks fall asleep as they are about to look whether their write is still open."""
    return Scenario(
        store=choices.among(list(STORES)),
        rates=Rates(sleepy=choices.among(["/gate", "/finalize", "/cm/"]), longest_freeze=900),
        settings=Settings(speculation=1.0, bulk=choices.among([0.0, 1.0]), reuse=choices.happens(0.5)),
        actors=(("writer", 0), ("writer", choices.random.randint(60, 200))),
    )


def source_left_behind(choices: Choices) -> Scenario:
    """A driver dies as it is about to delete what it has copied, others sleep before they copy it."""
    between = choices.random.randint
    return Scenario(
        store="copy",
        rates=Rates(
            fate=("writer 1", "delete ", "/commit-"),
            sleepy="copy .hoodie/timeline",
            longest_freeze=choices.among([200, 1200]),
        ),
        settings=Settings(most_slots=1, most_files=1, speculation=0.0),
        actors=(
            ("writer", 0),
            ("writer", between(0, 15)),
            *((choices.among(["recover", "recover", "rollback"]), between(50, 250)) for _ in range(3)),
            *(("foreign archiver", between(150, 700)) for _ in range(3)),
        ),
    )


def same_time_again(choices: Choices) -> Scenario:
    """A write is rolled back and forgotten, another one gets its time, and tasks of the first come late."""
    return Scenario(
        store=choices.among(["disk", "bucket"]),
        rates=Rates(
            sleepy=choices.among(["/cm/", "/gate", "stage", "upload"]),
            longest_freeze=choices.among([150, 400]),
            fate=("writer 1", "/finalize"),
        ),
        settings=Settings(most_slots=1, speculation=1.0, reuse=choices.happens(0.5)),
        actors=(("writer", 0), ("rollback", 0), ("forget", 0), ("writer", 0)),
        time_stands=True,
    )


def many_writers(choices: Choices) -> Scenario:
    """Writers that share a lock, spare who lives, and find their conflicts."""
    among, between = choices.among, choices.random.randint
    # Where nothing else goes wrong more of them come as far as to meet.
    rates = _rates(choices) if choices.happens(0.6) else Rates()
    settings = Settings(
        speculation=among([0.0, 0.3]),
        reuse=choices.happens(0.7),
        overwrite=among([0.0, 0.0, 0.3]),
        counted=among([0.0, 0.5]),
        pulse_ms=among([300, 1000]),
        even_alive=False,
        sharing=Sharing(
            lock_seconds=among([1.0, 4.0]),
            strategy=among(list(Strategy)),
            early=choices.happens(0.3),
            retries=among([0, 1, 2]),
            partitions=among([1, 1, 2]),
            shared_keys=among([0.3, 1.0]),
            wrong_clocks=among([0.0, 0.3]),
        ),
    )
    latest = among([0, 100])
    writer = among(["writer", "writer", "job"])
    actors = [(among([writer, "writer"]), between(0, latest)) for _ in range(among([2, 3, 5]))]
    for _ in range(among([0, 1, 2])):
        actors.append((among(["rollback", "recover"]), between(0, 600)))
    actors += _besides(choices, writer)
    return Scenario(
        store=among(list(STORES)),
        rates=rates,
        settings=settings,
        actors=tuple(actors),
        founders=among([0, 1, 3]),
    )


def one_new_key(choices: Choices) -> Scenario:
    """Two writers insert the same new key; no file group tells them of each other."""
    made = many_writers(choices)
    sharing = Sharing(shared_keys=1.0, retries=choices.among([0, 1]), strategy=choices.among(list(Strategy)))
    return replace(
        made,
        rates=Rates(sleepy=choices.among(["", "/decision", "complete", "walk"]), longest_freeze=200),
        settings=replace(made.settings, overwrite=0.0, sharing=sharing),
        founders=0,
        actors=(("writer", 0), ("writer", choices.random.randint(0, 40))),
    )


def one_row(choices: Choices) -> Scenario:
    """Several writers update the same row."""
    made = many_writers(choices)
    sharing = Sharing(
        lock_seconds=10.0,
        shared_keys=1.0,
        early=choices.happens(0.3),
        retries=choices.among([0, 2]),
        strategy=choices.among(list(Strategy)),
    )
    return replace(
        made,
        rates=Rates(sleepy=choices.among(["", ".locks", "/gate", "walk"]), longest_freeze=60),
        settings=replace(made.settings, overwrite=0.0, speculation=0.0, sharing=sharing),
        founders=1,
        actors=tuple(("writer", choices.random.randint(0, 30)) for _ in range(3)),
    )


def overtaken(choices: Choices) -> Scenario:
    """Tasks take long, and meanwhile others commit to their file groups: these alone are written again."""
    made, among = many_writers(choices), choices.among
    sharing = Sharing(
        lock_seconds=10.0,
        shared_keys=1.0,
        retries=among([1, 2, 3]),
        partitions=among([1, 1, 2]),
        strategy=among(list(Strategy)),
    )
    deaths = {Fault.KILLED_BEFORE: among([0.0, 0.01]), Fault.ANSWER_LOST: among([0.0, 0.02])}
    rates = Rates(sleepy=among(["/cm/", "/cm/", "/gate"]), longest_freeze=600, faults=deaths)
    actors = [("writer", choices.random.randint(0, 60)) for _ in range(4)]
    actors += [("recover", choices.random.randint(50, 400)) for _ in range(among([0, 0, 1, 2]))]
    return replace(
        made,
        rates=rates,
        settings=replace(made.settings, overwrite=0.0, sharing=sharing),
        founders=1,
        actors=tuple(actors),
    )


def cleaned_while_asleep(choices: Choices) -> Scenario:
    """Writers and readers fall asleep before they look for files, and meanwhile these are cleaned away."""
    made, among, between = many_writers(choices), choices.among, choices.random.randint
    sharing = Sharing(lock_seconds=10.0, shared_keys=0.4, retries=among([0, 2]))
    later = ["cleaner", "cleaner", "reader", "archiver"]
    return replace(
        made,
        rates=Rates(sleepy=among(["pause", "pause", "list p", "read p"]), longest_freeze=1200),
        settings=replace(made.settings, overwrite=among([0.0, 0.3]), speculation=0.0, sharing=sharing),
        founders=3,
        actors=(
            ("archiver", between(0, 60)),
            *(("writer", between(30, 300)) for _ in range(4)),
            *((among(later), between(100, 1200)) for _ in range(5)),
        ),
    )


def services(choices: Choices) -> Scenario:
    """RFC-71's compaction, scheduled between the plan and the commit of a write; and clusterings."""
    made, between = many_writers(choices), choices.random.randint
    what = ["compaction", "compaction", "clustering", "removable clustering"]
    actors = [(choices.among(what), between(0, 150)) for _ in range(choices.among([1, 2]))]
    actors += [("executor", between(50, 400)) for _ in range(choices.among([0, 1, 2]))]
    assert made.settings.sharing is not None
    sharing = replace(made.settings.sharing, wrong_clocks=0.0, partitions=1)
    return replace(
        made,
        settings=replace(made.settings, sharing=sharing),
        founders=2,
        actors=(*made.actors, *actors),
    )


def thieves(choices: Choices) -> Scenario:
    """Writers fall asleep with the lock in their hands, and die when they have just taken it."""
    made = many_writers(choices)
    return replace(
        made,
        rates=Rates(
            sleepy=choices.among(["/decision", ".commit", "/commit-", "complete .hoodie", ".locks"]),
            longest_freeze=choices.among([200, 600]),
            faults={Fault.KILLED_AFTER: choices.among([0.0, 0.01])},
        ),
        settings=replace(
            made.settings,
            overwrite=0.0,
            speculation=0.0,
            sharing=Sharing(lock_seconds=1.0, shared_keys=1.0, strategy=choices.among(list(Strategy))),
        ),
        actors=tuple(("writer", choices.random.randint(0, 60)) for _ in range(4)),
    )


SCENARIOS: dict[str, Callable[[Choices], Scenario]] = {
    "any": drawn,
    "sleepers-decide": sleepers_decide,
    "archived-while-asleep": archived_while_asleep,
    "late-tasks": late_tasks,
    "source-left-behind": source_left_behind,
    "same-time-again": same_time_again,
    "many-writers": many_writers,
    "one-new-key": one_new_key,
    "one-row": one_row,
    "overtaken": overtaken,
    "cleaned-while-asleep": cleaned_while_asleep,
    "services": services,
    "thieves": thieves,
}


# -- mode direct, of which less is promised --------------------------------------------------------------


def _direct(store: str) -> Callable[[Choices], Scenario]:
    def story(choices: Choices) -> Scenario:
        made = drawn(choices)
        # A writer of Hudi's that does not see a begin marker leaves the file, which is visible in this mode.
        faults = {**made.rates.faults, Fault.STALE: 0.0}
        return replace(
            made,
            store=store,
            settings=replace(made.settings, direct=True),
            rates=replace(made.rates, faults=faults),
            # What they see before a commit they may see.
            actors=tuple(actor for actor in made.actors if actor[0] != "reader"),
        )

    return story


DIRECT: dict[str, Callable[[Choices], Scenario]] = {
    f"direct on a {store}": _direct(store) for store in STORES
}


# -- calm worlds, for faults at one call each --------------------------------------------------------------


_ALONE: dict[str, dict[str, Any]] = {
    "write": {"actors": ("writer",)},
    "write of counted rows": {"actors": ("writer",), "counted": 1.0},
    "bulk insert": {"actors": ("writer",), "bulk": 1.0},
    "write with speculation": {"actors": ("writer",), "speculation": 1.0},
    "overwrite": {"actors": ("writer", "writer"), "overwrite": 1.0},
    "rollback": {"actors": ("writer", "rollback"), "dies": "/finalize"},
    "rolling forward": {"actors": ("writer", "writer"), "dies": "<publish> p"},
    "rolling forward an overwrite": {
        "actors": ("writer", "rollback"), "dies": "<publish> .hoodie", "overwrite": 1.0,
    },
    "recovery": {"actors": ("writer", "recover"), "dies": "/finalize"},
    "recovery of counted rows": {"actors": ("writer", "recover"), "dies": "/decision", "counted": 1.0},
    "recovery of a decided write": {"actors": ("writer", "recover"), "dies": "<publish> .hoodie"},
    "recovery by the next run of a job": {"actors": ("job", "job"), "dies": "/finalize"},
    "a job that runs twice": {"actors": ("job", "job")},
    "sweeping": {"actors": ("writer", "writer"), "dies": ".hoodie/.temp"},
    "reading and cleaning": {"actors": ("writer", "writer", "reader", "cleaner"), "overwrite": 1.0},
}  # fmt: skip
"""Of writers that know of nobody."""

_SHARED: dict[str, dict[str, Any]] = {
    "write": {"actors": ("writer",)},
    "conflict": {
        "actors": ("writer", "writer"), "apart": 40,
        "patient": (Patience(who="writer 1.0.0", call=("put_if_absent", "/cm/"), until="writer 2"),),
    },
    "slots done again": {
        "actors": ("writer", "writer"), "apart": 40, "retries": 1,
        "patient": (Patience(who="writer 2.0.0", call=("put_if_absent", "/cm/"), until="writer 1"),),
    },
    "rollback": {"actors": ("writer", "rollback"), "dies": "/finalize"},
    "rolling forward": {"actors": ("writer", "writer"), "dies": "<publish> p", "retries": 1},
    "recovery": {"actors": ("writer", "recover"), "dies": "/finalize"},
    "a job that runs twice at once": {"actors": ("job", "job"), "apart": 40},
}  # fmt: skip
"""Of writers that share a lock and update the same rows, after a write that made them."""


def _calm(
    store: str,
    *,
    shared: bool,
    actors: tuple[str, ...],
    dies: str = "",
    patient: tuple[Patience, ...] = (),
    apart: int = 400,
    retries: int = 0,
    **settings: Any,
) -> Callable[[Choices], Scenario]:
    """Nothing goes wrong by itself, but that the first one may die, or others wait, before a certain call."""
    if shared:
        sharing = Sharing(shared_keys=1.0, retries=retries)
        settings |= {"sharing": sharing, "pulse_ms": 300, "even_alive": False}
    call = dies.replace("<publish>", STORES[store])

    def story(choices: Choices) -> Scenario:
        plain = Settings(most_slots=2, most_files=2, speculation=0.0, bulk=0.0)
        return Scenario(
            store=store,
            rates=Rates(fate=(f"{actors[0]} 1", call) if call else (), patient=patient),
            settings=replace(plain, **settings),
            actors=tuple((actor, apart * number) for number, actor in enumerate(actors)),
            founders=int(shared),
        )

    return story


CALM: dict[str, Callable[[Choices], Scenario]] = {
    f"{name}{' under a shared lock' if shared else ''} on a {store}": _calm(store, shared=shared, **how)
    for store in STORES
    for shared, stories in ((False, _ALONE), (True, _SHARED))
    for name, how in stories.items()
}
