"""Tables for random writes, on disks of several kinds and in a store, and what may be found in them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

from fault_injection.spark.cluster import Cluster
from fault_injection.spark.jobs import Expected
from fault_injection.spark.plain_reader import snapshot
from fault_injection.spark.random_plans import Course, Perils
from fault_injection.spark.store import Bucket, Store, Upload
from fault_injection.spark.verify import problems, wrong_rows

_MEGABYTES = 32
"""Of a small disk: more than all writes of a table need."""


@dataclass(kw_only=True)
class RandomTable:
    """A table, and what it must hold."""

    path: str
    """How a job names it."""
    folder: Path
    """Where it is seen from here."""
    perils: Perils
    bucket: Bucket | None = None
    """The one in which it lies alone, if it lies in a store."""
    expected: Expected = field(default_factory=Expected)
    pardoned: set[str] = field(default_factory=set)
    """Uploads that the bucket has to expire."""

    def problems(self) -> list[str]:
        """Everything that is not as it must be."""
        uploads = (f"an upload that never ended: {one}" for one in self._uploads())
        return [*problems(self.folder, self.expected), *uploads]

    def wrong_rows(self) -> list[str]:
        """What readers see that they must not."""
        return list(wrong_rows(snapshot(self.folder), self.expected))

    def _uploads(self) -> list[Upload]:
        found = self.bucket.uploads() if self.bucket else []
        return [one for one in found if one.id not in self.pardoned]

    def pardon_uploads(self, course: Course) -> None:
        """Pass over the uploads of which nobody can know, as the guarantees say, from now on."""
        if course.may_leave_an_empty_upload:
            self.pardoned.update(one.id for one in self._uploads() if not one.parts)

    def copy_of_expected(self) -> Expected:
        return deepcopy(self.expected)


def only_traces(found: list[str], folders: Collection[str]) -> bool:
    """Whether a next write has nothing to mend, only to take away uploads, and what lies in these folders."""
    traces = tuple(f"left behind: .hoodie/{name}/" for name in folders)
    return all(one.startswith((*traces, "an upload that never ended")) for one in found)


@dataclass(frozen=True)
class Makers:
    """Makes tables wherever this machine lets them lie."""

    cluster: Cluster
    folder: Path
    store: Store | None

    def tables(self, seed: int) -> Iterator[RandomTable]:
        """One after the other, each elsewhere; where the first one lies, the seed says."""
        makers: list[Callable[[], RandomTable]] = [self._on_disk]
        if self.store is not None:
            makers.append(self._in_a_bucket)
        if self.cluster.places.partitions:
            makers.append(self._on_a_small_disk)
        for number in itertools.count(seed):
            yield makers[number % len(makers)]()

    def _on_disk(self) -> RandomTable:
        folder, can = self._new_folder(), self.cluster.places.partitions
        return RandomTable(
            path=str(folder), folder=folder,
            perils=Perils(partitions=can, sealed=str(folder) if can else ""),
        )  # fmt: skip

    def _in_a_bucket(self) -> RandomTable:
        assert self.store is not None
        bucket = self.store.bucket()
        perils = Perils(partitions=self.cluster.places.partitions, store=True)
        return RandomTable(path=bucket.url("t"), folder=bucket.folder / "t", perils=perils, bucket=bucket)

    def _on_a_small_disk(self) -> RandomTable:
        disk, places = self._new_folder(), self.cluster.places
        disk.mkdir()
        places.small_disk(disk, _MEGABYTES)
        perils = Perils(partitions=True, sealed=str(disk), filled=str(disk))
        return RandomTable(path=str(disk / "t"), folder=places.seen_from_here(disk / "t"), perils=perils)

    def _new_folder(self) -> Path:
        return self.folder / f"table-{next(self.cluster.numbers)}"
