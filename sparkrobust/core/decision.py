"""How a write ends: one object, put if absent, that everybody who comes later acts on.

``Commit`` names everything that is to become visible, down to the completed instant's file; whoever
finds it may finish the write, and nobody can finish it otherwise.  ``Abort`` ends it for good.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparkrobust.core import control_object
from sparkrobust.core.conflicts import FileGroup
from sparkrobust.core.control_object import Kind
from sparkrobust.core.fields import Fields
from sparkrobust.core.instant import Action, Instant, InstantTime, State
from sparkrobust.core.names import BaseFileName, ControlFolder, instant_file
from sparkrobust.core.partition_path import problem_with
from sparkrobust.core.written import StagedFile


@dataclass(frozen=True, kw_only=True)
class NewProperties:
    """What the table's properties change to with the commit, and what they must be until then."""

    before: Mapping[str, str]
    after: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Commit:
    """The write becomes part of the table."""

    action: Action
    completion: InstantTime
    commit_file: StagedFile
    files: tuple[StagedFile, ...]
    new_partitions: tuple[str, ...] = ()
    """Those of them that were no partitions when it was decided."""
    properties: NewProperties | None = None

    @property
    def partitions(self) -> set[str]:
        """The partitions that get files."""
        return {file.final_path.rpartition("/")[0] for file in self.files}

    @property
    def groups(self) -> frozenset[FileGroup]:
        """The file groups that get files."""
        places = (file.final_path.rpartition("/") for file in self.files)
        names = ((partition, BaseFileName.parse(name)) for partition, _, name in places)
        return frozenset((partition, name.file_id) for partition, name in names if name)

    def instant(self, control: ControlFolder) -> Instant:
        """The completed instant."""
        return Instant(
            time=control.instant, action=self.action, state=State.COMPLETED, completion=self.completion
        )


@dataclass(frozen=True, kw_only=True)
class Abort:
    """The write is undone."""

    reason: str


Decision = Commit | Abort
NO_ROOM = Abort(reason="others gave it up, and there was no room to say why")
"""What a gate or a finalize marker says where a decision should be, which was moved there."""


def render(decision: Decision, nonce: str) -> bytes:
    """The decision object."""
    if isinstance(decision, Abort):
        return control_object.render(Kind.DECISION, nonce, {"outcome": "ABORT", "reason": decision.reason})
    properties = decision.properties
    return control_object.render(
        Kind.DECISION,
        nonce,
        {
            "outcome": "COMMIT",
            "action": decision.action.value,
            "completion": decision.completion,
            "commit": decision.commit_file.to_plain(),
            "files": [file.to_plain() for file in decision.files],
            "new_partitions": list(decision.new_partitions),
            "before": None if properties is None else dict(properties.before),
            "after": None if properties is None else dict(properties.after),
        },
    )


_COMMIT_FIELDS = frozenset(
    ("outcome", "action", "completion", "commit", "files", "new_partitions", "before", "after")
)


def parse(data: bytes, control: ControlFolder) -> Decision:
    """The decision of a write; nothing in it lies outside of where the write's files belong.

    On a disk without room another of the write's objects takes its place: nobody commits then.
    """
    path = control.decision
    for kind in (Kind.GATE, Kind.FINALIZE):
        if control_object.is_of(data, kind):
            control_object.parse(data, kind, nonce=control.nonce, path=path)
            return NO_ROOM
    plain = control_object.parse(data, Kind.DECISION, nonce=control.nonce, path=path)
    if plain.get("outcome") == "ABORT":
        return Abort(reason=Fields(plain, {"outcome", "reason"}, path=path).text("reason"))
    found = Fields(plain, _COMMIT_FIELDS, path=path)
    if found.text("outcome") != "COMMIT":
        found.refuse("COMMIT or ABORT", found.text("outcome"))
    action, completion = found.text("action"), found.text("completion")
    if action not in (Action.COMMIT.value, Action.REPLACE_COMMIT.value):
        found.refuse("an action of a write", action)
    if not (completion.isascii() and completion.isdigit()):
        found.refuse("a time", completion)
    before, after = found.optional("before", found.texts), found.optional("after", found.texts)
    if (before is None) is not (after is None):
        found.refuse("properties before and after", "one of them")
    commit = Commit(
        action=Action(action),
        completion=InstantTime(completion),
        commit_file=StagedFile.from_plain(found.plain("commit"), path=path),
        files=tuple(StagedFile.from_plain(one, path=path) for one in found.items("files")),
        new_partitions=tuple(found.items("new_partitions")),
        properties=None if before is None or after is None else NewProperties(before=before, after=after),
    )
    if commit.commit_file.final_path != instant_file(commit.instant(control)):
        found.refuse(instant_file(commit.instant(control)), commit.commit_file.final_path)
    partitions = commit.partitions
    for file in commit.files:
        base = None
        if problem_with(file.final_path) is None:
            base = BaseFileName.parse(file.final_path.rpartition("/")[2])
        if base is None or base.instant != control.instant:
            found.refuse(f"a base file of {control.instant}", file.final_path)
    if len({file.final_path for file in commit.files}) != len(commit.files):
        found.refuse("each file once", "one of them twice")
    for file in (commit.commit_file, *commit.files):
        if not file.belongs_to(control):
            found.refuse(f"a staged file of {control.path}", file.token)
    if any(not isinstance(one, str) or one not in partitions for one in commit.new_partitions):
        found.refuse("partitions of its files", commit.new_partitions)
    return commit
