"""Files that a task has staged: written and durable, and not yet seen by any reader."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sparkrobust.core import key_hashes, strict_json
from sparkrobust.core.fields import Fields
from sparkrobust.core.names import HOODIE, ControlFolder
from sparkrobust.core.write_status import WriteStat


@dataclass(frozen=True, kw_only=True, slots=True)
class StagedFile:
    """Written, durable, invisible.  A small value: it travels from the task to the driver."""

    final_path: str
    token: str
    """What the store needs to publish it: the staged path, or the upload with its parts."""
    size: int

    @property
    def in_place(self) -> bool:
        """It has its final name already, as a task in mode ``direct`` gives it."""
        return self.token == self.final_path

    def published(self) -> StagedFile:
        """The same once it has its final name."""
        return replace(self, token=self.final_path)

    def moved(self, folder: str, to: str) -> StagedFile:
        """The same after its staging folder was renamed; a token that is no path in it stays."""
        if not self.token.startswith(f"{folder}/"):
            return self
        return replace(self, token=to + self.token[len(folder) :])

    def belongs_to(self, control: ControlFolder) -> bool:
        """Whether the token leads to staged bytes of this write, and for this file.

        Who publishes or discards it would take away whatever it names.
        """
        if self.in_place:
            return not self.final_path.startswith(f"{HOODIE}/")
        return control.may_be_staged(self.token, self.final_path) or uploads(self.token, self.final_path)

    def to_plain(self) -> dict[str, Any]:
        return {"final": self.final_path, "token": self.token, "size": self.size}

    @classmethod
    def from_plain(cls, plain: object, *, path: str) -> StagedFile:
        found = Fields(plain, {"final", "token", "size"}, path=path)
        return cls(final_path=found.text("final"), token=found.text("token"), size=found.count("size"))


def uploads(token: str, final_path: str) -> bool:
    """Whether a token is the one of an upload that becomes this file; the store reads all of it."""
    return path_of_upload(token) == final_path


def path_of_upload(token: str) -> str:
    """The file that an upload with this token becomes; nothing if the token is another one's."""
    if not token.startswith("{"):
        return ""
    try:
        found = strict_json.loads(token).get("path")
    except ValueError:
        return ""
    return found if isinstance(found, str) else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenFile:
    """A data file that a task staged, with its statistics."""

    stat: WriteStat
    staged: StagedFile
    new_keys: bytes = b""
    """Hashes of the keys that it inserts, where these are held against those of other writers."""

    def to_plain(self) -> dict[str, Any]:
        plain = {"stat": self.stat.to_plain(), "staged": self.staged.to_plain()}
        return {**plain, "new_keys": key_hashes.to_text(self.new_keys)}

    @classmethod
    def from_plain(cls, plain: object, *, path: str) -> WrittenFile:
        found = Fields(plain, {"stat", "staged", "new_keys"}, path=path)
        text = found.text("new_keys")
        try:
            new_keys = key_hashes.from_text(text)
        except ValueError as error:
            found.refuse("hashes of keys", f"{text[:60]} ({error})")
        return cls(
            new_keys=new_keys,
            stat=WriteStat.from_plain(found.plain("stat"), path=path),
            staged=StagedFile.from_plain(found.plain("staged"), path=path),
        )
