"""What a write leaves besides its files: begin markers, staged bytes, its control folder."""

from __future__ import annotations

from collections.abc import Iterator

from sparkrobust.core.names import ROBUST, ControlFolder, MarkerType, marker_folder, parse_begin_marker
from sparkrobust.storage.contract import NotFoundError, Staging, Storage

_SERVER_MARKERS = "MARKERS"
_SERVER_MARKERS_TYPE = "MARKERS.type"


def begin_markers(storage: Storage, instant: str) -> Iterator[tuple[str, MarkerType]]:
    """The data files that a write marked, in either of Hudi's two ways of marking."""
    folder = marker_folder(instant)
    files = [info.path.removeprefix(f"{folder}/") for info in storage.walk(folder)]
    if _SERVER_MARKERS_TYPE in files:
        # Written by Hudi's timeline server: all marks stand as lines in a few files.
        lists = (name for name in files if name.startswith(_SERVER_MARKERS) and name != _SERVER_MARKERS_TYPE)
        names: Iterator[str] = (
            line for name in lists for line in storage.read(f"{folder}/{name}").decode().splitlines()
        )
    else:
        names = iter(files)
    for name in names:
        mark = parse_begin_marker(name)
        if mark is not None:
            yield mark


def control_folders(storage: Storage) -> list[ControlFolder]:
    """The control folders that lie in the table."""
    _, folders = storage.list(ROBUST)
    return [found for path in folders if (found := ControlFolder.parse(path)) is not None]


def sweep_control_folder(storage: Storage, control: ControlFolder) -> None:
    """Remove a write's begin markers and whatever is still staged; the write is over."""
    if storage.staging is Staging.MULTIPART:
        _discard_uploads(storage, control.instant)
    storage.delete_tree(marker_folder(control.instant))
    storage.delete_tree(control.path)


def _discard_uploads(storage: Storage, instant: str) -> None:
    for info in storage.walk(marker_folder(instant)):
        try:
            token = storage.read(info.path)
        except NotFoundError:
            continue
        if token:
            storage.discard(token.decode())
