"""Whether the tests of ``tests/core`` notice a change in what decides: mutants made by mutmut, by module.

Works on a copy below ``build/mutation``, so that nothing but figures comes of it.  By hand, since it takes
a while: each mutant is a run of the tests that reach it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPY = ROOT / "build" / "mutation"
MODULES = (
    *("markers", "control_object", "decision", "file_ids"),
    *("names", "outcome", "written", "write_status"),
)
SETTINGS = """
[mutmut]
source_paths=sparkrobust
only_mutate=
{modules}
pytest_add_cli_args=
    -p
    no:cacheprovider
    -k
    not nesting and not takes_memory and not hudi_wrote
pytest_add_cli_args_test_selection=
    tests/core
use_git_change_detection=false
"""
"""Left out are tests that take seconds each: every mutant would run them."""
WANTED = 90.0
KILLED = {1, 3}
"""What pytest answers when tests fail, or when it fails itself."""
TIMED_OUT = {24, 36, 152, 255, -24}


def copied() -> None:
    """A fresh copy of what the tests need, with the settings of the run."""
    shutil.rmtree(COPY, ignore_errors=True)
    for name in ("sparkrobust", "tests", "tools", "fault_injection"):
        shutil.copytree(ROOT / name, COPY / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", COPY)
    modules = "\n".join(f"    sparkrobust/core/{module}.py" for module in MODULES)
    (COPY / "setup.cfg").write_text(SETTINGS.format(modules=modules))
    conftest = COPY / "tests" / "conftest.py"
    examples = "deadline=None, derandomize=True, database=None, max_examples=60"
    conftest.write_text(conftest.read_text().replace("deadline=None", examples))


def counted(module: str) -> tuple[Counter[str], list[str]]:
    """How many mutants were killed, and the names of those that lived."""
    found = json.loads((COPY / f"mutants/sparkrobust/core/{module}.py.meta").read_text())["exit_code_by_key"]
    kinds = {
        name: "killed" if code in KILLED | TIMED_OUT else "lived"
        for name, code in found.items()
        if code is not None  # not asked for
    }
    return Counter(kinds.values()), sorted(name for name, kind in kinds.items() if kind == "lived")


def main() -> int:
    copied()
    mutmut = [sys.executable, "-m", "mutmut", "run", *sys.argv[1:]]
    ended = subprocess.run(mutmut, cwd=COPY)
    worst = 100.0
    for module in MODULES:
        kinds, lived = counted(module)
        if not kinds:
            continue
        share = 100.0 * kinds["killed"] / kinds.total()
        worst = min(worst, share)
        print(f"{module:16} {kinds['killed']:4} of {kinds.total():4} killed, {share:5.1f} %")
        for name in lived:
            print(f"    {name}")
    return ended.returncode or int(worst < WANTED)


if __name__ == "__main__":
    raise SystemExit(main())
