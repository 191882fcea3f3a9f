"""Install what the benchmark needs: a virtual environment and the peers' jars.

Run it with any Python 3.10 to 3.13: ``python benchmarks/install.py``. What is there already is kept.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.places import JARS, PEER_JARS, VENV, jar_file

REQUIREMENTS = (
    "pyspark==3.5.*",
    "pandas",
    "pyarrow",
    "numpy",
    "matplotlib",
    "fastavro",
    "boto3",
    "fsspec",
    "setuptools",
)


def install_environment() -> None:
    """Make the virtual environment; a finished one carries a mark with the requirements it was made for."""
    mark = VENV / "requirements.installed"
    if mark.exists() and mark.read_text() == "\n".join(REQUIREMENTS):
        return
    subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    subprocess.run([str(VENV / "bin" / "pip"), "install", "--quiet", *REQUIREMENTS], check=True)
    mark.write_text("\n".join(REQUIREMENTS))


def install_jars() -> None:
    """Fetch the peers' jars with Maven."""
    missing = [c for group in PEER_JARS.values() for c in group if not jar_file(c).exists()]
    if missing and shutil.which("mvn") is None:
        sys.exit("The peers' jars are fetched with Maven, and there is no `mvn` on the PATH: install Maven.")
    JARS.mkdir(parents=True, exist_ok=True)
    for coordinates in missing:
        command = ["mvn", "-B", "-q", "-Dstyle.color=never", "dependency:copy"]
        subprocess.run([*command, f"-Dartifact={coordinates}", f"-DoutputDirectory={JARS}"], check=True)


if __name__ == "__main__":
    install_environment()
    install_jars()
    print(f"ready: {VENV / 'bin' / 'python'} -m benchmarks run --out DIR")
