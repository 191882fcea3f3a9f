"""Every file-name grammar, forth and back, and against the names that the real Hudi wrote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkrobust.core import names
from sparkrobust.core.instant import Action, Instant, InstantTime, State
from sparkrobust.core.names import (
    COMMITTING,
    TIMELINE,
    BaseFileName,
    ControlFolder,
    HistoryFileName,
    MarkerType,
    begin_marker,
    history_manifest,
    instant_file,
    is_inside,
    marker_folder,
    parse_begin_marker,
    parse_history_manifest,
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


def test_a_begin_marker_of_a_file_in_an_odd_partition_is_that_files() -> None:
    odd = "x.marker.CREATE/f.marker.y"
    assert parse_begin_marker(f"{odd}.marker.MERGE") == (odd, MarkerType.MERGE)


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


def test_every_object_of_a_write_has_its_place_in_the_control_folder() -> None:
    control = ControlFolder(instant=InstantTime("20240101000000000"), nonce="00ff")
    folder = ".hoodie/.robust/20240101000000000-00ff"
    assert control.path == folder
    assert (control.gate, control.finalize) == (f"{folder}/gate", f"{folder}/finalize")
    assert (control.staging, control.sealed) == (f"{folder}/staging", f"{folder}/sealed")
    assert (control.completions, control.completion(7)) == (f"{folder}/cm", f"{folder}/cm/7")
    assert (control.compared, control.decision) == (f"{folder}/compared", f"{folder}/decision")
    assert (control.rows_folder, control.rows(3)) == (f"{folder}/rows", f"{folder}/rows/3")
    assert control.committing == f"{COMMITTING}/{folder.rpartition('/')[2]}"
    assert ControlFolder.parse(control.committing) == control and ControlFolder.parse(COMMITTING) is None
    assert control.staged_commit("1f") == "commit-1f" and control.staged_rows(3, "1f") == "rows-3-1f"
    assert ControlFolder.parse("20240101000000000-00ff") == control


@pytest.mark.parametrize(
    "name", ["x-00ff", "20240101000000000-", "-00ff", "20240101000000000-00fg", "1-0-0", "1_0", "٢-0", "1-0 "]
)
def test_other_names_are_no_control_folders(name: str) -> None:
    assert ControlFolder.parse(f".hoodie/.robust/{name}") is None


@pytest.mark.parametrize("path", ["", "a", "a/b", ".a", "...", "a/..b", "a b/c\n"])
def test_a_path_of_ordinary_parts_is_inside(path: str) -> None:
    assert is_inside(path)


@pytest.mark.parametrize("path", ["/", "/a", "a/", "a//b", ".", "..", "./a", "a/.", "a/../b", "a\0", "\0"])
def test_a_path_that_leads_elsewhere_is_not_inside(path: str) -> None:
    assert not is_inside(path)


def test_what_waits_where_follows_from_what_it_becomes() -> None:
    control = ControlFolder(instant=InstantTime("1"), nonce="ab")
    data, commit = "p/f-0_t_1.parquet", f"{TIMELINE}/1_2.commit"
    assert control.may_be_staged(f"{control.staging}/f-0_t_1.parquet", data)
    assert control.may_be_staged(f"{control.sealed}/f-0_t_1.parquet.ab", data)
    assert control.may_be_staged(f"{control.path}/commit-7", commit)
    assert not control.may_be_staged(f"{control.path}/f-0_t_1.parquet", data)
    assert not control.may_be_staged(f"{control.staging}/xf-0_t_1.parquet", data)
    assert not control.may_be_staged(f"{control.staging}/f-0_t_1.parquet\0", data)
    assert not control.may_be_staged(f"{control.staging}/commit-7", commit)
    assert not control.may_be_staged(f"{control.path}/gate", commit)
    assert not control.may_be_staged(f"{control.completions}/f-0_t_1.parquet", data)


def test_a_write_knows_what_it_stages_in_its_folder_and_where_that_goes() -> None:
    control = ControlFolder(instant=InstantTime("20240101000000001"), nonce="ab")
    mine, other = (f"{TIMELINE}/2024010100000000{number}" for number in (1, 2))
    of_timeline = (f"{mine}_20240101000000003.commit", f"{mine}.inflight", f"{mine}.commit.requested")
    for path in (*of_timeline, control.rows(3)):
        assert control.may_come_of_it(path)
    theirs = replace(control, nonce="cd").rows(3)
    others = (f"{other}.inflight", f"{mine}.txt", mine.rpartition("/")[2] + ".inflight", f"p/{mine}")
    for path in ("", *others, theirs, control.rows_folder, f"{control.rows_folder}/3/4"):
        assert not control.may_come_of_it(path)
    for name in (control.staged_commit("7"), control.staged_rows(3, "7")):
        assert control.is_staged_here(f"{control.path}/{name}")
        assert not control.is_staged_here(name) and not control.is_staged_here(f"x/{control.path}/{name}")
    assert not control.is_staged_here(control.decision) and not control.is_staged_here(control.rows(3))


def test_the_names_that_hudi_and_we_agree_on() -> None:
    """What other software looks for; a change here is a table that nobody else understands."""
    assert names.PROPERTIES == ".hoodie/hoodie.properties"
    assert names.PROPERTIES_BACKUP == ".hoodie/hoodie.properties.backup"
    assert (names.TIMELINE, names.HISTORY) == (".hoodie/timeline", ".hoodie/timeline/history")
    assert (names.TEMP, names.ROBUST) == (".hoodie/.temp", ".hoodie/.robust")
    assert names.METADATA_TABLE == ".hoodie/metadata"
    assert names.INDEX_DEFINITIONS == ".hoodie/.index_defs"
    assert names.PARTITION_METADATA == ".hoodie_partition_metadata"
    assert names.DEFAULT_PARTITION == "__HIVE_DEFAULT_PARTITION__"
    assert names.META_COLUMNS == (
        names.COMMIT_TIME,
        names.COMMIT_SEQNO,
        names.RECORD_KEY,
        names.PARTITION_PATH,
        names.FILE_NAME,
    )
    assert names.META_COLUMNS[0] == "_hoodie_commit_time" and names.META_COLUMNS[4] == "_hoodie_file_name"
    assert names.IS_DELETED == "_hoodie_is_deleted"
    assert (names.NONCE, names.WRITE_ID) == ("sparkrobust.nonce", "sparkrobust.write.id")
    assert names.VERSION == "sparkrobust.version"
    assert begin_marker("7", "p/f.parquet", MarkerType.MERGE) == ".hoodie/.temp/7/p/f.parquet.marker.MERGE"
    name = BaseFileName(file_id="f-0", write_token="1-2-3", instant=InstantTime("7"))
    assert str(name) == "f-0_1-2-3_7.parquet"
    assert (names.joined("", "a"), names.joined("p/q", "a")) == ("a", "p/q/a")


@pytest.mark.parametrize(
    ("action", "state", "name"),
    [
        (Action.COMMIT, State.REQUESTED, "7.commit.requested"),
        (Action.COMMIT, State.INFLIGHT, "7.inflight"),
        (Action.COMMIT, State.COMPLETED, "7_9.commit"),
        (Action.REPLACE_COMMIT, State.INFLIGHT, "7.replacecommit.inflight"),
        (Action.CLUSTERING, State.COMPLETED, "7_9.replacecommit"),
        (Action.COMPACTION, State.COMPLETED, "7_9.commit"),
        (Action.LOG_COMPACTION, State.COMPLETED, "7_9.deltacommit"),
        (Action.ROLLBACK, State.REQUESTED, "7.rollback.requested"),
    ],
)
def test_an_instants_file_is_named_as_hudi_names_it(action: Action, state: State, name: str) -> None:
    completion = InstantTime("9") if state is State.COMPLETED else None
    instant = Instant(time=InstantTime("7"), action=action, state=state, completion=completion)
    assert instant_file(instant) == f".hoodie/timeline/{name}"
    assert str(instant) == f"7 ({action.value}, {state.name.lower()})"
    assert instant.pending is (state is not State.COMPLETED)


# -- the archived timeline -----------------------------------------------------------------------------


def test_every_name_in_a_history_of_hudis_reads_back_as_itself(hudi_tables: Path) -> None:
    seen = set()
    for folder in (hudi_tables / "cow_archived").rglob("history"):
        for name in (file.name for file in folder.iterdir() if file.name != names.HISTORY_VERSION):
            file, number = HistoryFileName.parse(name), parse_history_manifest(name)
            assert (file is None) != (number is None)
            assert name == (history_manifest(number) if number is not None else str(file))
            seen.add("manifest" if file is None else file.level)
    assert seen == {"manifest", 0, 1}


@given(TIMES, TIMES, st.integers(0, 9))
def test_a_file_of_the_history_reads_back_as_what_it_was_named_after(
    first: InstantTime, last: InstantTime, level: int
) -> None:
    file = HistoryFileName(first=first, last=last, level=level)
    assert HistoryFileName.parse(str(file)) == file


@pytest.mark.parametrize(
    "name",
    ["", "1_2.parquet", "1_2_0.parquet.crc", "a/1_2_0.parquet", "../1_2_0.parquet", "1_2_0.parquet\n",
     "x_2_0.parquet", "1_2_-1.parquet", "١_2_0.parquet", "manifest_", "manifest_x", "manifest_-1",
     "manifest_1\n", "manifest_" + "9" * 5000, "_version_"],
)  # fmt: skip
def test_what_is_no_file_of_a_history_is_passed_over(name: str) -> None:
    assert HistoryFileName.parse(name) is None and parse_history_manifest(name) is None
