"""What stands in the object of Hudi's storage-based lock, and when it is a lock that somebody has."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sparkrobust.core import strict_json
from sparkrobust.core.fields import Fields

DRIFT_MS = 500
"""So long after its time a lock still counts, as clocks differ: Hudi's number."""
_HUDIS = frozenset({"expired", "validUntil", "owner"})
MAX_BYTES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class LockRecord:
    """One state of the lock; the object is never removed."""

    owner: str
    valid_until_ms: int
    expired: bool = False
    """Its owner has given it back."""
    nonce: str = ""
    """Ours alone: one taking of the lock.  Hudi's writers pass over it."""

    def is_held(self, now_ms: int) -> bool:
        """Whether nobody else may have the lock; Hudi's rule."""
        return not self.expired and now_ms <= self.valid_until_ms + DRIFT_MS

    def render(self) -> bytes:
        """As Hudi writes it, with our nonce behind it."""
        plain: dict[str, Any] = {
            "expired": self.expired, "validUntil": self.valid_until_ms, "owner": self.owner,
        }  # fmt: skip
        if self.nonce:
            plain["nonce"] = self.nonce
        return json.dumps(plain, separators=(",", ":")).encode()


def parse(data: bytes, *, path: str) -> LockRecord:
    """The state that an object tells; ``CorruptTableError`` for one that is none.

    Hudi passes over fields that it does not know, and so do we.
    """
    plain: dict[str, Any] = {}
    with suppress(ValueError):
        found = strict_json.loads(data) if len(data) <= MAX_BYTES else None
        plain = found if isinstance(found, dict) else plain
    fields = Fields({name: plain[name] for name in _HUDIS & plain.keys()}, _HUDIS, path=path)
    nonce = plain.get("nonce")
    return LockRecord(
        owner=fields.text("owner"),
        valid_until_ms=fields.count("validUntil"),
        expired=fields.flag("expired"),
        nonce=nonce if isinstance(nonce, str) else "",
    )
