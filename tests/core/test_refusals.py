"""Whoever meets an object that is none learns where it lies, what it should have been, and what it is."""

from __future__ import annotations

from typing import Any

import pytest

from sparkrobust.core.control_object import Kind
from sparkrobust.errors import CorruptTableError, UnsupportedTableError
from tests.core.control_objects import ATTEMPT, FOLDER, LATER, OBJECTS, parse, resealed, sealed

GATE, DONE, ENDS = Kind.GATE, Kind.COMPLETION, Kind.DECISION
NAME = f"u-0_{ATTEMPT}_{FOLDER.instant}.parquet"
COMMIT_FILE = f".hoodie/timeline/{FOLDER.instant}_{LATER}.commit"
SAID: list[tuple[Kind, Any, str]] = [
    (GATE, lambda body: body.update(more=1), "other fields, found \"[] missing, ['more'] unknown\""),
    (GATE, lambda body: body.pop("slots"), "other fields, found \"['slots'] missing, [] unknown\""),
    (GATE, lambda body: body.update(slots=-1), "a count as slots, found -1"),
    (GATE, lambda body: body.update(slots=1 << 63), f"a count as slots, found {1 << 63}"),
    (GATE, lambda body: body.update(counted=1), "true or false as counted, found 1"),
    (GATE, lambda body: body.update(terms=[]), "an object, found []"),
    (GATE, lambda body: body["terms"].update(action="clean"), "an action of a write, found 'clean'"),
    (GATE, lambda body: body["terms"].update(action=1), "text as action, found 1"),
    (GATE, lambda body: body["terms"].update(operation="X"), "an operation, found 'X'"),
    (GATE, lambda body: body["terms"].update(operation=None), "text as operation, found None"),
    (GATE, lambda body: body["terms"].update(schema=None), "text as schema, found None"),
    (GATE, lambda body: body["terms"].update(extra=[]), "an object of texts as extra, found []"),
    (
        GATE,
        lambda body: body["terms"].update(replaces_table=None),
        "true or false as replaces_table, found None",
    ),
    (
        GATE,
        lambda body: body["terms"].update(may_drop_metadata_table=0),
        "true or false as may_drop_metadata_table, found 0",
    ),
    (
        GATE,
        lambda body: body["terms"].update(new_properties={"a": 1}),
        "an object of texts as new_properties, found {'a': 1}",
    ),
    (DONE, lambda body: body.update(slot=4), "a marker of slot 3, found 4"),
    (DONE, lambda body: body.update(slot="3"), "a count as slot, found '3'"),
    (DONE, lambda body: body.update(attempt=""), "an attempt's token, found ''"),
    (DONE, lambda body: body.update(attempt=3), "text as attempt, found 3"),
    (DONE, lambda body: body.update(attempt="x" * 65), f"an attempt's token, found '{'x' * 65}'"),
    (DONE, lambda body: body.update(keys=1 << 64), f"a sum of hashes, found {1 << 64}"),
    (DONE, lambda body: body.update(keys=False), "a sum of hashes, found False"),
    (DONE, lambda body: body.update(rows=None), "a count as rows, found None"),
    (DONE, lambda body: body.update(files={}), "a list as files, found {}"),
    (DONE, lambda body: body.update(files=[3]), "an object, found 3"),
    (DONE, lambda body: body["files"].append(body["files"][0]), f"each file once, found '{ATTEMPT}'"),
    (
        DONE,
        lambda body: body["files"][0]["staged"].update(final="../x"),
        "a file in a partition of the table, found '../x'",
    ),
    (
        DONE,
        lambda body: body["files"][0]["stat"].update(file_id="a_b"),
        f"the name of a base file, found 'p/{NAME}'",
    ),
    (DONE, lambda body: body["files"][0]["staged"].update(size=8), f"7 bytes, found 'p/{NAME}'"),
    (DONE, lambda body: body["files"][0]["staged"].update(final="p/x"), f"the file p/{NAME}, found 'p/x'"),
    (DONE, lambda body: body["files"][0]["stat"].update(path="p/x"), f"the file p/{NAME}, found 'p/{NAME}'"),
    (
        DONE,
        lambda body: body["files"][0]["stat"].update(partition_path=None),
        f"the file {NAME}, found 'p/{NAME}'",
    ),
    (
        DONE,
        lambda body: body["files"][0]["staged"].update(token="a/b"),
        f"a staged file of {FOLDER.path}, found 'a/b'",
    ),
    (ENDS, lambda body: body.update(outcome="MAYBE"), "COMMIT or ABORT, found 'MAYBE'"),
    (ENDS, lambda body: body.update(outcome=None), "text as outcome, found None"),
    (ENDS, lambda body: body.update(action="clean"), "an action of a write, found 'clean'"),
    (ENDS, lambda body: body.update(completion="soon"), "a time, found 'soon'"),
    (ENDS, lambda body: body.update(completion="٢"), "a time, found '٢'"),
    (ENDS, lambda body: body.update(completion=""), "a time, found ''"),
    (ENDS, lambda body: body.update(before=None), "properties before and after, found 'one of them'"),
    (ENDS, lambda body: body.update(after=None), "properties before and after, found 'one of them'"),
    (ENDS, lambda body: body.update(after=[]), "an object of texts as after, found []"),
    (ENDS, lambda body: body["commit"].update(final="x"), f"{COMMIT_FILE}, found 'x'"),
    (ENDS, lambda body: body["commit"].update(size=None), "a count as size, found None"),
    (ENDS, lambda body: body["commit"].update(token="x"), f"a staged file of {FOLDER.path}, found 'x'"),
    (ENDS, lambda body: body["files"][1].update(token="x"), f"a staged file of {FOLDER.path}, found 'x'"),
    (
        ENDS,
        lambda body: body["files"][0].update(final="p/x"),
        f"a base file of {FOLDER.instant}, found 'p/x'",
    ),
    (ENDS, lambda body: body["files"].append(body["files"][0]), "each file once, found 'one of them twice'"),
    (ENDS, lambda body: body.update(files=3), "a list as files, found 3"),
    (ENDS, lambda body: body.update(new_partitions="p"), "a list as new_partitions, found 'p'"),
    (ENDS, lambda body: body.update(new_partitions=["q"]), "partitions of its files, found ('q',)"),
    (ENDS, lambda body: body.update(new_partitions=["p", 1]), "partitions of its files, found ('p', 1)"),
    (ENDS, lambda body: body.update(more=1), "other fields, found \"[] missing, ['more'] unknown\""),
]


def path_of(kind: Kind) -> str:
    return {DONE: FOLDER.completion(3), ENDS: FOLDER.decision}.get(kind, "x")


@pytest.mark.parametrize(("kind", "change", "said"), SAID, ids=[said for _, _, said in SAID])
def test_what_is_wrong_with_an_object_is_said_with_its_path(kind: Kind, change: Any, said: str) -> None:
    with pytest.raises(CorruptTableError) as refused:
        parse(kind, resealed(kind, change))
    assert str(refused.value) == f"{path_of(kind)}: expected {said}"
    assert refused.value.path == path_of(kind)


@pytest.mark.parametrize("kind", Kind)
def test_what_an_object_is_instead_is_said_with_its_path(kind: Kind) -> None:
    instead = Kind.COMPLETION if kind is not Kind.COMPLETION else Kind.GATE
    whole, other, name = OBJECTS[kind], OBJECTS[instead], instead.value
    digest = whole.split(b"\n")[0].split(b" ")[-1].decode()
    line = "the first line of a control object, found"
    for data, said in (
        (b"x" * 100, f"{line} b'{'x' * 80}'"),
        (b"", f"{line} b''"),
        (b" " + whole, f"{line} {(b' ' + whole)[:80]!r}"),
        (other, f"a {kind.value}, found a {name}"),
        (whole.replace(b" 1 ab ", b" 1 cd ", 1), "an object of the write ab, found one of cd"),
        (whole + b" ", f"content with the SHA-256 {digest}, found other or torn content"),
        (whole.replace(b" 1 ab ", b" 0 ab ", 1), "a version from 1 on, found 0"),
        (sealed(kind, b"[]"), "a JSON object, found list"),
        (
            sealed(kind, b"{"),
            "JSON, found Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        ),
    ):
        with pytest.raises(CorruptTableError) as refused:
            parse(kind, data)
        assert str(refused.value) == f"{path_of(kind)}: expected {said}"
        assert refused.value.path == path_of(kind)
    with pytest.raises(UnsupportedTableError) as newer:
        parse(kind, whole.replace(b" 1 ab ", b" 2 ab ", 1))
    assert newer.value.path == path_of(kind)
    assert str(newer.value).startswith(
        f"{path_of(kind)} was written by a newer version of sparkrobust (form 2, not 1)"
    )
    assert newer.value.hint == "finish or roll back that write with the newer version"
