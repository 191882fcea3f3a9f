"""Servers that PySpark brings along: its jars, and a Java to run them."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

from fault_injection.servers import Unavailable

JAVA_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


def pyspark_jars() -> Path:
    """Their folder."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise Unavailable("PySpark, whose jars the server runs on, is not installed")
    return Path(found.origin).parent / "jars"


def java() -> str:
    """The program."""
    home = os.environ.get("JAVA_HOME")
    program = f"{home}/bin/java" if home else shutil.which("java")
    if program is None or not os.access(program, os.X_OK):
        raise Unavailable("no server from PySpark's jars: there is no Java here")
    return program
