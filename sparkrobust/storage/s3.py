"""A table on S3 or a store that speaks its protocol.

Theory of operation
-------------------
*Staging* is a multipart upload that is not completed: its bytes are durable and in no listing.
*Publishing* completes it, on condition that the name is free, and so consumes it.  Whatever the
store answers, we then look at the object: some stores (versitygw) say that an upload that is long
gone was completed, as long as any object has the name; and an upload that is gone may be one whose
completion is still on its way, so a missing object is looked for again for a while.  Of many files,
which have names that nobody else gives, only those are looked at whose completion was not plainly
said to be done.

*Conditional writes* are ``PUT`` with ``If-None-Match: *`` or ``If-Match``.  Every object of ours
carries a random mark in its metadata.  When a condition fails after a try whose answer was lost,
the mark tells whether that try was the one that won.

There are no folders: making one does nothing, and none is ever missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sparkrobust.errors import CorruptTableError, InternalError, InvalidInputError, UnavailableError
from sparkrobust.storage.contract import (
    AlreadyExistsError,
    ChangedError,
    FileInfo,
    NotFoundError,
    StagedFile,
    StagedWriter,
    Staging,
    Storage,
    check_size,
    checked,
    enclosing,
)
from sparkrobust.storage.parallel import all_at_once
from sparkrobust.storage.patience import Patience
from sparkrobust.storage.s3_files import MARK, S3File, S3StagedWriter, Upload, abort
from sparkrobust.storage.s3_requests import DEFAULT_PATIENCE, Refused, Requests, Unclear
from sparkrobust.storage.s3_settings import S3Settings
from sparkrobust.world import Ids

_SCHEMES = ("s3", "s3a")
_PAGE = 1000
_DELETE_ROUNDS = 100
_MOST_IN_A_BATCH = 1000
_CONFLICT = 409
"""So many objects S3 deletes in one request."""
_IDS = Ids()
_SETTLING = Patience(tries=8, first_pause=0.1, longest_pause=3.0)


class S3Storage(Storage):
    """A table's root in a bucket.

    Parameters
    ----------
    url
        ``s3://bucket/path`` or ``s3a://bucket/path``.
    options
        Hadoop's ``fs.s3a.*`` keys; what they leave open comes from the environment and the platform.
    patience
        How often a request without a clear answer is sent.
    settling
        How long a publish looks for an object whose upload is gone.
    """

    def __init__(
        self,
        url: str,
        options: Mapping[str, str] | None = None,
        *,
        patience: Patience = DEFAULT_PATIENCE,
        settling: Patience = _SETTLING,
    ) -> None:
        scheme, bucket, self._root = _parsed(url)
        self._url = f"{scheme}://{bucket}/{self._root}".rstrip("/")
        self._settling = settling
        self._requests = Requests(S3Settings.of(options or {}, bucket), bucket, patience)

    def __repr__(self) -> str:
        return f"S3Storage({self._url!r})"

    def __getstate__(self) -> dict[str, Any]:
        requests = self._requests
        portable = Requests(requests.settings.portable(), requests.bucket, requests.patience)
        return {**self.__dict__, "_requests": portable}

    @property
    def url(self) -> str:
        return self._url

    @property
    def staging(self) -> Staging:
        return Staging.MULTIPART

    # -- reading -------------------------------------------------------------------------------

    def read(self, path: str, *, at_most: int | None = None) -> bytes:
        return self.read_versioned(path, at_most=at_most)[0]

    def read_versioned(self, path: str, *, at_most: int | None = None) -> tuple[bytes, str]:
        try:
            answer = self._requests.repeated(
                "get_object", path, Key=self._key(path), check=lambda size: check_size(path, size, at_most)
            )
        except Refused as refused:
            raise self._requests.error_of(refused, "read", path) from None
        return answer["Data"], answer["ETag"]

    def open(self, path: str) -> S3File:
        return S3File(self._requests, path, self._key(path))

    def stat(self, path: str) -> FileInfo | None:
        if not checked(path):
            return None
        found = self._requests.head(path, self._key(path))
        if found is None:
            return None
        return FileInfo(path=path, size=found["ContentLength"], modified_ms=_ms(found["LastModified"]))

    def list(self, folder: str) -> tuple[list[FileInfo], list[str]]:
        files: list[FileInfo] = []
        folders: list[str] = []
        for page in self._pages(folder, Delimiter="/"):
            files.extend(self._infos(page))
            found = (self._path(entry["Prefix"][:-1]) for entry in page.get("CommonPrefixes", []))
            folders.extend(path for path in found if path and not path.endswith("/"))
        return sorted(files, key=lambda info: info.path), sorted(folders)

    def walk(self, folder: str) -> Iterator[FileInfo]:
        for page in self._pages(folder):
            yield from self._infos(page)

    def _pages(self, folder: str, **parameters: str) -> Iterator[dict[str, Any]]:
        prefix = self._folder_key(folder)
        more: dict[str, str] = {}
        while True:
            try:
                page = self._requests.repeated(
                    "list_objects_v2", folder, Prefix=prefix, MaxKeys=_PAGE, **parameters, **more
                )
            except Refused as refused:
                raise self._requests.error_of(refused, "list", folder) from None
            yield page
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def _infos(self, page: dict[str, Any]) -> Iterator[FileInfo]:
        for found in page.get("Contents", []):
            # Other tools mark folders by empty objects whose names end so.
            if not found["Key"].endswith("/"):
                path = self._path(found["Key"])
                yield FileInfo(path=path, size=found["Size"], modified_ms=_ms(found["LastModified"]))

    # -- writing -------------------------------------------------------------------------------

    def put_if_absent(self, path: str, data: bytes) -> None:
        try:
            self._put_on_condition(path, data, "create", IfNoneMatch="*")
        except Refused as refused:
            if refused.is_precondition:
                raise AlreadyExistsError(
                    f"there is already {self._requests.shown(path)}", path=path
                ) from None
            raise self._requests.error_of(refused, "create", path) from None

    def put(self, path: str, data: bytes) -> None:
        key, metadata = self._key(path), {MARK: _IDS.nonce()}
        try:
            self._requests.repeated("put_object", path, Key=key, Body=data, Metadata=metadata)
        except Refused as refused:
            raise self._requests.error_of(refused, "write", path) from None

    def replace_if_unchanged(self, path: str, data: bytes, version: str) -> str:
        try:
            return self._put_on_condition(path, data, "replace", IfMatch=version)
        except Refused as refused:
            # Stores differ in what they say where there is nothing to replace.
            if refused.is_precondition and self.stat(path) is not None:
                raise ChangedError(
                    f"{self._requests.shown(path)} was changed by somebody else", path=path
                ) from None
            if refused.is_precondition:
                raise NotFoundError(f"there is no {self._requests.shown(path)}", path=path) from None
            raise self._requests.error_of(refused, "replace", path) from None

    def _put_on_condition(self, path: str, data: bytes, action: str, **condition: Any) -> str:
        """Put, and find out whether it was us if an answer gets lost; the object's version."""
        key, mark = self._key(path), _IDS.nonce()
        unclear: Unclear | None = None
        for _ in self._requests.patience.attempts():
            try:
                answer = self._requests.once(
                    "put_object", Key=key, Body=data, Metadata={MARK: mark}, **condition
                )
                return str(answer["ETag"])
            except Unclear as error:
                unclear = error
            except Refused:
                if unclear is None:
                    raise
                break
        return self._settle_put(path, data, action, mark, unclear)

    def _settle_put(self, path: str, data: bytes, action: str, mark: str, unclear: Unclear | None) -> str:
        """Look who has the name, after a put whose answer got lost."""
        found = self._requests.head(path, self._key(path))
        if found is not None:
            theirs = found.get("Metadata", {}).get(MARK)
            if theirs == mark:
                return str(found["ETag"])
            # A replacement of ours may have been replaced in turn, and without a mark equal bytes
            # may be ours: then nobody can tell.
            could_be_ours = action == "replace" or (theirs is None and found["ContentLength"] == len(data))
            if not could_be_ours:
                raise Refused(412, "PreconditionFailed", "another object has the name")
        raise self._requests.unavailable(action, path, unclear)

    def delete(self, path: str) -> None:
        try:
            self._requests.repeated("delete_object", path, Key=self._key(path))
        except Refused as refused:
            if not refused.is_missing or refused.code == "NoSuchBucket":
                raise self._requests.error_of(refused, "delete", path) from None

    def delete_mark(self, folder: str) -> None:
        try:
            self._requests.repeated("delete_object", folder, Key=f"{self._key(folder)}/")
        except Refused as refused:
            # A gateway to a disk keeps a folder that is not empty.
            if not refused.is_missing and refused.status != _CONFLICT:
                raise self._requests.error_of(refused, "delete", folder) from None

    def delete_all(self, paths: Iterable[str]) -> None:
        keys = [self._key(path) for path in paths]
        for first in range(0, len(keys), _MOST_IN_A_BATCH):
            self._delete_batch("", keys[first : first + _MOST_IN_A_BATCH])

    def delete_tree(self, folder: str) -> None:
        # Again until a listing is empty, since a page may be the last before somebody's late write.
        for _ in range(_DELETE_ROUNDS):
            batches = [[entry["Key"] for entry in page.get("Contents", [])] for page in self._pages(folder)]
            if not any(batches):
                return
            for keys in filter(None, batches):
                self._delete_batch(folder, keys)
        raise UnavailableError(f"objects keep appearing under {self._requests.shown(folder)}", path=folder)

    def _delete_batch(self, folder: str, keys: Iterable[str]) -> None:
        batch = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
        try:
            answer = self._requests.repeated("delete_objects", folder, Delete=batch)
        except Refused as refused:
            raise self._requests.error_of(refused, "delete", folder) from None
        for error in answer.get("Errors", []):
            inner = Refused(403, str(error.get("Code")), str(error.get("Message")))
            raise self._requests.error_of(inner, "delete", self._path(error.get("Key", "")))

    # -- staging -------------------------------------------------------------------------------

    def make_staging(self, folder: str) -> None:
        checked(folder)

    def make_folder(self, folder: str, *, under: str = "") -> None:
        enclosing(folder, under)

    def stage(self, folder: str, name: str, final_path: str) -> StagedWriter:
        checked(f"{folder}/{name}" if folder else name)
        return S3StagedWriter(self._requests, final_path, self._key(final_path))

    def seal(self, folder: str, sealed: str) -> None:
        checked(folder), checked(sealed)

    def publish(self, staged: StagedFile) -> None:
        self._publish(staged, looks=True)

    def _publish(self, staged: StagedFile, *, looks: bool) -> None:
        upload = Upload.of_token(staged.token)
        if upload.path != staged.final_path or not upload.parts:
            raise CorruptTableError(
                f"the token of {staged.final_path} is for another file, or for one that is not finished",
                path=staged.final_path,
            )
        done, unclear = self._complete(upload)
        if done and not looks:
            return
        for _ in self._settling.attempts():
            found = self._requests.head(upload.path, self._key(upload.path))
            if found is not None:
                break
            if unclear is not None:
                raise self._requests.unavailable("publish", upload.path, unclear)
        else:
            raise NotFoundError(
                f"neither the upload of {self._requests.shown(upload.path)} nor the object is there",
                path=upload.path,
            )
        mark = found.get("Metadata", {}).get(MARK, upload.mark)
        if mark != upload.mark or found["ContentLength"] != staged.size:
            raise AlreadyExistsError(
                f"another object has the name of {self._requests.shown(upload.path)}", path=upload.path
            )

    def _complete(self, upload: Upload) -> tuple[bool, Unclear | None]:
        """Ask for the completion: whether it was said at once to be done, and what was never answered."""
        parts = [{"PartNumber": number, "ETag": tag} for number, tag in upload.parts]
        unclear: Unclear | None = None
        for _ in self._requests.patience.attempts():
            try:
                self._requests.once(
                    "complete_multipart_upload",
                    Key=self._key(upload.path),
                    UploadId=upload.upload_id,
                    MultipartUpload={"Parts": parts},
                    IfNoneMatch="*",
                )
                return unclear is None, None
            except Unclear as error:
                unclear = error
            except Refused as refused:
                if refused.is_precondition or refused.code == "NoSuchUpload":
                    return False, None
                raise self._requests.error_of(refused, "publish", upload.path) from None
        return False, unclear

    def publish_all(self, staged: Iterable[StagedFile]) -> None:
        # They have names that nobody else has: who says that one was completed is believed.
        all_at_once(lambda one: self._publish(one, looks=False), staged)

    def discard(self, token: str) -> None:
        upload = Upload.of_token(token)
        abort(self._requests, upload.path, self._key(upload.path), upload.upload_id)

    # -- helpers -------------------------------------------------------------------------------

    def _key(self, path: str) -> str:
        if not checked(path):
            raise InternalError("the root is no object")
        return f"{self._root}/{path}" if self._root else path

    def _folder_key(self, folder: str) -> str:
        return "".join(f"{part}/" for part in (self._root, checked(folder)) if part)

    def _path(self, key: str) -> str:
        return key[len(self._root) + 1 :] if self._root else key


def _ms(when: Any) -> int:
    return int(when.timestamp() * 1000)


def _parsed(url: str) -> tuple[str, str, str]:
    scheme, separator, rest = url.partition("://")
    bucket, _, path = rest.partition("/")
    if scheme.lower() not in _SCHEMES or not separator or not bucket:
        raise InvalidInputError("not a URL of the form s3a://bucket/path")
    if "@" in bucket or ":" in bucket:
        # The URL is not repeated: it may hold a key.
        raise InvalidInputError(
            "a URL of a table must not hold credentials", hint="use fs.s3a.access.key and fs.s3a.secret.key"
        )
    root = "/".join(part for part in path.split("/") if part)
    checked(root)
    return scheme.lower(), bucket, root
