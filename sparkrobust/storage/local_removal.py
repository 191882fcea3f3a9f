"""Removing a folder of a disk with all that is in it."""

from __future__ import annotations

import contextlib
import os

from sparkrobust.world import Hands

_REMOVERS = 8


def remove_tree(folder: str) -> None:
    """Remove a folder; several may do so at once.  Symbolic links are removed, not followed."""
    # A disk that is busy lets each removal wait: those in different folders wait together.
    inner = _remove_files(folder)
    Hands().map(_remove_inner_tree, inner, most=_REMOVERS)
    _remove_empty(folder)


def _remove_inner_tree(folder: str) -> None:
    for inner in _remove_files(folder):
        _remove_inner_tree(inner)
    _remove_empty(folder)


def _remove_files(folder: str) -> list[str]:
    """Remove what is no folder in a folder; the folders that are left."""
    inner = []
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                inner.append(entry.path)
            else:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(entry.path)
    return inner


def _remove_empty(folder: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(folder)
