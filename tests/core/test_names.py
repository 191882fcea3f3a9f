"""Every file-name grammar, forth and back, and against the names that the real Hudi wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkrobust.core.instant import Action, Instant, InstantTime, State
from sparkrobust.core.names import (
    TIMELINE,
    BaseFileName,
    ControlFolder,
    MarkerType,
    begin_marker,
    instant_file,
    marker_folder,
    parse_begin_marker,
    parse_instant_file,
)
from tests.fixture_tables import data_files, timeline_files

TIMES = st.from_regex(r"20[0-9]{15}", fullmatch=True).map(InstantTime)
COMPLETES = [action for action in Action if action.when_complete is action]


@st.composite
def instants(draw: st.DrawFn) -> Instant:
    state = draw(st.sampled_from(State))
    action = draw(st.sampled_from(COMPLETES if state is State.COMPLETED else list(Action)))
    completion = draw(TIMES) if state is State.COMPLETED else None
    return Instant(time=draw(TIMES), action=action, state=state, completion=completion)


@given(instants())
def test_an_instants_file_name_reads_back_as_the_instant(instant: Instant) -> None:
    assert parse_instant_file(instant_file(instant).removeprefix(f"{TIMELINE}/")) == instant


@given(st.text(max_size=60))
def test_no_text_makes_the_timeline_parser_fail(text: str) -> None:
    found = parse_instant_file(text)
    assert found is None or instant_file(found) == f"{TIMELINE}/{text}"


@pytest.mark.parametrize(
    "name",
    [
        "history",
        ".20240101000000000.commit.crc",
        "20240101000000000.commit",  # complete, but without the time of it: of a layout that we don't read
        "20240101000000000_20240101000000001.inflight",
        "20240101000000000.commit.inflight",  # a commit's inflight file leaves its action out
        "20240101000000000.inflight.6f1c",  # Hudi's temporary name
        "20240101000000000_20240101000000001.commit.0f3a-11",
        "20240101000000000_20240101000000001.clustering",
        "20240101000000000.upgrade.requested",
        "hoodie.properties",
        "",
    ],
)
def test_what_is_no_instant_is_passed_over(name: str) -> None:
    assert parse_instant_file(name) is None


def test_every_timeline_file_that_hudi_wrote_is_understood(hudi_tables: Path) -> None:
    seen = set()
    for table in sorted(path for path in hudi_tables.iterdir() if (path / ".hoodie").is_dir()):
        for file in timeline_files(table):
            instant = parse_instant_file(file.name)
            assert instant is not None, file
            assert instant_file(instant) == f"{TIMELINE}/{file.name}"
            seen.add((instant.action, instant.state))
    assert {Action.COMMIT, Action.REPLACE_COMMIT, Action.ROLLBACK, Action.CLEAN} <= {a for a, _ in seen}


def test_every_base_file_name_that_hudi_wrote_is_understood(hudi_tables: Path) -> None:
    names = [file.name for file in data_files(hudi_tables) if not file.name.startswith(".")]
    assert len(names) > 50
    for name in names:
        assert str(BaseFileName.parse(name)) == name


@pytest.mark.parametrize(
    "name",
    ["a_1-2-3_x.parquet", "a_1_2_3.parquet", "a.parquet", ".x_1_2.parquet", "a_b_1.orc", "a_b_1.parquet "],
)
def test_other_files_are_no_base_files(name: str) -> None:
    assert BaseFileName.parse(name) is None


@given(st.from_regex(r"[a-z=/0-9. ]{0,20}", fullmatch=True), st.sampled_from(MarkerType))
def test_a_begin_marker_reads_back_as_its_file(partition: str, kind: MarkerType) -> None:
    data = f"{partition}/f-0_1-2-3_20240101000000000.parquet"
    path = begin_marker("20240101000000000", data, kind)
    assert parse_begin_marker(path.removeprefix(f"{marker_folder('20240101000000000')}/")) == (data, kind)


@pytest.mark.parametrize("text", ["x.parquet", ".marker.CREATE", "x.marker.COMPLETE", "MARKERS.type"])
def test_a_name_without_a_known_marker_word_is_no_begin_marker(text: str) -> None:
    assert parse_begin_marker(text) is None


def test_a_control_folder_reads_back_and_nothing_else_is_one() -> None:
    control = ControlFolder(instant=InstantTime("20240101000000000"), nonce="00ff")
    assert ControlFolder.parse(control.path) == control
    assert ControlFolder.parse(".hoodie/.robust/20240101000000000") is None
    assert ControlFolder.parse(".hoodie/.robust/tmp") is None


@pytest.mark.parametrize("text", ["", "2024-01-01", "20240101x", "٢٠٢٤"])
def test_only_plain_digits_are_an_instant_time(text: str) -> None:
    with pytest.raises(ValueError):
        InstantTime(text)
