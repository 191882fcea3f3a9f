"""Whatever lies in a control folder: it is sound or refused, takes little memory, and leads nowhere else."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkrobust.core import strict_json
from sparkrobust.core.control_object import Kind
from sparkrobust.core.decision import Commit
from sparkrobust.core.markers import CompletionMarker
from sparkrobust.core.names import PROPERTIES, is_inside
from sparkrobust.core.partition_path import problem_with
from sparkrobust.core.write_status import WriteStat
from sparkrobust.errors import CorruptTableError, InvalidInputError, UnsupportedTableError
from tests.core.control_objects import (
    COMMIT,
    FOLDER,
    OBJECTS,
    gate,
    marker,
    parse,
    resealed,
    sealed,
    written,
)

BODIES = {kind: data.partition(b"\n")[2] for kind, data in OBJECTS.items()}
STATUS = written().stat.to_json().encode()
FINAL = written().staged.final_path
NAME = FINAL.rpartition("/")[2]


def upload(path: str, **more: Any) -> str:
    return json.dumps({"format": 1, "path": path, "upload": "u", "mark": "m", "parts": [[1, "t"]], **more})


# -- what is staged ----------------------------------------------------------------------------------

ELSEWHERE = [
    "",
    "x",
    "..",
    "../../x",
    "/etc/passwd",
    PROPERTIES,
    FOLDER.path,
    FOLDER.gate,
    FOLDER.decision,
    FOLDER.completion(0),
    FOLDER.staging,
    f"{FOLDER.path}/{NAME}",
    f"{FOLDER.staging}/",
    f"{FOLDER.staging}/..",
    f"{FOLDER.staging}/../../../hoodie.properties",
    f"{FOLDER.staging}/{NAME}/../../../../hoodie.properties",
    f"{FOLDER.staging}/inner/{NAME}",
    f"{FOLDER.staging}/{NAME}\0",
    f"{FOLDER.staging}/u-1_other.parquet",
    f"/{FOLDER.staging}/{NAME}",
    f".hoodie/.robust/{FOLDER.instant}-cd/staging/{NAME}",
    f"{FOLDER.path}/commit-1/../../../hoodie.properties",
    "{",
    "{}",
    '{"path":' * 100_000,
    upload("p/other.parquet"),
    upload(f"../{FINAL}"),
    f"[{upload(FINAL)}]",
    f" {upload(FINAL)}",
    '{"path":NaN}',
]


@pytest.mark.parametrize("token", ELSEWHERE)
def test_no_control_object_names_staged_bytes_outside_of_its_own_write(token: str) -> None:
    """Who publishes or discards what the token names would move or delete it."""

    def of_the_file(body: Any) -> None:
        body["files"][0]["staged" if "attempt" in body else "token"] = (
            {**body["files"][0]["staged"], "token": token} if "attempt" in body else token
        )

    def of_the_commit(body: Any) -> None:
        body["commit"]["token"] = token

    for kind, change in (
        (Kind.COMPLETION, of_the_file),
        (Kind.DECISION, of_the_file),
        (Kind.DECISION, of_the_commit),
    ):
        with pytest.raises(CorruptTableError):
            parse(kind, resealed(kind, change))


def test_a_data_file_may_have_its_final_name_already_as_in_mode_direct() -> None:
    def in_place(body: Any) -> None:
        body["files"][0]["staged" if "attempt" in body else "token"] = (
            {**body["files"][0]["staged"], "token": FINAL} if "attempt" in body else FINAL
        )

    assert parse(Kind.COMPLETION, resealed(Kind.COMPLETION, in_place)).files[0].staged.in_place
    assert parse(Kind.DECISION, resealed(Kind.DECISION, in_place)).files[0].in_place


@pytest.mark.parametrize(
    "path", [FOLDER.gate, FOLDER.decision, FOLDER.finalize, f"{FOLDER.staging}/{NAME}", FINAL]
)
def test_a_decision_takes_nothing_but_a_staged_commit_for_the_commit_file(path: str) -> None:
    with pytest.raises(CorruptTableError, match="a staged file of"):
        parse(Kind.DECISION, resealed(Kind.DECISION, lambda body: body["commit"].update(token=path)))


@pytest.mark.parametrize(
    "token",
    [f"{FOLDER.staging}/{NAME}.cd", f"{FOLDER.sealed}/{NAME}.cd", FOLDER.sealed + "/" + NAME, upload(FINAL)],
)
def test_staged_bytes_of_the_write_itself_are_taken_wherever_a_store_has_them(token: str) -> None:
    found = parse(
        Kind.COMPLETION,
        resealed(Kind.COMPLETION, lambda body: body["files"][0]["staged"].update(token=token)),
    )
    assert isinstance(found, CompletionMarker) and found.files[0].staged.token == token
    ending = parse(Kind.DECISION, resealed(Kind.DECISION, lambda body: body["files"][0].update(token=token)))
    assert isinstance(ending, Commit) and ending.files[0].token == token


def test_a_commit_file_may_wait_as_an_upload() -> None:
    token = upload(COMMIT.commit_file.final_path)
    found = parse(Kind.DECISION, resealed(Kind.DECISION, lambda body: body["commit"].update(token=token)))
    assert isinstance(found, Commit) and found.commit_file.token == token


# -- bytes that anybody may have put there -----------------------------------------------------------


@st.composite
def mangled(draw: st.DrawFn, data: bytes) -> bytes:
    """Flipped, cut, doubled, moved, mixed with others: a few times each."""
    found = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, max(0, len(found) - 1)))
        end = start + draw(st.integers(0, 40))
        match draw(st.integers(0, 5)):
            case 0 if found:
                found[start] ^= 1 << draw(st.integers(0, 7))
            case 1:
                del found[start:end]
            case 2:
                del found[start:]
            case 3:
                found[start:start] = found[start:end] * draw(st.integers(1, 3))
            case 4:
                found[start:end] = draw(st.binary(max_size=20))
            case _:
                found[start:end] = draw(st.sampled_from(PIECES))
    return bytes(found)


PIECES = [
    *(b"null", b"true", b"-1", b"1e400", b"NaN", b"-Infinity", b"1.5", b"9" * 5000, b"9223372036854775808"),
    *(b'"\\ud800"', b'"\\u0000"', b"[" * 2000, b'{"a":' * 2000, b"{}", b"[]", b'""', b'"../x"', b'"slot":1,'),
    *(b"\xff\xfe", b"\xef\xbb\xbf", b"\0", "é".encode("utf-16")),
]


def assert_leads_nowhere_else(found: object) -> None:
    """Every path of a control object that was taken for sound lies where this write's files belong."""
    files = [file.staged for file in found.files] if isinstance(found, CompletionMarker) else []
    if isinstance(found, Commit):
        files = list(found.files)
        assert found.commit_file.final_path.startswith(f".hoodie/timeline/{FOLDER.instant}_")
        assert found.commit_file.belongs_to(FOLDER)
        assert set(found.new_partitions) <= found.partitions
    for file in files:
        assert problem_with(file.final_path) is None
        assert f"_{FOLDER.instant}." in file.final_path
        name = file.final_path.rpartition("/")[2]
        places = (f"{FOLDER.staging}/{name}", f"{FOLDER.sealed}/{name}")
        assert (
            json.loads(file.token)["path"] == file.final_path
            if file.token[:1] == "{"
            else (is_inside(file.token) and file.token.count("/") == 4 and file.token.startswith(places))
        )


@settings(max_examples=300)
@given(st.sampled_from(list(Kind)), st.booleans(), st.data())
def test_mangled_objects_are_sound_or_corrupt_even_with_the_right_sum(
    kind: Kind, whole: bool, data: st.DataObject
) -> None:
    made = sealed(kind, data.draw(mangled(BODIES[kind]))) if whole else data.draw(mangled(OBJECTS[kind]))
    try:
        found = parse(kind, made)
    except CorruptTableError:
        return
    except UnsupportedTableError:
        version = made.split(b" ", 3)[2]
        assert version.isdigit() and int(version) > 1
        return
    assert_leads_nowhere_else(found)


@settings(max_examples=300)
@given(st.binary(max_size=200) | mangled(STATUS))
def test_a_mangled_write_status_is_sound_or_corrupt(data: bytes) -> None:
    try:
        found = WriteStat.from_json(data, path="x")
    except CorruptTableError as error:
        assert str(error).startswith("x: expected")
        return
    assert WriteStat.from_json(found.to_json()) == found


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("kind", Kind)
def test_a_nesting_of_any_depth_is_corrupt(kind: Kind, opening: str) -> None:
    """Also of the depths that can just be read: what then shows the value must not go deeper than it."""
    closing = "]" if opening == "[" else "}"

    def nested(depth: int) -> str:
        return opening * depth + "1" + closing * depth

    deepest, too_deep = 1, 1 << 17
    while too_deep - deepest > 1:
        middle = (deepest + too_deep) // 2
        try:
            strict_json.loads(nested(middle))
            deepest = middle
        except ValueError:
            too_deep = middle
    for depth in (1, 100, *range(deepest - 40, deepest, 8), deepest, deepest + 1):
        for field in json.loads(BODIES[kind]):
            body = BODIES[kind].decode()
            whole = json.dumps({**json.loads(body), field: "HERE"}).replace('"HERE"', nested(depth))
            with pytest.raises(CorruptTableError):
                parse(kind, sealed(kind, whole.encode()))
        with pytest.raises(CorruptTableError):
            WriteStat.from_json(STATUS.decode().replace("7", nested(depth), 1))


@pytest.mark.parametrize(
    "piece", [b"[],", b"{},", b'{"a":0},', b"1,", b"9", b'"a",', b'"', b"\\u00e9", b"\xff", b'{"'], ids=repr
)
@pytest.mark.parametrize("kind", Kind)
def test_what_refuses_a_large_object_takes_memory_in_proportion(kind: Kind, piece: bytes) -> None:
    field = next(iter(json.loads(BODIES[kind]))).encode()
    data = sealed(kind, b'{"%s":[%s 0]}' % (field, piece * (200_000 // len(piece))))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptTableError) as refused:
            parse(kind, data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 80 * len(data)
    assert len(str(refused.value)) < 1000


def test_half_a_character_is_refused_before_it_is_written_and_when_it_is_read() -> None:
    half = "\ud800"
    for kind in (Kind.GATE, Kind.FINALIZE):
        with pytest.raises(InvalidInputError, match="half of a surrogate pair"):
            gate(extra={"a": half}).render(kind, "ab")
        for extra in ({"a": half}, {half: "a"}):
            with pytest.raises(CorruptTableError, match="extra"):
                parse(kind, resealed(kind, lambda body, extra=extra: body["terms"].update(extra=extra)))
    text = marker(written()).render("ab").replace(NAME.encode(), "é\U0001f600".encode())
    assert "é\U0001f600" in text.decode()


@pytest.mark.parametrize("name", ["x" * 300, "u" * 70_000])
def test_a_file_name_that_no_disk_takes_is_refused(name: str) -> None:
    def longer(body: Any) -> None:
        for text in ("final", "token"):
            body["files"][0][text] = body["files"][0][text].replace("u-0_", f"{name}-0_")

    with pytest.raises(CorruptTableError, match="a base file of"):
        parse(Kind.DECISION, resealed(Kind.DECISION, longer))
    file = written().to_plain()
    long = json.loads(json.dumps(file).replace("u-0", f"{name}-0"))
    with pytest.raises(CorruptTableError, match="a file in a partition"):
        parse(Kind.COMPLETION, resealed(Kind.COMPLETION, lambda body: body.update(files=[long])))


def test_a_decision_names_each_file_once() -> None:
    with pytest.raises(CorruptTableError, match="each file once"):
        parse(Kind.DECISION, resealed(Kind.DECISION, lambda body: body["files"].append(body["files"][0])))
