"""``python -m fault_injection``: what it takes, what it sums up, and the exit status by that."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor

import pytest

from fault_injection import __main__ as command
from fault_injection.faults import Fault
from fault_injection.simulation.actors import Told
from fault_injection.simulation.bugs import with_bug
from fault_injection.simulation.runs import Report, run
from fault_injection.simulation.scenarios import CALM, DIRECT, SCENARIOS

STORY = "write on a disk"


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """One world after the other, where a test can put something in their place."""

    def executor(cores: int | None, initializer: Callable[[], None]) -> Executor:
        return ThreadPoolExecutor(1)

    monkeypatch.setattr(command, "ProcessPoolExecutor", executor)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, range, float | None]]:
    """The worlds that were asked for, none of which is made."""
    found: list[tuple[str, range, float | None]] = []

    def many(scenario: str, seeds: range, minutes: float | None) -> command.Summary:
        found.append((scenario, seeds, minutes))
        return command.Summary()

    monkeypatch.setattr(command, "_many", many)
    return found


@pytest.mark.parametrize("story", {**SCENARIOS, **CALM, **DIRECT})
def test_the_name_of_any_story_is_enough(story: str, asked: list[tuple[str, range, float | None]]) -> None:
    assert command.main(["--scenario", story]) == 0
    assert asked == [(story, range(1000), None)]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("", ("any", range(1000), None)),
        ("--seeds 3:9", ("any", range(3, 9), None)),
        ("--seeds 3:9 --minutes 2 --scenario one-row", ("one-row", range(3, 9), 2.0)),
        ("--minutes 0.5", ("any", range(1 << 62), 0.5)),
        ("--scenario services --minutes 1", ("services", range(1 << 62), 1.0)),
    ],
)
def test_seeds_and_time_are_those_that_were_asked_for(
    given: str,
    wanted: tuple[str, range, float | None],
    asked: list[tuple[str, range, float | None]],
) -> None:
    assert command.main(given.split()) == 0
    assert asked == [wanted]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("--seeds 9:3", "the second one larger"),
        ("--seeds 5", "two numbers A:B"),
        ("--seeds a:b", "two numbers A:B"),
        ("--seed 1 --seeds 1:2", "not allowed with"),
        ("--scenario nonsense", "invalid choice"),
        ("--seed 1 --fault 7", "the number of a step, a colon, and one of: killed before"),
        ("--seed 1 --fault '7:bad luck'", "one of: killed before"),
        ("--seed 1 --fault 'x:late'", "the number of a step"),
        ("--fault 7:late", "say its --seed"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_runs(
    given: str,
    why: str,
    asked: list[tuple[str, range, float | None]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(shlex.split(given))
    assert ended.value.code == 2 and why in capsys.readouterr().err and not asked


def test_a_summary_adds_up_what_its_worlds_came_to() -> None:
    told = [Told(name="a", outcome="committed"), Told(name="b", outcome="failed")]
    first = Report(seed=4, store="disk", steps=1200, told=told, injected={Fault.LATE: 2})
    second = Report(seed=7, store="copy", steps=30, told=told[:1], violation="Violation: x")
    one, whole = command.Summary(), command.Summary()
    one.add(first)
    whole.add(second)
    whole.merge(one)
    assert (whole.runs, whole.steps) == (2, 1230)
    assert whole.outcomes == Counter(committed=2, failed=1) and whole.faults == Counter(late=2)
    assert whole.violations == [(7, "Violation: x")]
    lines = {line[:22].strip(): line[22:].strip() for line in whole.lines(1.25)}
    assert lines.keys() >= {"worlds", "storage calls", "writes, as told", "faults", "violations", "seconds"}
    assert lines["storage calls"] == "1,230" and lines["violations"] == "1" and lines["seconds"] == "1.2"
    assert all(word in lines["writes, as told"] for word in ("3", "committed", "failed"))


def again(printed: str) -> list[list[str]]:
    """What to say to :func:`command.main` for the worlds that were printed as wrong."""
    commands = re.findall(r"^ +(python -m fault_injection .*)$", printed, re.MULTILINE)
    return [shlex.split(line)[3:] for line in commands]


def test_worlds_in_which_all_holds_end_with_their_sum_and_with_status_0(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command.main(["--seeds", "0:4"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^worlds +4 ", said, re.MULTILINE) and re.search(r"^violations +0$", said, re.MULTILINE)
    assert again(said) == []


def test_worlds_in_which_something_is_wrong_end_with_status_1_and_the_command_for_each_of_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with with_bug("no decision object"):
        wrong = [seed for seed in range(4) if run(seed, "sleepers-decide").violation]
        assert command.main(["--scenario", "sleepers-decide", "--seeds", "0:4"]) == 1
        said = capsys.readouterr().out
        assert wrong and again(said) == [
            ["--scenario", "sleepers-decide", "--seed", str(one)] for one in wrong
        ]
        assert command.main(again(said)[0]) == 1
    assert command.main(again(said)[0]) == 0, "it is in the bug, and not in the world"


def test_a_fault_at_one_call_that_breaks_a_calm_world_is_named_by_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "CALM", {STORY: CALM[STORY]})
    with with_bug("marker before sync"):
        assert command.main(["--each-call"]) == 1
        said = capsys.readouterr().out
        first, violations = again(said)[0], re.findall(r"step (\d+), (.*?): (\w+: .*)", said)
        step, fault, violation = violations[0]
        assert first == ["--scenario", STORY, "--seed", "0", "--fault", f"{step}:{fault}"]
        assert command.main(first) == 1
        one = capsys.readouterr().out
        assert one.rstrip().endswith(violation) and f"[{fault}]" in one


def test_every_fault_at_every_call_of_a_calm_world_ends_with_status_0_where_all_holds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "CALM", {STORY: CALM[STORY]})
    assert command.main(["--each-call"]) == 0
    said = capsys.readouterr().out
    counts = [int(number) for number in re.findall(r"(\d+) worlds", said)]
    assert len(counts) == 2 and counts[0] == counts[1] > 100 and " 0 violations" in said


def test_a_calm_world_that_is_wrong_by_itself_is_named_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "CALM", {STORY: CALM[STORY]})
    monkeypatch.setattr(
        command, "run", lambda seed, *rest, **more: Report(seed=seed, store="disk", violation="Stuck: it is")
    )
    assert command.main(["--each-call"]) == 1
    said = capsys.readouterr().out
    assert f"{STORY}: Stuck: it is" in said and again(said) == [["--scenario", STORY, "--seed", "0"]]
