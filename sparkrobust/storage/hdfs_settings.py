"""How HDFS is reached: from Hadoop's own keys and files, by one client per process.

hdfs-native speaks HDFS's own protocol without a JVM.  Its client has threads of its own, which a
forked child does not have: there, a client of the parent hangs when it is used and even when it is
thrown away.  So each process makes its own, and keeps those of its parent untouched until it ends.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from sparkrobust.errors import InvalidInputError, UnsupportedTableError

_DEFAULT_PORT = 8020
_DEFAULT_FS = "fs.defaultFS"
_UMASK = "fs.permissions.umask-mode"
# What the client reads of Hadoop's configuration; there are no secrets among it.
_KEYS = re.compile(
    r"fs\.defaultFS|fs\.permissions\.umask-mode|dfs\.nameservices|dfs\.ha\.namenodes\..*"
    r"|dfs\.namenode\.rpc-address(\..*)?|dfs\.client\.failover\..*|dfs\.client\.use\.datanode\.hostname"
    r"|dfs\.client\.socket-timeout"
    r"|dfs\.client\.block\.write\.replace-datanode-on-failure\..*|dfs\.data\.transfer\.protection"
    r"|hadoop\.security\.authentication"
)


# -- where it is -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class HdfsSettings:
    """The NameNode, or the name service, and what it takes to reach it."""

    authority: str
    config: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, options: Mapping[str, str], authority: str) -> HdfsSettings:
        """From Hadoop's files (``HADOOP_CONF_DIR``), and the options, which come first.

        All is read here, on the driver, so that executors need no such files.
        """
        config = {key: value for key, value in _of_files().items() if _KEYS.fullmatch(key)}
        config |= {key: value.strip() for key, value in options.items() if _KEYS.fullmatch(key)}
        if not authority:
            authority = _default_authority(config)
        if ":" not in authority and f"dfs.ha.namenodes.{authority}" not in config:
            authority = f"{authority}:{_DEFAULT_PORT}"
        return cls(authority=authority, config=tuple(sorted(config.items())))

    @property
    def umask(self) -> int:
        """What is taken from the permissions of new files and folders."""
        given = dict(self.config).get(_UMASK, "")
        return int(given, 8) if re.fullmatch("[0-7]{1,4}", given) else 0o022


def _default_authority(config: Mapping[str, str]) -> str:
    scheme, _, rest = config.get(_DEFAULT_FS, "").partition("://")
    found = rest.partition("/")[0]
    if scheme != "hdfs" or not found:
        raise InvalidInputError(
            f"hdfs:/// needs {_DEFAULT_FS} of Hadoop's configuration, and there is none for HDFS",
            hint="write hdfs://host:port/path, or set HADOOP_CONF_DIR",
        )
    return found


def _of_files() -> dict[str, str]:
    home = os.environ.get("HADOOP_HOME")
    folder = os.environ.get("HADOOP_CONF_DIR") or (f"{home}/etc/hadoop" if home else "")
    found: dict[str, str] = {}
    for name in ("core-site.xml", "hdfs-site.xml") if folder else ():
        path = Path(folder) / name
        if not path.exists():
            continue
        try:
            properties = ElementTree.parse(path).getroot().iter("property")
        except (OSError, ElementTree.ParseError) as error:
            raise InvalidInputError(
                f"Hadoop's configuration {path} can't be read: {error}", path=str(path)
            ) from error
        for one in properties:
            key, value = one.findtext("name"), one.findtext("value")
            if key and value:
                found[key.strip()] = value.strip()
    return found


# -- the client ------------------------------------------------------------------------------------

_MAKING = threading.Lock()
# It goes on to the other NameNode, and does not go round for minutes: we repeat requests ourselves.
_OUR_PATIENCE = {
    "dfs.client.failover.max.attempts": "3",
    "dfs.client.failover.sleep.base.millis": "50",
    "dfs.client.failover.sleep.max.millis": "500",
}


@cache
def hdfs_module() -> Any:
    """hdfs-native, which is imported only when a table on HDFS is first used."""
    try:
        return importlib.import_module("hdfs_native")
    except ImportError as error:
        raise UnsupportedTableError(
            "a table on HDFS needs hdfs-native",
            hint="install it on the driver and the executors: sparkrobust[hdfs]",
        ) from error


def client_of(settings: HdfsSettings) -> Any:
    """The client of this process."""
    with _MAKING:
        return _client(settings, os.getpid())


@cache
def _client(settings: HdfsSettings, process: int) -> Any:
    config = {**dict(settings.config), **_OUR_PATIENCE}
    client = hdfs_module().Client(f"hdfs://{settings.authority}", config=config)
    os.register_at_fork(after_in_child=lambda: _keep_for_ever(client))
    return client


def _keep_for_ever(client: Any) -> None:
    """See to it that nothing is run for the client's end, which would wait for threads that are not there."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))
    global _MAKING
    _MAKING = threading.Lock()  # another thread of the parent may have held it
