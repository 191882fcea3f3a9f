"""Names in a folder on a disk, and whether they are still the ones: then they need not be listed again.

Theory of operation
-------------------
The kernel stamps a folder with the time whenever an entry comes, goes or gets another name.  Its time goes in
ticks of some milliseconds, so a folder that was changed in this tick may be changed once more and bear the
same stamp.  So a stamp says nothing while it is that young: only the names that were listed once it was older
are all there are as long as the folder bears it.

That takes one clock, which stamps and tells the time.  The kernel's own file systems have it; what a server
or another process stamps may lie anywhere in our time, and such a folder is listed each time.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys

from sparkrobust.world import Clock

SCRATCH = ".hoodie/.robust/.scratch"
OUT_OF_SIGHT = ".sparkrobust-"
_TICK_NS = 10_000_000
"""The slowest one."""
_MARGIN_NS = 2 * _TICK_NS
"""A stamp of that age is over."""
_SECOND_NS = 1_000_000_000
_STAMPED_HERE = frozenset(
    {
        0xEF53,  # ext2, ext3, ext4
        0x58465342,  # xfs
        0x9123683E,  # btrfs
        0x01021994,  # tmpfs
        0x794C7630,  # overlay, whose changes all lie on a file system of the kernel's
    }
)
"""File systems, as ``statfs`` names them."""

Stamp = tuple[int, int, int, int]

_library = ctypes.CDLL(None, use_errno=True)
# There the structure begins with the file system's kind, in eight bytes.
_CAN_ASK = sys.platform == "linux" and sys.byteorder == "little" and ctypes.sizeof(ctypes.c_long) == 8
_LARGER_THAN_STATFS = 512


def _is_stamped_here(folder: str) -> bool:
    """Whether it is this kernel that stamps the folder."""
    if not _CAN_ASK:
        return False
    found = ctypes.create_string_buffer(_LARGER_THAN_STATFS)
    failed = _library.statfs(os.fsencode(folder), found)
    return not failed and int.from_bytes(found.raw[:8], "little") in _STAMPED_HERE


def stamp_of(folder: str, clock: Clock) -> Stamp | None:
    """The folder's stamp, if whatever changes it from now on gives it another one."""
    seen = _seen(folder, clock)
    if seen is None:
        return None
    found, now = seen
    # Whoever sets a file's time can't set this one.
    changed = found.st_ctime_ns
    # Where only whole seconds are kept a stamp is older than what it stands for.
    is_over = now - changed > _MARGIN_NS and changed % _SECOND_NS
    return (found.st_dev, found.st_ino, found.st_mtime_ns, changed) if is_over else None


def settles_in(folder: str, clock: Clock) -> float | None:
    """The seconds until the folder has a stamp that says something, if nobody changes it; ``None``: never."""
    seen = _seen(folder, clock)
    if seen is None:
        return None
    found, now = seen
    age = now - found.st_ctime_ns
    # The kernel's time lags behind by up to a tick.
    return 0.0 if age > _MARGIN_NS else (min(_MARGIN_NS - age, _MARGIN_NS) + _TICK_NS) / _SECOND_NS


def _seen(folder: str, clock: Clock) -> tuple[os.stat_result, int] | None:
    """The folder as of the kernel's time; ``None`` if another one stamps it, or it is gone."""
    now = clock.stamp_ns()
    if now is None or not _is_stamped_here(folder):
        return None
    try:
        return os.stat(folder), now
    except OSError:
        return None


def is_hidden(path: str, name: str) -> bool:
    """Hadoop's checksums and our own scratch, whose names all begin with a dot."""
    is_checksum = name.endswith(".crc") and len(name) > len("..crc")
    return is_checksum or name.startswith(OUT_OF_SIGHT) or path == SCRATCH


def names_in(full: str, folder: str) -> list[str] | None:
    """The names of the files in a folder; ``None``: what is wrong with it, a slower look tells."""
    # Without a look at the files themselves, which takes most of the time of a listing.
    try:
        with os.scandir(full) as entries:
            return [
                entry.name
                for entry in entries
                if (entry.name[0] != "." or not is_hidden(f"{folder}/{entry.name}", entry.name))
                and entry.is_file()
            ]
    except OSError:
        return None


def names_since(full: str, folder: str, known: frozenset[str]) -> frozenset[str] | None:
    """The same of a folder whose names are known but for a few, in half the time.

    A name that was a file's when it was known is a file's as long as it is there.
    """
    try:
        there = frozenset(os.listdir(full))
        return there - {name for name in there - known if not _is_shown_file(full, folder, name)}
    except OSError:
        return None


def _is_shown_file(full: str, folder: str, name: str) -> bool:
    if is_hidden(f"{folder}/{name}", name):
        return False
    try:
        return stat.S_ISREG(os.stat(f"{full}/{name}").st_mode)
    except FileNotFoundError:  # deleted since it was listed
        return False
