"""The form of every object in a write's control folder: one line that says what it is, then JSON.

The line names the kind, the version of the form, the nonce of the write and the SHA-256 of what
follows, so that an object that is torn, of another write or of another kind is never taken for what
it is not.  One of a newer version is left alone.
"""

from __future__ import annotations

import hashlib
import re
from enum import Enum
from typing import Any, NoReturn

from sparkrobust.core import strict_json
from sparkrobust.errors import CorruptTableError, InvalidInputError, UnsupportedTableError

VERSION = 1
MAX_BYTES = 256 << 20
"""A file takes about a kilobyte of it, and a part of an upload fifty bytes."""

_LINE = re.compile(rb"sparkrobust ([a-z]{1,16}) (\d{1,9}) ([0-9a-f]{1,64}) ([0-9a-f]{64})\n", re.ASCII)
_LONGEST_LINE = 256


class Kind(Enum):
    """What a control object is."""

    GATE = "gate"
    COMPLETION = "completion"
    FINALIZE = "finalize"
    DECISION = "decision"


def render(kind: Kind, nonce: str, body: object) -> bytes:
    """The object's bytes; ``InvalidInputError`` for a text that nobody could read again."""
    try:
        text = strict_json.dumps(body).encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"half of a surrogate pair in the options of a write: {error}") from error
    line = f"sparkrobust {kind.value} {VERSION} {nonce} {hashlib.sha256(text).hexdigest()}\n"
    return line.encode() + text


def is_of(data: bytes, kind: Kind) -> bool:
    """Whether an object says that it is of this kind, whatever else it says."""
    line = _LINE.match(data[:_LONGEST_LINE])
    return line is not None and line[1].decode() == kind.value


def parse(data: bytes, kind: Kind, *, nonce: str, path: str) -> dict[str, Any]:
    """The body of an object that must be of this kind and of this write.

    Raises
    ------
    CorruptTableError
        It is something else, or torn.
    UnsupportedTableError
        A newer version of sparkrobust wrote it.
    """
    if len(data) > MAX_BYTES:
        refuse(path, f"at most {MAX_BYTES} bytes", f"{len(data)}")
    line = _LINE.match(data[:_LONGEST_LINE])
    if line is None:
        refuse(path, "the first line of a control object", repr(data[:80]))
    found, version, whose, digest = (part.decode() for part in line.groups())
    if int(version) > VERSION:
        raise UnsupportedTableError(
            f"{path} was written by a newer version of sparkrobust (form {version}, not {VERSION})",
            path=path,
            hint="finish or roll back that write with the newer version",
        )
    if int(version) < 1:
        refuse(path, "a version from 1 on", version)
    if found != kind.value:
        refuse(path, f"a {kind.value}", f"a {found}")
    if whose != nonce:
        refuse(path, f"an object of the write {nonce}", f"one of {whose}")
    body = data[line.end() :]
    if hashlib.sha256(body).hexdigest() != digest:
        refuse(path, f"content with the SHA-256 {digest}", "other or torn content")
    try:
        plain = strict_json.loads(body)
    except ValueError as error:
        refuse(path, "JSON", str(error)[:100])
    if not isinstance(plain, dict):
        refuse(path, "a JSON object", type(plain).__name__)
    return plain


def refuse(path: str, expected: str, found: str) -> NoReturn:
    """``CorruptTableError`` for what is not what it must be."""
    raise CorruptTableError(f"{path}: expected {expected}, found {found}", path=path)
