"""Hashes of record keys, by which two writers see that both have inserted one new key."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from hashlib import blake2b

SIZE = 8
"""Bytes of each: among a thousand million keys hardly one pair has one hash in common by chance."""


def hashes_of(keys: Iterable[str]) -> bytes:
    """The keys' hashes, one after the other."""
    return b"".join(blake2b(key.encode(), digest_size=SIZE).digest() for key in keys)


def to_text(hashes: bytes) -> str:
    return base64.b64encode(hashes).decode()


def from_text(text: str) -> bytes:
    """What :func:`to_text` made; ``ValueError`` for anything else."""
    try:
        hashes = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None
    if len(hashes) % SIZE:
        raise ValueError(f"{len(hashes)} bytes")
    return hashes
