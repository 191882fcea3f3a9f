"""Large objects on S3: a file to read parts of, and a file that is staged as a multipart upload."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from typing import Any

from sparkrobust.core import strict_json
from sparkrobust.core.fields import is_text
from sparkrobust.errors import CorruptTableError, InvalidInputError, RobustWriteError
from sparkrobust.storage.contract import ChangedError, StagedFile, StagedWriter, checked
from sparkrobust.storage.ranged import TAIL, RangedFile
from sparkrobust.storage.s3_requests import Refused, Requests
from sparkrobust.world import Ids

PART_SIZE = 8 << 20
_MOST_PARTS = 10_000
_TOKEN_FORMAT = 1
_TOKEN_LIMIT = 2 << 20

MARK = "sparkrobust"
"""Metadata key of a random word in each object of ours: it tells our own object from another's."""


# -- reading ------------------------------------------------------------------------------------


class S3File(RangedFile):
    """Ranged GETs, all of one version of the object; the first one brings its end, and with it the size."""

    def __init__(self, requests: Requests, path: str, key: str) -> None:
        self._requests, self._path, self._key = requests, path, key
        self._version = ""
        try:
            answer = requests.repeated("get_object", path, Key=key, Range=f"bytes=-{TAIL}")
        except Refused as refused:
            if refused.status != 416:
                raise requests.error_of(refused, "read", path) from None
            super().__init__(0, b"")  # only an empty object has no last bytes
            return
        self._version = answer["ETag"]
        size = str(answer.get("ContentRange", "")).rpartition("/")[2] or answer["ContentLength"]
        super().__init__(int(size), answer["Data"])

    def _range(self, start: int, length: int) -> bytes:
        wanted = f"bytes={start}-{start + length - 1}"
        try:
            answer = self._requests.repeated(
                "get_object", self._path, Key=self._key, Range=wanted, IfMatch=self._version
            )
        except Refused as refused:
            if refused.is_precondition:
                raise ChangedError(
                    f"{self._requests.shown(self._path)} was replaced while it was read", path=self._path
                ) from None
            raise self._requests.error_of(refused, "read", self._path) from None
        data: bytes = answer["Data"]
        if len(data) != length:
            raise CorruptTableError(
                f"{self._requests.shown(self._path)}: {len(data)} bytes came for {wanted}", path=self._path
            )
        return data


# -- staging ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Upload:
    """An upload that is not completed, as its token tells it."""

    path: str
    upload_id: str
    mark: str
    parts: tuple[tuple[int, str], ...] = ()
    """Numbers and ETags; known once the upload has all its parts."""

    def to_token(self) -> str:
        return json.dumps(
            {
                "format": _TOKEN_FORMAT,
                "path": self.path,
                "upload": self.upload_id,
                "mark": self.mark,
                "parts": [list(part) for part in self.parts],
            },
            separators=(",", ":"),
        )

    @classmethod
    def of_token(cls, token: str) -> Upload:
        """Read a token, which may come from a file that anybody wrote."""
        try:
            if len(token) > _TOKEN_LIMIT:
                raise ValueError("it is too long")
            value = strict_json.loads(token)
            if value["format"] != _TOKEN_FORMAT:
                raise ValueError(f"its format is {strict_json.shown(value['format'])}")
            texts = [value["path"], value["upload"], value["mark"], *(tag for _, tag in value["parts"])]
            numbers = [number for number, _ in value["parts"]]
            if not all(text and is_text(text) for text in texts):
                raise ValueError("a text is missing")
            if numbers != list(range(1, len(numbers) + 1)) or any(type(one) is not int for one in numbers):
                raise ValueError("the parts are not numbered from 1 on")
            return cls(
                path=checked(value["path"]),
                upload_id=value["upload"],
                mark=value["mark"],
                parts=tuple((number, tag) for number, tag in value["parts"]),
            )
        except (ValueError, KeyError, TypeError, RobustWriteError) as error:
            raise CorruptTableError(f"not the token of a staged file: {str(error)[:200]}") from error


class S3StagedWriter(StagedWriter):
    """Uploads part after part; holds one in memory."""

    def __init__(self, requests: Requests, path: str, key: str) -> None:
        self._settled = True
        self._requests, self._path, self._key = requests, path, key
        self._buffer = bytearray()
        self._size = 0
        self._parts: list[tuple[int, str]] = []
        self._mark = Ids().nonce()
        try:
            # A lost answer leaves an upload nobody knows: it costs space until the bucket's rules end it.
            answer = requests.repeated("create_multipart_upload", path, Key=key, Metadata={MARK: self._mark})
        except Refused as refused:
            raise requests.error_of(refused, "stage", path) from None
        self._upload_id: str = answer["UploadId"]
        # A forked child has a copy of this object, and must not abort the parent's upload with it.
        self._process = os.getpid()
        self._settled = False

    @property
    def token(self) -> str:
        return Upload(path=self._path, upload_id=self._upload_id, mark=self._mark).to_token()

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Nothing: a part is uploaded when it is full."""

    def write(self, data: Any, /) -> int:
        if self._settled:
            raise ValueError("the staged file is finished or discarded")
        with memoryview(data) as view, view.cast("B") as taken:
            done = 0
            while done < len(taken):
                piece = taken[done : done + PART_SIZE - len(self._buffer)]
                self._buffer += piece
                done += len(piece)
                if len(self._buffer) == PART_SIZE:
                    self._upload_buffer()
            self._size += done
            return done

    def _upload_buffer(self) -> None:
        number = len(self._parts) + 1
        if number > _MOST_PARTS:
            raise InvalidInputError(
                f"{self._path} is larger than {_MOST_PARTS} parts of {PART_SIZE} bytes", path=self._path
            )
        try:
            answer = self._requests.repeated(
                "upload_part",
                self._path,
                Key=self._key,
                UploadId=self._upload_id,
                PartNumber=number,
                Body=bytes(self._buffer),
            )
        except Refused as refused:
            raise self._requests.error_of(refused, "stage", self._path) from None
        self._parts.append((number, answer["ETag"]))
        self._buffer.clear()

    def finish(self) -> StagedFile:
        if self._settled:
            raise ValueError("the staged file is finished or discarded")
        if self._buffer or not self._parts:  # an upload needs a part, if an empty one
            self._upload_buffer()
        self._settled = True
        upload = Upload(path=self._path, upload_id=self._upload_id, mark=self._mark, parts=tuple(self._parts))
        return StagedFile(final_path=self._path, token=upload.to_token(), size=self._size)

    def discard(self) -> None:
        if self._settled:
            return
        self._settled = True
        self._buffer.clear()
        if self._process == os.getpid():
            abort(self._requests, self._path, self._key, self._upload_id)

    def close(self) -> None:
        # Something else went wrong, or nobody cares any more: a sweep will find what is left.
        with contextlib.suppress(RobustWriteError):
            self.discard()
        super().close()


def abort(requests: Requests, path: str, key: str, upload_id: str) -> None:
    """Throw away an upload; one that is gone or completed is left alone."""
    try:
        requests.repeated("abort_multipart_upload", path, Key=key, UploadId=upload_id)
    except Refused as refused:
        if not refused.is_missing:
            raise requests.error_of(refused, "discard", path) from None
