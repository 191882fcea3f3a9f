"""Control objects and begin markers that somebody else wrote: nothing that they name is moved or deleted."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from sparkrobust.coordinator.recovery import recover
from sparkrobust.coordinator.rollback import roll_back_failed_writes
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.control_object import Kind
from sparkrobust.core.names import PROPERTIES, MarkerType, begin_marker, marker_folder
from sparkrobust.errors import CorruptTableError
from sparkrobust.storage.contract import Staging, Storage
from tests.coordinator.writes import begun, commit, data_files, stage, stopped
from tests.core.control_objects import sealed

VICTIMS = ["properties", "data", "another write's file", "outside"]


def objects(storage: Storage) -> dict[str, bytes]:
    return {info.path: storage.read(info.path) for info in storage.walk("")}


def put_again(storage: Storage, path: str, kind: Kind, nonce: str, change: Any) -> None:
    """Another object in place of one of a write's, with the right sum."""
    body = json.loads(storage.read(path).partition(b"\n")[2])
    change(body)
    storage.put(path, sealed(kind, json.dumps(body).encode(), nonce))


def token_of(victim: str, table: HudiTable, other: str) -> str:
    if victim == "data":
        return data_files(table.storage)[0]
    return {"properties": PROPERTIES, "outside": "../../x", "another write's file": other}[victim]


@pytest.mark.parametrize("end", [roll_back_failed_writes, recover])
@pytest.mark.parametrize("of", ["commit", "file"])
@pytest.mark.parametrize("victim", VICTIMS)
def test_a_decision_that_names_what_is_not_its_own_is_refused_by_whoever_finds_it(
    victim: str, of: str, end: Any, table: HudiTable
) -> None:
    commit(table)
    dead = stopped(table, "decided")
    token = token_of(victim, table, f"{dead.folder.staging}/x")

    def change(body: Any) -> None:
        (body["commit"] if of == "commit" else body["files"][0])["token"] = token

    put_again(table.storage, dead.folder.decision, Kind.DECISION, dead.folder.nonce, change)
    before = objects(table.storage)
    table.reload()
    with pytest.raises(CorruptTableError, match="a staged file of"):
        end(table)
    assert objects(table.storage) == before


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_completion_marker_that_names_what_is_not_its_own_commits_nothing(
    victim: str, table: HudiTable
) -> None:
    commit(table)
    transaction = begun(table)
    stage(table, transaction)
    folder = transaction.folder
    token = token_of(victim, table, f"{folder.path[:-1]}x/staging/x")
    put_again(
        table.storage,
        folder.completion(0),
        Kind.COMPLETION,
        folder.nonce,
        lambda body: body["files"][0]["staged"].update(token=token),
    )
    before = {path: data for path, data in objects(table.storage).items() if not path.startswith(folder.path)}
    with pytest.raises(CorruptTableError, match="a staged file of"):
        transaction.finalize(1)
    after = objects(table.storage)
    assert {path: after[path] for path in before} == before


@pytest.mark.parametrize("what", ["completion", "finalize", "decision", "properties"])
@pytest.mark.parametrize("storage", ["local"], indirect=True)
def test_what_is_larger_than_any_memory_is_refused_unread(what: str, table: HudiTable) -> None:
    write = stopped(table, "decided" if what == "decision" else "finalized")
    path = {
        "completion": write.folder.completion(0),
        "finalize": write.folder.finalize,
        "decision": write.folder.decision,
        "properties": PROPERTIES,
    }[what]
    before = list(objects(table.storage))
    os.truncate(Path(table.storage.url.removeprefix("file://"), path), 4 << 40)  # all of it a hole
    with pytest.raises(CorruptTableError, match=f"{re.escape(path)}: {4 << 40} bytes, expected at most"):
        recover(HudiTable.open(table.storage))
    assert [info.path for info in table.storage.walk("")] == before


def test_a_begin_marker_that_tells_of_another_files_upload_throws_none_away(table: HudiTable) -> None:
    if table.storage.staging is not Staging.MULTIPART:
        pytest.skip("begin markers tell of uploads where there are some")
    alive = begun(table)
    with table.storage.stage(alive.folder.staging, "x", "p1/x") as writer:
        writer.write(b"rows")
        dead = begun(table)
        path = stage(table, dead)
        marker = begin_marker(dead.time, path, MarkerType.CREATE)
        for content in (writer.token.encode(), b"\xff", b"{", b"[]"):
            table.storage.put(marker, content)
            table.reload()
            with pytest.raises(CorruptTableError, match="expected"):
                dead._control.remove()
        table.storage.publish(writer.finish())
    assert table.storage.read("p1/x") == b"rows"


def test_lists_of_marks_that_are_no_text_are_corrupt(table: HudiTable) -> None:
    dead = begun(table)
    folder = marker_folder(dead.time)
    table.storage.put(f"{folder}/MARKERS.type", b"TIMELINE_SERVER_BASED")
    table.storage.put_if_absent(f"{folder}/MARKERS0", b"p/\xff.parquet.marker.CREATE")
    table.reload()
    with pytest.raises(CorruptTableError, match="expected text"):
        roll_back_failed_writes(table)
