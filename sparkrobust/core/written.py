"""Files that a task has staged: written and durable, and not yet seen by any reader."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sparkrobust.core.fields import Fields
from sparkrobust.core.write_status import WriteStat


@dataclass(frozen=True, kw_only=True, slots=True)
class StagedFile:
    """Written, durable, invisible.  A small value: it travels from the task to the driver."""

    final_path: str
    token: str
    """What the store needs to publish it: the staged path, or the upload with its parts."""
    size: int

    def moved(self, folder: str, to: str) -> StagedFile:
        """The same after its staging folder was renamed; a token that is no path in it stays."""
        if not self.token.startswith(f"{folder}/"):
            return self
        return replace(self, token=to + self.token[len(folder) :])

    def to_plain(self) -> dict[str, Any]:
        return {"final": self.final_path, "token": self.token, "size": self.size}

    @classmethod
    def from_plain(cls, plain: object, *, path: str) -> StagedFile:
        found = Fields(plain, {"final", "token", "size"}, path=path)
        return cls(final_path=found.text("final"), token=found.text("token"), size=found.count("size"))


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenFile:
    """A data file that a task staged, with its statistics."""

    stat: WriteStat
    staged: StagedFile

    def to_plain(self) -> dict[str, Any]:
        return {"stat": self.stat.to_plain(), "staged": self.staged.to_plain()}

    @classmethod
    def from_plain(cls, plain: object, *, path: str) -> WrittenFile:
        found = Fields(plain, {"stat", "staged"}, path=path)
        return cls(
            stat=WriteStat.from_plain(found.plain("stat"), path=path),
            staged=StagedFile.from_plain(found.plain("staged"), path=path),
        )
