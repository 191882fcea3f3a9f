"""Which files make up the latest snapshot: file groups, their slices, and what was replaced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from sparkrobust.core.names import BaseFileName, joined
from sparkrobust.core.timeline import Timeline


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseFile:
    """A base file that lies in a partition."""

    partition: str
    name: BaseFileName
    size: int

    @property
    def path(self) -> str:
        return joined(self.partition, str(self.name))

    @property
    def file_id(self) -> str:
        return self.name.file_id


Replaced = Mapping[str, Set[str]]
"""Partition → file ids that a completed replacecommit took out of the table."""


def latest_base_files(
    files: Iterable[tuple[str, str, int]], timeline: Timeline, replaced: Replaced
) -> list[BaseFile]:
    """The newest committed base file of every file group that was not replaced, in order of path.

    Parameters
    ----------
    files
        (partition, file name, size) of everything that lies in the partitions.
    """
    newest: dict[tuple[str, str], BaseFile] = {}
    for partition, text, size in files:
        name = BaseFileName.parse(text)
        if name is None or name.file_id in replaced.get(partition, ()):
            continue
        if not timeline.is_committed(name.instant):
            continue
        key = (partition, name.file_id)
        known = newest.get(key)
        if known is None or (name.instant, name.write_token) > (known.name.instant, known.name.write_token):
            newest[key] = BaseFile(partition=partition, name=name, size=size)
    return sorted(newest.values(), key=lambda f: f.path)
