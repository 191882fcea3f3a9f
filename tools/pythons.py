"""Print the Python interpreters of this machine that the project supports, newest first: version, path."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SUPPORTED = ("3.13", "3.12", "3.11", "3.10")


def candidates(version: str) -> Iterator[str]:
    """Commands that may be this version: on the path, then where pyenv keeps them."""
    on_path = shutil.which(f"python{version}")
    if on_path:
        yield on_path
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from (str(path) for path in sorted(root.glob(f"versions/{version}.*/bin/python{version}")))
    for command in (sys.executable, shutil.which("python3")):
        if command:
            yield command


def works(command: str, version: str) -> bool:
    """Whether the command is this version and can make virtual environments."""
    probe = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    try:
        answer = subprocess.run([command, "-c", probe], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == 0 and answer.stdout.strip() == version


def find() -> dict[str, str]:
    """The first working command of each supported version."""
    return {
        version: command
        for version in SUPPORTED
        for command in [next((c for c in candidates(version) if works(c, version)), None)]
        if command
    }


def main(arguments: list[str]) -> None:
    present = find()
    if arguments:
        chosen = next((present[version] for version in arguments if version in present), None)
        if chosen is None:
            raise SystemExit(f"no Python {', '.join(arguments)} with venv and ensurepip is on this machine")
        print(chosen)
        return
    for version, command in present.items():
        print(version, command)


if __name__ == "__main__":
    main(sys.argv[1:])
