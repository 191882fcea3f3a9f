"""The tables that the real Hudi made, unpacked once per session; see ``data/README.md``."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ARCHIVE = Path(__file__).parent / "data" / "hudi-tables.tar.xz"


def unpack(folder: Path) -> Path:
    """Unpack all tables into ``folder``; each is a folder in it, its rows a JSON file beside it."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="session")
def hudi_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the unpacked tables; to be read only, so copy a table that a test changes."""
    return unpack(tmp_path_factory.mktemp("hudi-tables"))


def data_files(table: Path) -> Iterator[Path]:
    """The base files of a table, of all versions."""
    return (
        file for file in sorted(table.rglob("*.parquet")) if ".hoodie" not in file.relative_to(table).parts
    )


def timeline_files(table: Path) -> Iterator[Path]:
    """The files of a table's active timeline."""
    return (file for file in sorted((table / ".hoodie" / "timeline").iterdir()) if file.is_file())
