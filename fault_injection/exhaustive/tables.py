"""The states that a table gets into: what lies in the store, and what the auditor knows of it.

Each is kept once, in little, under a number; a call is done on one of them and leads to another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from fault_injection.exhaustive.lives import SmallWorld
from fault_injection.simulation.audit import AnyStorage, Auditor, Knowledge
from fault_injection.simulation.scheduler import tried
from fault_injection.simulation.stores import Bucket, SimulatedBucket, SimulatedDisk, Upload
from sparkrobust.core import decision
from sparkrobust.core.decision import Commit
from sparkrobust.core.names import PROPERTIES
from sparkrobust.storage.memory import MemoryStorage, _Space

Piece = tuple[Hashable, Any]
"""A part of a store: a value that is equal for equal parts, and what to put it together from."""


class Disk:
    """A disk that can be taken apart into pieces and put together again."""

    def __init__(self, world: SmallWorld) -> None:
        # Apart from the spaces that are known by name: the name stands in files, and is to be the same.
        self._space = _Space(clock=world.clock)
        memory = MemoryStorage._of("small", self._space)
        self.storage = SimulatedDisk(world, memory)
        self.read = memory.read

    def pieces(self) -> Iterator[Piece]:
        space = self._space
        # Versions go by content, as with an S3 store: who has put what in which order is no state.
        space.versions = 0
        settings = space.objects.get(PROPERTIES)
        if settings is not None:
            space.objects[PROPERTIES] = replace(settings, version=_version(settings.data))
        for path, found in space.objects.items():
            yield (path, found.data), (path, found)
        for path in space.folders:
            yield path, path

    def put_together(self, pieces: Iterable[Any]) -> None:
        objects, folders = self._space.objects, self._space.folders
        objects.clear()
        folders.clear()
        for piece in pieces:
            if isinstance(piece, str):
                folders.add(piece)
            else:
                objects[piece[0]] = piece[1]


class S3:
    """The same for a bucket."""

    def __init__(self, world: SmallWorld) -> None:
        self._bucket = Bucket(world.clock)
        self.storage = SimulatedBucket(world, self._bucket, "s3a://small/table")

    def read(self, path: str) -> bytes:
        return self._bucket.objects[path][0]

    def pieces(self) -> Iterator[Piece]:
        bucket = self._bucket
        bucket.versions = 0
        settings = bucket.objects.get(PROPERTIES)
        if settings is not None:
            bucket.objects[PROPERTIES] = settings[0], _version(settings[0]), settings[2]
        for path, found in bucket.objects.items():
            yield (path, found[0]), (path, found)
        for name, upload in bucket.uploads.items():
            key = name, upload.path, upload.data
            yield key, key

    def put_together(self, pieces: Iterable[Any]) -> None:
        objects, uploads = self._bucket.objects, self._bucket.uploads
        objects.clear()
        uploads.clear()
        for piece in pieces:
            if len(piece) == 2:
                objects[piece[0]] = piece[1]
            else:
                uploads[piece[0]] = Upload(piece[1], piece[2])


def _version(data: bytes) -> int:
    return int.from_bytes(hashlib.sha256(data).digest()[:6], "big")


class Tables:
    """All states of one table, by number."""

    def __init__(self, store: Disk | S3) -> None:
        self._store = store
        self.auditor = Auditor(store.storage, store.read)
        self._pieces: dict[Hashable, int] = {}
        self._whole: list[Any] = []
        self._parts: list[Hashable] = []
        self._commits: dict[int, tuple[bytes, Commit]] = {}
        self._known: dict[Hashable, int] = {}
        self._knowledge: list[Knowledge] = []
        self._numbers: dict[tuple[int, tuple[int, ...]], int] = {}
        self._states: list[tuple[int, tuple[int, ...]]] = []
        self._now = -1

    @property
    def storage(self) -> AnyStorage:
        return self._store.storage

    def __len__(self) -> int:
        return len(self._states)

    def take(self) -> int:
        """The number of the state that the table is in."""
        key = self._knowledge_number(), tuple(sorted(map(self._piece, self._store.pieces())))
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._states)
            self._states.append(key)
        self._now = number
        return number

    def _piece(self, piece: Piece) -> int:
        number = self._pieces.get(piece[0])
        if number is None:
            number = self._pieces[piece[0]] = len(self._whole)
            self._whole.append(piece[1])
            self._parts.append(piece[0])
        return number

    def _knowledge_number(self) -> int:
        knowledge = self.auditor.knows()
        decided, deciders, completed, sets = knowledge
        key = (
            tuple(sorted((instant, self._rendered(commit)) for instant, commit in decided.items())),
            tuple(sorted(deciders.items())),
            tuple(sorted(completed.items())),
            sets,
        )
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = len(self._knowledge)
            self._knowledge.append(knowledge)
        return number

    def _rendered(self, commit: Commit) -> bytes:
        found = self._commits.get(id(commit))
        if found is None:
            # With the commit itself, so that no other one gets its id.
            found = self._commits[id(commit)] = decision.render(commit, "0"), commit
        return found[0]

    def content(self, number: int) -> frozenset[Hashable]:
        """What lies in the store in a state."""
        return frozenset(self._parts[place] for place in self._states[number][1])

    def be(self, number: int) -> None:
        """Bring the table into a state."""
        if number != self._now:
            knowledge, pieces = self._states[number]
            self._store.put_together(map(self._whole.__getitem__, pieces))
            self.auditor.remember(self._knowledge[knowledge])
            self._now = number

    def done(self, number: int, effect: Callable[[], Any], *, changes: bool) -> tuple[int, Any]:
        """What a call leads to, and what it answers.

        Raises
        ------
        Violation
            The table is not as it must be then.
        """
        self.be(number)
        if not changes:
            return number, tried(effect)
        self._now = -1
        answer = tried(effect)
        self.auditor.look()
        return self.take(), answer
