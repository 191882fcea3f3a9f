"""A table on a store of objects whose client shows no upload ids: Azure, through obstore.

Theory of operation
-------------------
*Staging* is an object of its own below the write's control folder.  *Publishing* is a copy within
the store, on condition that the name is free; then the source is deleted.  What that means for those
who sleep in between, and how the commit file is published all the same once and never again, is told
in :mod:`sparkrobust.storage.turns`.

*Conditional writes* are ``PUT`` with ``If-None-Match: *`` or ``If-Match``.  Every object of ours
carries a mark in its metadata: a random one, or, where it was staged, one made from the name that it
was staged under, which a copy keeps.  So it can be told whose an object is when an answer was lost.

There are no folders: making one does nothing, and none is ever missing.  Those that other tools make
of empty objects are not seen.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sparkrobust.errors import InternalError, InvalidInputError, RobustWriteError, UnavailableError
from sparkrobust.storage.azure_settings import AzurePlace, AzureSettings, client_of, obstore_module
from sparkrobust.storage.contract import (
    AlreadyExistsError,
    ChangedError,
    Ended,
    FileInfo,
    NotFoundError,
    StagedFile,
    StagedWriter,
    check_size,
    checked,
    enclosing,
)
from sparkrobust.storage.object_requests import DEFAULT_PATIENCE, Refused, Requests, Unclear
from sparkrobust.storage.parallel import all_at_once
from sparkrobust.storage.patience import Patience
from sparkrobust.storage.ranged import TAIL, RangedFile
from sparkrobust.storage.turns import CopyingStorage
from sparkrobust.world import Ids

MARK = "sparkrobust"
"""Metadata key of a word in each object of ours: it tells our own object from another's."""
PART_SIZE = 8 << 20
_PARTS_AT_ONCE = 2
_DELETE_ROUNDS = 100
_IDS = Ids()


class ObjectStorage(CopyingStorage):
    """A table's root in a container.

    Parameters
    ----------
    url
        ``abfss://container@account.dfs.core.windows.net/path``, or ``wasbs`` likewise.
    options
        Hadoop's ``fs.azure.*`` keys; what they leave open comes from the environment and the platform.
    patience
        How often a request without a clear answer is sent.
    """

    def __init__(
        self, url: str, options: Mapping[str, str] | None = None, *, patience: Patience = DEFAULT_PATIENCE
    ) -> None:
        place = AzurePlace.of(url)
        self._url, self._root = place.url, place.root
        self._requests = Requests(AzureSettings.of(options or {}, place), place.container, patience)
        self._ids = _IDS

    def __repr__(self) -> str:
        return f"ObjectStorage({self._url!r})"

    @property
    def url(self) -> str:
        return self._url

    # -- reading -------------------------------------------------------------------------------

    def read(self, path: str, *, at_most: int | None = None) -> bytes:
        return self.read_versioned(path, at_most=at_most)[0]

    def read_versioned(self, path: str, *, at_most: int | None = None) -> tuple[bytes, str]:
        def ask(obstore: Any, client: Any) -> tuple[bytes, str]:
            answer = obstore.get(client, key)
            check_size(path, answer.meta["size"], at_most)
            return bytes(answer.bytes()), str(answer.meta["e_tag"])

        key = self._key(path)
        return self._requests.answered("read", path, ask)

    def open(self, path: str) -> ObjectFile:
        return ObjectFile(self._requests, path, self._key(path))

    def stat(self, path: str) -> FileInfo | None:
        found = self._head(path) if checked(path) else None
        return None if found is None else self._info(found[0])

    def _head(self, path: str) -> tuple[Any, dict[str, str]] | None:
        """What the store knows of an object, and its metadata; ``None`` where there is none."""

        def ask(obstore: Any, client: Any) -> tuple[Any, dict[str, str]]:
            answer = obstore.get(client, key, options={"head": True})
            return answer.meta, answer.attributes

        key = self._key(path)
        try:
            return self._requests.repeated("look at", path, ask)
        except Refused as refused:
            if refused.is_missing and refused.code != "ContainerNotFound":
                return None
            raise self._requests.error_of(refused, "look at", path) from None

    def list(self, folder: str) -> tuple[list[FileInfo], list[str]]:
        def ask(obstore: Any, client: Any) -> Any:
            return obstore.list_with_delimiter(client, prefix=prefix)

        prefix = self._prefix(folder)
        found = self._requests.answered("list", folder, ask)
        folders = sorted(self._path(one) for one in found["common_prefixes"])
        files = (self._info(one) for one in found["objects"])
        made_of_nothing = set(folders)
        return (
            sorted(
                (one for one in files if one.size or one.path not in made_of_nothing), key=lambda o: o.path
            ),
            folders,
        )

    def walk(self, folder: str) -> Iterator[FileInfo]:
        def ask(obstore: Any, client: Any) -> list[Any]:
            return [one for page in obstore.list(client, prefix=prefix) for one in page]

        prefix = self._prefix(folder)
        found = [self._info(one) for one in self._requests.answered("list", folder, ask)]
        folders = {parent for one in found for parent in _parents(one.path)}
        yield from (one for one in found if one.size or one.path not in folders)

    def _info(self, found: Any) -> FileInfo:
        modified = int(found["last_modified"].timestamp() * 1000)
        return FileInfo(path=self._path(found["path"]), size=found["size"], modified_ms=modified)

    # -- writing -------------------------------------------------------------------------------

    def put_if_absent(self, path: str, data: bytes) -> None:
        try:
            self._put_on_condition(path, data, "create", "create")
        except Refused as refused:
            if refused.is_taken:
                raise self._taken(path) from None
            raise self._requests.error_of(refused, "create", path) from None

    def put(self, path: str, data: bytes) -> None:
        def ask(obstore: Any, client: Any) -> None:
            obstore.put(client, key, data, attributes={MARK: _IDS.nonce()}, use_multipart=False)

        key = self._key(path)
        self._requests.answered("write", path, ask)

    def replace_if_unchanged(self, path: str, data: bytes, version: str) -> str:
        try:
            return self._put_on_condition(path, data, "replace", {"e_tag": version})
        except Refused as refused:
            if not refused.is_taken:
                raise self._requests.error_of(refused, "replace", path) from None
        # The store says the same where there is nothing to replace.
        shown = self._requests.shown(path)
        if self.stat(path) is not None:
            raise ChangedError(f"{shown} was changed by somebody else", path=path)
        raise NotFoundError(f"there is no {shown}", path=path)

    def _put_on_condition(self, path: str, data: bytes, action: str, mode: Any) -> str:
        """Put, and find out whether it was us if an answer gets lost; the object's version."""

        def ask(obstore: Any, client: Any) -> str:
            answer = obstore.put(client, key, data, mode=mode, attributes={MARK: mark}, use_multipart=False)
            return str(answer["e_tag"])

        key, mark = self._key(path), _IDS.nonce()
        unclear: Unclear | None = None
        for _ in self._requests.patience.attempts():
            try:
                return self._requests.once(ask)
            except Unclear as error:
                unclear = error
            except Refused:
                if unclear is None:
                    raise
                break
        found = self._head(path)
        if found is not None:
            meta, attributes = found
            theirs = attributes.get(MARK)
            if theirs == mark:
                return str(meta["e_tag"])
            # A replacement of ours may have been replaced in turn; without a mark it may be ours.
            if action == "create" and theirs is not None:
                raise Refused(409, "BlobAlreadyExists")
        raise self._requests.unavailable(action, path, unclear)

    def _taken(self, path: str) -> AlreadyExistsError:
        return AlreadyExistsError(f"there is already {self._requests.shown(path)}", path=path)

    def delete(self, path: str) -> None:
        self._delete(path, self._key(path))

    def delete_all(self, paths: Iterable[str]) -> None:
        keys = [self._key(path) for path in paths]
        if keys:
            self._delete("", keys)

    def delete_tree(self, folder: str) -> None:
        def ask(obstore: Any, client: Any) -> list[str]:
            return [one["path"] for page in obstore.list(client, prefix=prefix) for one in page]

        prefix = self._prefix(folder)
        # Again until a listing is empty, since a page may be the last before somebody's late write.
        for _ in range(_DELETE_ROUNDS):
            found = self._requests.answered("list", folder, ask)
            if not found:
                return
            self._delete(folder, found)
        raise UnavailableError(f"objects keep appearing under {self._requests.shown(folder)}", path=folder)

    def _delete(self, path: str, keys: str | Sequence[str]) -> None:
        try:
            self._requests.repeated("delete", path, lambda obstore, client: obstore.delete(client, keys))
        except Refused as refused:
            if not refused.is_missing or refused.code == "ContainerNotFound":
                raise self._requests.error_of(refused, "delete", path) from None

    # -- staging -------------------------------------------------------------------------------

    def make_staging(self, folder: str) -> None:
        checked(folder)

    def make_folder(self, folder: str, *, under: str = "") -> None:
        enclosing(folder, under)

    def stage(self, folder: str, name: str, final_path: str) -> StagedWriter:
        token = checked(f"{folder}/{name}" if folder else name)
        self._key(final_path)
        return _ObjectWriter(self, self._requests, token, self._key(token), final_path)

    def seal(self, folder: str, sealed: str) -> None:
        checked(folder), checked(sealed)

    def copy_if_absent(self, source: str, target: str) -> None:
        def ask(obstore: Any, client: Any) -> None:
            obstore.copy(client, from_key, to_key, overwrite=False)

        from_key, to_key = self._key(source), self._key(target)
        try:
            self._requests.once(ask)
        except Unclear as unclear:
            raise self._requests.unavailable("copy", source, unclear) from None
        except Refused as refused:
            if refused.is_taken:
                raise self._taken(target) from None
            raise self._requests.error_of(refused, "copy", source) from None

    def require_published(self, staged: StagedFile) -> None:
        for _ in self._requests.patience.attempts():
            found = self._head(staged.final_path)
            if found is None:
                raise NotFoundError(
                    f"neither {self._requests.shown(staged.token)} nor {staged.final_path} is there",
                    path=staged.final_path,
                )
            meta, attributes = found
            mark = attributes.get(MARK)
            if meta["size"] == staged.size and mark in (None, mark_of(staged.token)):
                return
            if mark != mark_of(staged.token):
                raise self._taken(staged.final_path)
        # The store may take its time to copy, and shows the object before it is whole.
        raise UnavailableError(f"{staged.final_path} is not copied yet", path=staged.final_path)

    def publish(self, staged: StagedFile) -> None:
        self._patiently(lambda _: super(ObjectStorage, self).publish(staged))

    def publish_all(self, staged: Iterable[StagedFile]) -> None:
        all_at_once(self.publish, staged)

    def publish_last(
        self, staged: StagedFile, look: Callable[[], Ended | None], *, alone: bool = False
    ) -> Ended | None:
        result: list[Ended | None] = []

        def attempt(number: int) -> None:
            first = alone and number == 1
            result.append(super(ObjectStorage, self).publish_last(staged, look, alone=first))

        self._patiently(attempt)
        return result[-1]

    def _patiently(self, attempt: Callable[[int], None]) -> None:
        """Again, where it was not clear what came of it."""
        unclear: UnavailableError | None = None
        for number in self._requests.patience.attempts():
            try:
                return attempt(number)
            except UnavailableError as error:
                unclear = error
        assert unclear is not None
        raise unclear

    # -- helpers -------------------------------------------------------------------------------

    def _key(self, path: str) -> str:
        if not checked(path):
            raise InternalError("the root is no object")
        if "\\" in path:
            raise InvalidInputError(f"a name on this store can't hold a backslash: {path!r}", path=path)
        return f"{self._root}/{path}" if self._root else path

    def _prefix(self, folder: str) -> str | None:
        return "/".join(part for part in (self._root, checked(folder)) if part) or None

    def _path(self, key: str) -> str:
        return key[len(self._root) + 1 :] if self._root else key


def mark_of(token: str) -> str:
    """The mark of what was staged under this name, which nothing else has."""
    return hashlib.sha256(token.encode()).hexdigest()[:16]


def _parents(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


class ObjectFile(RangedFile):
    """Requests for ranges, all of one version of the object."""

    def __init__(self, requests: Requests, path: str, key: str) -> None:
        self._requests, self._path, self._key = requests, path, key
        meta = requests.answered("read", path, lambda obstore, client: obstore.head(client, key))
        size, self._version = meta["size"], meta["e_tag"]
        tail = min(size, TAIL)
        super().__init__(size, self._range(size - tail, tail) if tail else b"")

    def _range(self, start: int, length: int) -> bytes:
        def ask(obstore: Any, client: Any) -> bytes:
            wanted = {"range": (start, start + length), "if_match": self._version}
            return bytes(obstore.get(client, self._key, options=wanted).bytes())

        try:
            return self._requests.repeated("read", self._path, ask)
        except Refused as refused:
            if refused.is_taken:
                raise ChangedError(
                    f"{self._requests.shown(self._path)} was replaced while it was read", path=self._path
                ) from None
            raise self._requests.error_of(refused, "read", self._path) from None


class _ObjectWriter(StagedWriter):
    """Blocks are sent as they fill, and become an object only when it is finished."""

    def __init__(
        self, storage: ObjectStorage, requests: Requests, token: str, key: str, final_path: str
    ) -> None:
        self._storage, self._requests = storage, requests
        self._token, self._final_path = token, final_path
        self._size = 0
        self._settled = False
        # A forked child has a copy of this object, and must not delete the parent's with it.
        self._process = os.getpid()
        # Blocks may arrive several times, so the client may repeat them.
        client = client_of(requests.settings, requests.container, retries=requests.patience.tries - 1)
        self._sink: Any = obstore_module().open_writer(
            client,
            key,
            attributes={MARK: mark_of(token)},
            buffer_size=PART_SIZE,
            max_concurrency=_PARTS_AT_ONCE,
        )

    @property
    def token(self) -> str:
        return self._token

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Nothing: a block is sent when it is full."""

    def write(self, data: Any, /) -> int:
        if self._settled:
            raise ValueError("the staged file is finished or discarded")
        with memoryview(data) as view, view.cast("B") as taken:
            self._send(lambda: self._sink.write(bytes(taken)))
            self._size += len(taken)
            return len(taken)

    def _send(self, action: Callable[[], object]) -> None:
        try:
            self._requests.once(lambda obstore, client: action())
        except Unclear as unclear:
            raise self._requests.unavailable("stage", self._final_path, unclear) from None
        except Refused as refused:
            raise self._requests.error_of(refused, "stage", self._final_path) from None

    def finish(self) -> StagedFile:
        if self._settled:
            raise ValueError("the staged file is finished or discarded")
        self._send(lambda: self._sink.close())
        self._settled, self._sink = True, None
        return StagedFile(final_path=self._final_path, token=self._token, size=self._size)

    def discard(self) -> None:
        if self._settled:
            return
        # What was sent so far is no object; if finishing it has failed, it may be one.
        self._settled, self._sink = True, None
        if self._process == os.getpid():
            self._storage.discard(self._token)

    def close(self) -> None:
        # Something else went wrong, or nobody cares any more: a sweep will find what is left.
        with contextlib.suppress(RobustWriteError):
            self.discard()
        super().close()
