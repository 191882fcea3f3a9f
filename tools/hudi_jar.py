"""Fetch the bundle of the real Hudi that interop tests ask: with Maven or, without it, with Spark's Ivy."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

BUNDLE = "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.1.1"


def by_maven(folder: Path) -> bool:
    """Copy the jar into the folder; whether that worked."""
    if shutil.which("mvn") is None:
        return False
    command = ["mvn", "-B", "-q", "dependency:copy", f"-Dartifact={BUNDLE}", f"-DoutputDirectory={folder}"]
    return subprocess.run(command).returncode == 0


def by_ivy(folder: Path) -> bool:
    """Let a Spark that does nothing else resolve the package; whether that worked."""
    nothing = folder / "nothing.py"
    nothing.write_text("")
    submit = [sys.executable, "-m", "tools.submit", "--master", "local[1]", "--packages", BUNDLE]
    quiet = ["--conf", f"spark.jars.ivy={folder / 'ivy'}", "--conf", "spark.ui.enabled=false"]
    if subprocess.run([*submit, *quiet, str(nothing)], stdout=subprocess.DEVNULL).returncode:
        return False
    for jar in folder.glob("ivy/jars/*hudi-spark*.jar"):
        shutil.move(str(jar), folder / jar.name.removeprefix("org.apache.hudi_"))
    return True


def main(target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        folder = Path(scratch).absolute()
        got = by_maven(folder) or by_ivy(folder)
        if not got or not (folder / target.name).exists():
            raise SystemExit(f"{BUNDLE} could not be fetched, neither with Maven nor through Spark's Ivy")
        (folder / target.name).rename(target)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
