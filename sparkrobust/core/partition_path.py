"""Partition paths: which are safe, how values are escaped, how a path is read back.

A partition value comes from the data, so from anybody.  Whatever it says, the path made of it
stays inside of the table and outside of ``.hoodie``: :func:`problem_with` decides, for every
distinct path of a write, before a file is opened.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sparkrobust.core.names import DEFAULT_PARTITION, HOODIE

ESCAPED = "".join(chr(c) for c in range(1, 0x20)) + "\"#%'*/:=?\\\x7f{[]^"
"""The characters that Hudi writes as ``%XX`` when partition paths are URL-encoded."""

_CONTROL = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
_LONGEST_NAME = 255  # bytes of one path part: the limit of common file systems


def problem_with(path: str) -> str | None:
    """Why a partition path must be refused; ``None`` for a safe one (``""`` is the unpartitioned table)."""
    if not path:
        return None
    if "\0" in path:
        return "it contains a NUL"
    if path.startswith("/"):
        return "it is absolute"
    parts = path.split("/")
    if parts[0] == HOODIE:
        return f"{HOODIE} belongs to the table itself"
    for part in parts:
        if part in ("", ".", ".."):
            return f"it has the part {part!r}"
        if len(part.encode("utf-8", "surrogatepass")) > _LONGEST_NAME:
            return f"a part is longer than {_LONGEST_NAME} bytes"
        if ":" in part:
            return "it contains a colon, which Hadoop's file systems can't read"
        if _CONTROL.search(part):
            return "it contains a control character"
    return None


def escape(value: str) -> str:
    """One value as Hudi URL-encodes it."""
    return "".join(f"%{ord(c):02X}" if c in ESCAPED else c for c in value)


def unescape(text: str) -> str:
    """The value that :func:`escape` was given."""
    out, i = [], 0
    while i < len(text):
        code = text[i + 1 : i + 3]
        if text[i] == "%" and len(code) == 2 and all(c in "0123456789abcdefABCDEF" for c in code):
            out.append(chr(int(code, 16)))
            i += 3
        else:
            out.append(text[i])
            i += 1
    return "".join(out)


def render(values: Sequence[str | None], fields: Sequence[str], *, hive_style: bool, encoded: bool) -> str:
    """The path of one row's partition values, as text; the DataFrame expression does the same."""
    parts = []
    for field, value in zip(fields, values, strict=True):
        text = DEFAULT_PARTITION if not value else escape(value) if encoded else value
        parts.append(f"{field}={text}" if hive_style else text)
    return "/".join(parts)
