"""Build the archive for ``spark-submit --py-files``: the package alone, the same bytes every time."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KINDS = {".py", ".avsc", ".typed"}
LONG_AGO = (1980, 1, 1, 0, 0, 0)


def members(root: Path) -> list[Path]:
    """The package's files, in an order that no file system decides."""
    found = (path for path in (root / "sparkrobust").rglob("*") if path.suffix in KINDS and path.is_file())
    return sorted(found, key=lambda path: path.relative_to(root).as_posix())


def build(target: Path, root: Path = ROOT) -> Path:
    """Write the archive and return its path."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in members(root):
            entry = zipfile.ZipInfo(path.relative_to(root).as_posix(), date_time=LONG_AGO)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            archive.writestr(entry, path.read_bytes())
    return target


if __name__ == "__main__":
    print(build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist" / "sparkrobust.zip"))
