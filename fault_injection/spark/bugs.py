"""Bugs, put into sparkrobust in a driver and its tasks, to see that real runs notice them.

The simulated world has many more (``fault_injection/simulation/bugs.py``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import Any

from sparkrobust.coordinator import forward, leftovers
from sparkrobust.coordinator.forward import Ending
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.decision import Commit
from sparkrobust.core.names import ControlFolder, marker_folder
from sparkrobust.handles import work
from sparkrobust.storage import local
from sparkrobust.storage.contract import StagedFile, Storage
from sparkrobust.storage.local_staging import LocalStagedWriter


def publish_before_marker() -> None:
    """A task makes its file visible as soon as it is whole, and not the driver when it has decided."""
    finish = LocalStagedWriter.finish

    def finish_in_sight(self: LocalStagedWriter) -> StagedFile:
        staged = finish(self)
        if staged.final_path.endswith(".parquet"):
            root = self._full.removesuffix(staged.token)
            os.makedirs(os.path.dirname(root + staged.final_path), exist_ok=True)
            os.link(self._full, root + staged.final_path)
        return staged

    _set(LocalStagedWriter, "finish", finish_in_sight)


def parents_made_by_tasks() -> None:
    """A task makes the folder that it stages in, and asks no gate whether it still may."""
    stage = local.LocalStorage.stage

    def stage_anyway(self: local.LocalStorage, folder: str, name: str, final_path: str) -> Any:
        os.makedirs(self._full(folder), exist_ok=True)
        return stage(self, folder, name, final_path)

    def mark_anyway(self: local.LocalStorage, path: str, data: bytes, *, under: str) -> None:
        """Nothing: what is not marked is not looked for."""

    _set(work, "is_open", lambda plan: True)
    _set(local.LocalStorage, "stage", stage_anyway)
    _set(local.LocalStorage, "mark", mark_anyway)


def commit_before_data() -> None:
    """A driver publishes the commit file first, and the data files that it names after it."""

    def publish(table: HudiTable, folder: ControlFolder, commit: Commit, *, alone: bool) -> Ending:
        table.storage.publish(commit.commit_file)
        table.storage.publish_all(commit.files)
        return Ending.DURABLE

    _set(forward, "_publish", publish)


def uploads_forgotten() -> None:
    """Who cleans up takes begin markers away, and not the uploads that they tell of."""

    def seen(storage: Storage, instant: str, published: Collection[str] = ()) -> list[str]:
        return [info.path for info in storage.walk(marker_folder(instant))]

    _set(leftovers, "discard_uploads", seen)


BUGS: dict[str, Callable[[], None]] = {
    "publish before marker": publish_before_marker,
    "parents made by tasks": parents_made_by_tasks,
    "commit before data": commit_before_data,
    "uploads forgotten": uploads_forgotten,
}


def _set(place: Any, name: str, value: object) -> None:
    setattr(place, name, value)
