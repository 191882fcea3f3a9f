"""Control objects: what an attempt concludes from them, and that nothing else is ever taken for one."""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkrobust.core import control_object, decision, strict_json
from sparkrobust.core.conflicts import Begun
from sparkrobust.core.control_object import Kind
from sparkrobust.core.decision import Abort, Decision
from sparkrobust.core.instant import Action, State
from sparkrobust.core.key_hashes import hashes_of
from sparkrobust.core.markers import (
    NO_ROWS,
    CompletionMarker,
    Fingerprint,
    Gate,
    Step,
    Terms,
    decide_attempt,
    other_way,
    refuse_lost_rows,
    refuse_other_rows,
)
from sparkrobust.core.write_status import OperationType
from sparkrobust.core.written import WrittenFile
from sparkrobust.errors import CorruptTableError, IndeterminateInputError, UnsupportedTableError
from tests.core.control_objects import (
    ATTEMPT,
    COMMIT,
    DECISIONS,
    FOLDER,
    LATER,
    OBJECTS,
    TERMS,
    gate,
    marker,
    parse,
    resealed,
    written,
)

# -- what an attempt does ----------------------------------------------------------------------------


def test_what_an_attempt_does_for_everything_that_it_may_see() -> None:
    table = {
        (True, False, True): Step.WRITE,
        (True, False, False): Step.WRITE,
        (True, True, True): Step.SERVE,
        (True, True, False): Step.SERVE,
        (False, False, True): Step.REMAKE,
        (False, False, False): Step.FAIL,
        (False, True, True): Step.SERVE,
        (False, True, False): Step.FAIL,
    }
    for opened, done, reuse in product([True, False], repeat=3):
        assert decide_attempt(open_gate=opened, done=done, reuse=reuse) is table[opened, done, reuse]


@given(*[st.integers(0, 3)] * 2, *[st.sampled_from([None, 0, 1])] * 2)
def test_rows_are_other_rows_if_their_number_or_a_known_sum_differs(
    rows: int, again: int, keys: int | None, keys_again: int | None
) -> None:
    mine = replace(marker(), input=Fingerprint(rows=rows, keys=keys))
    theirs = Fingerprint(rows=again, keys=keys_again)
    same = rows == again and (None in (keys, keys_again) or keys == keys_again)
    assert mine.input.agrees_with(theirs) is same
    if same:
        refuse_other_rows(mine, theirs, path="x")
    else:
        with pytest.raises(IndeterminateInputError, match=f"slot 3 was given {rows} rows"):
            refuse_other_rows(mine, theirs, path="x")


def test_the_error_for_slots_that_were_not_done_tells_how_many_and_what_helps() -> None:
    error = other_way(2)
    assert "the rows of 2 file groups" in str(error) and "cache them" in str(error)


# -- there and back ----------------------------------------------------------------------------------


@pytest.mark.parametrize("files", [(), (written(),), (written(0), written(1, "q/r")), (written(0, ""),)])
def test_a_completion_marker_comes_back_as_it_was(files: tuple[WrittenFile, ...]) -> None:
    no_rows = CompletionMarker.without_rows(3)
    for one in (marker(*files), replace(marker(*files), input=Fingerprint(rows=0)), no_rows):
        assert CompletionMarker.parse(one.render("ab"), FOLDER, 3) == one


@pytest.mark.parametrize("kind", [Kind.GATE, Kind.FINALIZE])
@pytest.mark.parametrize("slots", [None, 0, 7])
def test_a_gate_and_a_finalize_marker_come_back_as_they_were(kind: Kind, slots: int | None) -> None:
    for terms in (TERMS, Terms(action=Action.COMMIT, operation=OperationType.UPSERT, schema="")):
        gate = Gate(terms=terms, slots=slots)
        assert Gate.parse(gate.render(kind, "ab"), kind, nonce="ab", path="x") == gate


def test_the_hashes_of_new_keys_come_back_and_can_be_left_out() -> None:
    whole = marker(replace(written(), new_keys=hashes_of(["a", "b"])), written(1))
    assert CompletionMarker.parse(whole.render("ab"), FOLDER, 3) == whole
    assert whole.without_keys() == marker(written(), written(1))


def test_a_gate_tells_what_its_write_was_planned_from() -> None:
    begun = Begun(newest="20240101000000000", pending=frozenset({"1", "2"}))
    gate = Gate(terms=TERMS, slots=1, begun=begun)
    assert Gate.parse(gate.render(Kind.GATE, "ab"), Kind.GATE, nonce="ab", path="x") == gate


@pytest.mark.parametrize(
    "begun",
    [{"newest": "1", "pending": [1]}, {"newest": 1, "pending": []}, {"newest": "1"}, [], None, "1"],
)
def test_a_gate_that_does_not_tell_what_its_write_was_planned_from_is_corrupt(begun: object) -> None:
    plain = {"terms": TERMS.to_plain(), "slots": 1, "counted": False, "begun": begun, "superseded": []}
    plain["lock"] = ""
    with pytest.raises(CorruptTableError, match=r"^x: expected"):
        Gate.parse(control_object.render(Kind.GATE, "ab", plain), Kind.GATE, nonce="ab", path="x")


@pytest.mark.parametrize("kind", [Kind.GATE, Kind.FINALIZE])
def test_a_gate_and_a_finalize_marker_tell_by_which_lock_their_write_goes(kind: Kind) -> None:
    gate = Gate(terms=TERMS, slots=1, lock=".hoodie/lock")
    assert Gate.parse(gate.render(kind, "ab"), kind, nonce="ab", path="x") == gate


@pytest.mark.parametrize("superseded", [{}, {0: 3}, {2: 3, 0: 4, 3: 5}])
def test_a_finalize_marker_tells_which_slots_others_were_done_in_place_of(superseded: dict[int, int]) -> None:
    one = Gate(terms=TERMS, slots=6, superseded=superseded)
    data = one.render(Kind.FINALIZE, "ab")
    assert Gate.parse(data, Kind.FINALIZE, nonce="ab", path="x") == one
    assert set(one.standing) == set(range(6)) - superseded.keys()
    assert data == Gate(terms=TERMS, slots=6, superseded=dict(sorted(superseded.items()))).render(
        Kind.FINALIZE, "ab"
    )


@pytest.mark.parametrize("slots", [None, 0])
def test_a_gate_that_does_not_tell_its_slots_has_none_that_count(slots: int | None) -> None:
    assert list(Gate(terms=TERMS, slots=slots).standing) == []


ODD_PLACES: list[object] = [
    *(None, {}, {"0": 1}, "0", 0, [0], ["01"], [None], [{}], [[]], [[0]], [[0, 1, 2]], [["0", "1"]]),
    *([[0.0, 1.0]], [[False, True]], [[-1, 1]], [[0, 0]], [[1, 0]], [[0, 6]], [[5, 1 << 70]]),
    *([[0, 3], [0, 4]], [[0, 3], [1, 3]], [[0, 3], [0, 3]], [[0, [3]]]),
]


@pytest.mark.parametrize("superseded", ODD_PLACES, ids=str)
def test_a_slot_is_done_in_the_place_of_one_that_was_before_it_and_of_no_other(superseded: object) -> None:
    def change(body: Any) -> None:
        body.update(slots=6, superseded=superseded)

    with pytest.raises(CorruptTableError, match=r"^x: expected"):
        parse(Kind.FINALIZE, resealed(Kind.FINALIZE, change))


def test_nothing_was_done_again_while_the_slots_are_not_known_or_the_gate_still_stands() -> None:
    for kind, slots in ((Kind.FINALIZE, None), (Kind.GATE, 6)):

        def change(body: Any, slots: int | None = slots) -> None:
            body.update(slots=slots, superseded=[[0, 3]])

        with pytest.raises(CorruptTableError, match="done in their place"):
            parse(kind, resealed(kind, change))


@pytest.mark.parametrize("wanted", DECISIONS)
def test_a_decision_comes_back_as_it_was(wanted: Decision) -> None:
    assert decision.parse(decision.render(wanted, "ab"), FOLDER) == wanted


@pytest.mark.parametrize("kind", [Kind.GATE, Kind.FINALIZE])
def test_what_was_moved_to_where_the_decision_belongs_gives_the_write_up_if_it_is_its_own_and_whole(
    kind: Kind,
) -> None:
    assert isinstance(decision.parse(OBJECTS[kind], FOLDER), Abort)
    with pytest.raises(CorruptTableError, match="of the write cd, found one of ab"):
        decision.parse(OBJECTS[kind], replace(FOLDER, nonce="cd"))
    with pytest.raises(CorruptTableError):
        decision.parse(OBJECTS[kind][:-1], FOLDER)


# -- what is none ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", Kind)
def test_an_object_that_is_torn_anywhere_or_has_one_bit_changed_is_corrupt(kind: Kind) -> None:
    whole = OBJECTS[kind]
    for end in range(len(whole)):
        with pytest.raises(CorruptTableError):
            parse(kind, whole[:end])
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1
        with pytest.raises((CorruptTableError, UnsupportedTableError)):
            parse(kind, bytes(changed))
    with pytest.raises(CorruptTableError):
        parse(kind, whole + b" ")


MOVED = {(Kind.DECISION, Kind.GATE), (Kind.DECISION, Kind.FINALIZE)}
"""What may lie in the other one's place."""


@pytest.mark.parametrize(
    ("kind", "other"), [(k, o) for k in Kind for o in Kind if k is not o and (k, o) not in MOVED]
)
def test_an_object_of_another_kind_is_corrupt(kind: Kind, other: Kind) -> None:
    with pytest.raises(CorruptTableError, match=f"expected a {kind.value}, found a {other.value}"):
        parse(kind, OBJECTS[other])


@pytest.mark.parametrize("kind", Kind)
def test_an_object_of_another_write_is_corrupt(kind: Kind) -> None:
    with pytest.raises(CorruptTableError, match="of the write cd, found one of ab"):
        parse(kind, OBJECTS[kind], replace(FOLDER, nonce="cd"))


@pytest.mark.parametrize("kind", Kind)
def test_an_object_of_a_newer_version_is_left_alone_and_said_so(kind: Kind) -> None:
    newer = OBJECTS[kind].replace(b" 1 ab ", b" 2 ab ", 1)
    with pytest.raises(UnsupportedTableError, match="newer version of sparkrobust"):
        parse(kind, newer)


def test_an_object_beyond_any_sense_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_object, "MAX_BYTES", 100)
    with pytest.raises(CorruptTableError, match="at most 100 bytes"):
        parse(Kind.COMPLETION, OBJECTS[Kind.COMPLETION])


OUTSIDE = ["../x", "/etc/x", ".hoodie/x", "p/../../x", "p/./x", "q\0", ""]


@pytest.mark.parametrize("place", OUTSIDE)
def test_a_marker_never_names_a_file_outside_of_its_partition(place: str) -> None:
    name = written().staged.final_path.rpartition("/")[2]

    def final(body: Any) -> None:
        body["files"][0]["staged"]["final"] = f"{place}/{name}" if place else name

    def everywhere(body: Any) -> None:
        final(body)
        body["files"][0]["stat"]["path"] = f"{place}/{name}"
        body["files"][0]["stat"]["partition_path"] = place

    for change in (final, everywhere):
        if change is everywhere and not place:
            continue
        with pytest.raises(CorruptTableError):
            parse(Kind.COMPLETION, resealed(Kind.COMPLETION, change))


@pytest.mark.parametrize("place", OUTSIDE)
def test_a_decision_never_names_a_file_outside_of_the_data(place: str) -> None:
    name = written().staged.final_path.rpartition("/")[2]

    def moved(body: Any) -> None:
        body["files"][0]["final"] = f"{place}/{name}" if place else f"{place}/"

    with pytest.raises(CorruptTableError):
        parse(Kind.DECISION, resealed(Kind.DECISION, moved))


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.update(commit={**body["commit"], "final": ".hoodie/hoodie.properties"}),
        lambda body: body.update(
            commit={**body["commit"], "final": f".hoodie/timeline/{LATER}_{LATER}.commit"}
        ),
        lambda body: body.update(action="clean"),
        lambda body: body.update(completion="soon"),
        lambda body: body.update(outcome="MAYBE"),
        lambda body: body.update(before=None),
        lambda body: body.update(new_partitions=["elsewhere"]),
        lambda body: body["files"][0].update(final=f"p/u-0_{ATTEMPT}_{LATER}.parquet"),
        lambda body: body.pop("files"),
    ],
)
def test_an_odd_decision_is_corrupt(change: Any) -> None:
    with pytest.raises(CorruptTableError):
        parse(Kind.DECISION, resealed(Kind.DECISION, change))


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.update(slot=4),
        lambda body: body.update(attempt=""),
        lambda body: body.update(attempt="0-0-2"),
        lambda body: body.update(attempt="x" * 65),
        lambda body: body.update(rows=-1),
        lambda body: body.update(rows=True),
        lambda body: body.update(keys=-1),
        lambda body: body.update(keys=1 << 64),
        lambda body: body.update(more=1),
        lambda body: body.update(files={}),
        lambda body: body["files"].append(body["files"][0]),
        lambda body: body["files"][0]["staged"].update(size=8),
        lambda body: body["files"][0]["staged"].update(token=None),
        lambda body: body["files"][0]["stat"].update(file_id="a_b"),
        lambda body: body["files"][0]["stat"].update(file_id="v-0"),
    ],
)
def test_an_odd_marker_is_corrupt(change: Any) -> None:
    with pytest.raises(CorruptTableError):
        parse(Kind.COMPLETION, resealed(Kind.COMPLETION, change))


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body["terms"].update(action="clean"),
        lambda body: body["terms"].update(operation="DANCE"),
        lambda body: body["terms"].update(extra={"a": 1}),
        lambda body: body["terms"].update(replaces_table="yes"),
        lambda body: body["terms"].pop("schema"),
        lambda body: body.update(slots=-1),
        lambda body: body.update(terms=[]),
    ],
)
def test_an_odd_gate_is_corrupt(change: Any) -> None:
    with pytest.raises(CorruptTableError):
        parse(Kind.GATE, resealed(Kind.GATE, change))


@pytest.mark.parametrize("kind", Kind)
def test_an_object_may_be_as_large_as_the_largest_and_no_larger(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = OBJECTS[kind]
    assert control_object.MAX_BYTES == 256 << 20
    monkeypatch.setattr(control_object, "MAX_BYTES", len(whole))
    parse(kind, whole)
    with pytest.raises(
        CorruptTableError, match=f"expected at most {len(whole)} bytes, found {len(whole) + 1}$"
    ):
        parse(kind, whole + b" ")


@pytest.mark.parametrize("kind", Kind)
def test_an_object_begins_with_a_line_that_says_what_it_is_and_goes_on_with_sorted_compact_json(
    kind: Kind,
) -> None:
    line, _, body = OBJECTS[kind].partition(b"\n")
    assert line == f"sparkrobust {kind.value} 1 ab {hashlib.sha256(body).hexdigest()}".encode()
    assert body == json.dumps(json.loads(body), sort_keys=True, separators=(",", ":")).encode()


def test_the_longest_first_line_is_read() -> None:
    nonce = "ab" * 32
    folder = replace(FOLDER, nonce=nonce)
    assert Gate.parse(gate().render(Kind.GATE, nonce), Kind.GATE, nonce=nonce, path="x") == gate()
    whole = replace(marker(), slot=3).render(nonce)
    assert CompletionMarker.parse(whole, folder, 3) == marker()
    with pytest.raises(CorruptTableError, match="first line"):
        Gate.parse(gate().render(Kind.GATE, nonce + "a"), Kind.GATE, nonce=nonce + "a", path="x")


def test_the_smallest_and_the_largest_numbers_are_read() -> None:
    for keys in (0, (1 << 64) - 1, None):
        for token in ("x", "x" * 64):
            one = CompletionMarker(slot=3, attempt=token, input=Fingerprint(rows=0, keys=keys), files=())
            assert CompletionMarker.parse(one.render("ab"), FOLDER, 3) == one
    most = Gate(terms=TERMS, slots=(1 << 63) - 1, counted=True)
    assert Gate.parse(most.render(Kind.GATE, "ab"), Kind.GATE, nonce="ab", path="x") == most


def test_every_term_comes_back_whatever_it_is() -> None:
    for flags in product([False, True], repeat=3):
        replaces, may_drop, counted = flags
        terms = replace(TERMS, replaces_table=replaces, may_drop_metadata_table=may_drop)
        one = Gate(terms=terms, slots=1, counted=counted)
        assert Gate.parse(one.render(Kind.GATE, "ab"), Kind.GATE, nonce="ab", path="x") == one
    plain = Terms(action=Action.COMMIT, operation=OperationType.UPSERT, schema="s").to_plain()
    assert plain == {
        "action": "commit",
        "operation": "UPSERT",
        "schema": "s",
        "extra": {},
        "replaces_table": False,
        "new_properties": None,
        "may_drop_metadata_table": False,
    }


def test_a_decision_tells_its_instant_its_partitions_and_its_file_groups() -> None:
    done = COMMIT.instant(FOLDER)
    assert (done.time, done.action, done.state, done.completion) == (
        FOLDER.instant,
        Action.COMMIT,
        State.COMPLETED,
        LATER,
    )
    assert COMMIT.partitions == {"p"}
    rooted = replace(COMMIT, files=(written(0, "").staged, written(1, "q/r").staged))
    assert rooted.partitions == {"", "q/r"}
    assert rooted.groups == {("", written(0, "").stat.file_id), ("q/r", written(1, "q/r").stat.file_id)}
    replaced = replace(
        COMMIT,
        action=Action.REPLACE_COMMIT,
        commit_file=replace(
            COMMIT.commit_file, final_path=COMMIT.commit_file.final_path.replace(".commit", ".replacecommit")
        ),
    )
    assert decision.parse(decision.render(replaced, "ab"), FOLDER) == replaced


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(list(Kind)), st.data())
def test_whatever_stands_in_a_whole_object_it_is_sound_or_corrupt(kind: Kind, data: st.DataObject) -> None:
    """One value somewhere in a real object is another one; nothing else may come of it than an error."""

    def change(body: Any) -> None:
        place = body
        while True:
            key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
            inner = place[key]
            if isinstance(inner, dict | list) and inner and data.draw(st.booleans()):
                place = inner
                continue
            place[key] = data.draw(values)
            return

    with contextlib.suppress(CorruptTableError):
        parse(kind, resealed(kind, change))


@given(st.sampled_from(list(Kind)), st.binary(max_size=300))
def test_any_bytes_are_no_control_object(kind: Kind, data: bytes) -> None:
    for one in (data, OBJECTS[kind].partition(b"\n")[0] + b"\n" + data):
        with pytest.raises(CorruptTableError):
            parse(kind, one)


@pytest.mark.parametrize("text", ['{"a":1,"a":2}', "NaN", "[Infinity]", "[" * 100_000, "{", ""])
def test_json_that_we_would_not_write_is_none(text: str) -> None:
    with pytest.raises(ValueError):
        strict_json.loads(text)


# -- rows --------------------------------------------------------------------------------------------


def test_the_sum_of_fingerprints_counts_rows_and_adds_known_sums_within_64_bits() -> None:
    large = (1 << 64) - 1
    assert Fingerprint(rows=2, keys=5).plus(Fingerprint(rows=3, keys=7)) == Fingerprint(rows=5, keys=12)
    assert Fingerprint(rows=1, keys=large).plus(Fingerprint(rows=1, keys=2)) == Fingerprint(rows=2, keys=1)
    for one, other in [(None, 1), (1, None), (None, None)]:
        found = Fingerprint(rows=1, keys=one).plus(Fingerprint(rows=1, keys=other))
        assert found == Fingerprint(rows=2)
    assert NO_ROWS.plus(NO_ROWS) == NO_ROWS == Fingerprint(rows=0, keys=0)


def test_a_fingerprint_says_how_many_rows_and_a_known_sum() -> None:
    assert str(Fingerprint(rows=3)) == "3 rows"
    assert str(Fingerprint(rows=3, keys=255)) == "3 rows with the sum ff"


def slots(*rows: tuple[int, int, int]) -> list[CompletionMarker]:
    return [replace(marker(), slot=slot, input=Fingerprint(rows=n, keys=keys)) for slot, n, keys in rows]


def test_rows_that_changed_their_slot_are_not_lost_and_rows_that_are_gone_are() -> None:
    found = slots((0, 2, 10), (1, 3, 20), (2, 4, 30))
    expected = [
        (frozenset({0, 1}), Fingerprint(rows=5, keys=30)),
        (frozenset({2}), Fingerprint(rows=4, keys=30)),
    ]
    refuse_lost_rows(found, expected, {})
    refuse_lost_rows(found, [], {})
    refuse_lost_rows(found, [(frozenset(), NO_ROWS)], {})
    for lost in (Fingerprint(rows=6, keys=30), Fingerprint(rows=5, keys=31)):
        with pytest.raises(IndeterminateInputError, match="a set of 2 slots was given") as refused:
            refuse_lost_rows(found, [expected[1], (frozenset({0, 1}), lost)], {})
        assert f"given {lost} at first, and 5 rows with the sum 1e when" in str(refused.value)
        assert refused.value.path is None


def test_a_slot_that_was_done_again_has_the_rows_of_the_one_that_was_counted() -> None:
    expected = [(frozenset({0, 1}), Fingerprint(rows=5, keys=30))]
    standing = slots((1, 3, 20), (3, 2, 10))
    refuse_lost_rows(standing, expected, {0: 2, 2: 3})
    with pytest.raises(IndeterminateInputError, match="a set of 2 slots"):
        refuse_lost_rows(slots((1, 3, 20), (3, 1, 10)), expected, {0: 2, 2: 3})


def test_rows_that_changed_are_told_with_the_place_and_the_way_out() -> None:
    with pytest.raises(IndeterminateInputError) as refused:
        refuse_other_rows(marker(), Fingerprint(rows=6, keys=17), path="cm/3")
    assert str(refused.value).startswith(
        "slot 3 was given 5 rows with the sum 11 at first, and 6 rows with the sum 11 "
        "when the input was read again"
    )
    assert refused.value.path == "cm/3"
    assert (
        refused.value.hint == "write rows that a second reading gives again: cache them, or store them first"
    )
