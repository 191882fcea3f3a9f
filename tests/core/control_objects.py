"""Control objects as a write puts them, and what somebody makes of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sparkrobust.core import decision
from sparkrobust.core.control_object import Kind
from sparkrobust.core.decision import Abort, Commit, Decision, NewProperties
from sparkrobust.core.instant import Action, InstantTime
from sparkrobust.core.markers import CompletionMarker, Fingerprint, Gate, Terms
from sparkrobust.core.names import ControlFolder
from sparkrobust.core.write_status import OperationType, WriteStat
from sparkrobust.core.written import StagedFile, WrittenFile

NOW, LATER = InstantTime("20240101000000000"), InstantTime("20240101000001000")
FOLDER = ControlFolder(instant=NOW, nonce="ab")
ATTEMPT = "0-0-1"


def written(number: int = 0, partition: str = "p") -> WrittenFile:
    name = f"u-{number}_{ATTEMPT}_{NOW}.parquet"
    path = f"{partition}/{name}" if partition else name
    stat = WriteStat(
        file_id=f"u-{number}", path=path, partition_path=partition, file_size_in_bytes=7, num_writes=1
    )
    return WrittenFile(
        stat=stat, staged=StagedFile(final_path=path, token=f"{FOLDER.staging}/{name}", size=7)
    )


def gate(**terms: Any) -> Gate:
    return Gate(terms=replace(TERMS, **terms), slots=1)


def marker(*files: WrittenFile) -> CompletionMarker:
    return CompletionMarker(slot=3, attempt=ATTEMPT, input=Fingerprint(rows=5, keys=17), files=files)


TERMS = Terms(
    action=Action.REPLACE_COMMIT,
    operation=OperationType.INSERT_OVERWRITE_TABLE,
    schema="{}",
    extra={"a": "b"},
    replaces_table=True,
    new_properties={"c": "d"},
)
COMMIT = Commit(
    action=Action.COMMIT,
    completion=LATER,
    commit_file=StagedFile(
        final_path=f".hoodie/timeline/{NOW}_{LATER}.commit", token=f"{FOLDER.path}/commit-1", size=9
    ),
    files=(written(0).staged, written(1).staged),
    new_partitions=("p",),
    properties=NewProperties(before={"a": "1"}, after={"a": "2"}),
)
DECISIONS: list[Decision] = [
    COMMIT,
    replace(COMMIT, files=(), new_partitions=(), properties=None),
    Abort(reason="x"),
]

OBJECTS = {
    Kind.COMPLETION: marker(written()).render("ab"),
    Kind.GATE: gate().render(Kind.GATE, "ab"),
    Kind.FINALIZE: gate().render(Kind.FINALIZE, "ab"),
    Kind.DECISION: decision.render(COMMIT, "ab"),
}


def parse(kind: Kind, data: bytes, folder: ControlFolder = FOLDER) -> object:
    if kind is Kind.COMPLETION:
        return CompletionMarker.parse(data, folder, 3)
    if kind is Kind.DECISION:
        return decision.parse(data, folder)
    return Gate.parse(data, kind, nonce=folder.nonce, path="x")


def sealed(kind: Kind, body: bytes, nonce: str = "ab") -> bytes:
    """An object with any body, whole and with the right sum: as a careful enemy makes it."""
    line = b"sparkrobust %s 1 %s %s\n"
    return line % (kind.value.encode(), nonce.encode(), hashlib.sha256(body).hexdigest().encode()) + body


def resealed(kind: Kind, change: Callable[[Any], object]) -> bytes:
    """A real object with a change in its body, whole and with the right sum."""
    body = json.loads(OBJECTS[kind].partition(b"\n")[2])
    change(body)
    return sealed(kind, json.dumps(body).encode())
