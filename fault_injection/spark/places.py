"""Where the hosts of a cluster are: on this machine as it is, or in namespaces made for them.

In namespaces every worker is a host with a name, an address and a cable of its own, which can be cut
while it goes on reaching the disk.  All of it hangs on one process: when that ends, for whatever
reason, the kernel takes every process, interface and mount in it away.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fault_injection.spark.processes import Known, children, descendants, id_inside, is_gone, wait_for

LOOPBACK = "127.0.0.1"
_HOLE = "9"
"""The routing table of what gets lost."""

_KEEPER = """\
import signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # who is adopted here is buried here
signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who has started this
print("ready", flush=True)
sys.stdin.read()
"""
_WATCHMAN = """\
import os, signal, sys
from fault_injection.spark.places import Known, end_sessions
signal.signal(signal.SIGINT, signal.SIG_IGN)
lines = [line.split() for line in sys.stdin]
end_sessions(Known(int(pid), began) for pid, began in lines)
"""


@dataclass(frozen=True, kw_only=True)
class Host:
    """Where a worker runs: its name, and what a command there begins with."""

    name: str
    prefix: tuple[str, ...] = ()


class Places(ABC):
    """What a cluster needs of a machine."""

    partitions: bool
    """Whether a host can be cut off."""
    driver: Host
    """Where the master and the drivers run."""
    store: str
    """An address of the driver's host, for servers that a host reaches even when it is cut off."""

    @abstractmethod
    def host(self, number: int) -> Host:
        """A place for a worker."""

    @abstractmethod
    def cut(self, host: Host) -> None:
        """From now on nothing comes from the host or gets there, and nobody is told."""

    @abstractmethod
    def heal(self, host: Host) -> None:
        """Undo :meth:`cut`."""

    @abstractmethod
    def small_disk(self, folder: Path, megabytes: int) -> None:
        """Mount a disk of this size over a folder, for the cluster alone."""

    @abstractmethod
    def is_small(self, folder: Path) -> bool:
        """Whether the folder lies on a disk that was mounted so."""

    @abstractmethod
    def seal(self, folder: Path) -> None:
        """Nobody in the cluster can change anything in the folder from now on."""

    @abstractmethod
    def unseal(self, folder: Path) -> None:
        """Undo :meth:`seal`."""

    @abstractmethod
    def seen_from_here(self, path: Path) -> Path:
        """The name of a file or folder of the cluster's for this process."""

    @abstractmethod
    def pid(self, inside: int) -> int:
        """The id of one of the cluster's processes; 0 if it is gone."""

    @abstractmethod
    def started(self, process: subprocess.Popen[bytes]) -> int:
        """The process that a command with a prefix has become; also told so that it ends with the rest."""

    @abstractmethod
    def close(self) -> None:
        """End everything that was started here."""


class ThisMachine(Places):
    """Hosts that are this machine under several of its loopback addresses; nothing of it can be cut off."""

    partitions = False

    def __init__(self) -> None:
        self.driver, self.store = Host(name=LOOPBACK), LOOPBACK
        self._watchman = subprocess.Popen(
            [sys.executable, "-c", _WATCHMAN],
            stdin=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )

    def host(self, number: int) -> Host:
        # Spark runs no second copy of a task on the same host, so each worker has a name of its own.
        return Host(name=f"127.0.0.{number + 2}" if sys.platform == "linux" else LOOPBACK)

    def cut(self, host: Host) -> None:
        raise _impossible("cutting a host off")

    heal = cut

    def small_disk(self, folder: Path, megabytes: int) -> None:
        raise _impossible("a small disk")

    def is_small(self, folder: Path) -> bool:
        return False

    def seal(self, folder: Path) -> None:
        raise _impossible("a folder that nobody can write into")

    unseal = seal

    def seen_from_here(self, path: Path) -> Path:
        return path

    def pid(self, inside: int) -> int:
        return 0 if is_gone(inside) else inside

    def started(self, process: subprocess.Popen[bytes]) -> int:
        assert self._watchman.stdin is not None
        self._watchman.stdin.write(f"{process.pid} {Known.now(process.pid).began}\n".encode())
        self._watchman.stdin.flush()
        return process.pid

    def close(self) -> None:
        self._watchman.communicate()


def end_sessions(leaders: Iterable[Known]) -> None:
    """Kill every process of the sessions that these have begun, until there is none.

    A session has its leader's id as long as anybody is in it.  Then another process may get the id, and
    begin a session of its own.
    """
    known = list(leaders)
    while True:
        sessions = {one.pid for one in known if not one.is_gone or is_gone(one.pid)}
        found = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        mine = [pid for pid in found if _session(pid) in sessions and not is_gone(pid)]
        if not mine:
            return
        for pid in mine:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


class Namespaces(Places):
    """Hosts with addresses of their own, joined by cables to the one where the drivers are."""

    partitions = True

    def __init__(self, folder: Path, workers: int) -> None:
        self._outer = subprocess.Popen(
            ["unshare", "--fork", "--kill-child", "--pid", "--mount-proc", "--net", "--mount",
             "--propagation", "private", sys.executable, "-c", _KEEPER],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert self._outer.stdout is not None
        if self._outer.stdout.readline() != b"ready\n":
            raise RuntimeError("no namespaces can be made here")
        (self._keeper,) = children(self._outer.pid)
        # `nsenter` waits here for what runs in there, and stops when that is stopped: it has to end with us.
        command = ("setpriv", "--pdeathsig", "KILL", "nsenter")
        self._prefix = (*command, "--target", str(self._keeper), "--mount", "--pid")
        self.driver = Host(name="driver", prefix=(*self._prefix, "--net"))
        self.store = "10.9.0.2"
        self._addresses = {"driver": "10.9.0.1", "store": self.store}
        self._hosts: dict[int, Host] = {}
        self._small_disks: set[Path] = set()
        self._aside = folder / "aside"
        self._aside.mkdir(exist_ok=True)
        self._here("ip", "link", "set", "lo", "up")
        for address in self._addresses.values():
            self._here("ip", "addr", "add", f"{address}/32", "dev", "lo")
        self._here("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        self._hole()
        for number in range(workers):
            self._cable(number)
        known = [f"{LOOPBACK} localhost", *(f"{at} {name}" for name, at in self._addresses.items())]
        self._instead_of("hosts", "\n".join(known), folder)
        # Nobody answers in here: who asked would wait for it.
        self._instead_of("nsswitch.conf", "hosts: files", folder)
        self._instead_of("resolv.conf", f"nameserver {LOOPBACK}", folder)

    def _hole(self) -> None:
        """Where packets go that are to be lost: out by a cable on which nobody listens."""
        self._here("ip", "link", "add", "hole", "type", "veth", "peer", "name", "nowhere")
        self._here("ip", "link", "set", "nowhere", "up")
        self._here("ip", "link", "set", "hole", "arp", "off", "up")
        self._here("ip", "route", "add", "default", "dev", "hole", "table", _HOLE)
        # The kernel delivers what is for this host before it looks at any other rule: let it look first.
        self._here("ip", "rule", "add", "pref", "3", "lookup", "local")
        self._here("ip", "rule", "del", "pref", "0")

    def _cable(self, number: int) -> None:
        holder = subprocess.Popen(
            [*self.driver.prefix, "unshare", "--net", "sleep", "infinity"], stdin=subprocess.DEVNULL
        )
        ours = os.readlink(f"/proc/{self._keeper}/ns/net")

        def inner() -> int:
            found = children(holder.pid)
            return found[0] if found and os.readlink(f"/proc/{found[0]}/ns/net") != ours else 0

        pid = wait_for(inner, "a network namespace", 20)
        there = Host(name=f"worker-{number}", prefix=(*self._prefix, f"--net=/proc/{pid}/ns/net"))
        near, far = f"10.9.{number + 1}.1", f"10.9.{number + 1}.2"
        cable = f"cable{number}"
        self._here(
            "ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", str(id_inside(pid))
        )
        self._here("ip", "addr", "add", f"{near}/24", "dev", cable)
        self._here("ip", "link", "set", cable, "up")
        _run(*there.prefix, "ip", "link", "set", "lo", "up")
        _run(*there.prefix, "ip", "addr", "add", f"{far}/24", "dev", "eth0")
        _run(*there.prefix, "ip", "link", "set", "eth0", "up")
        _run(*there.prefix, "ip", "route", "add", "default", "via", near)
        self._addresses[there.name] = far
        self._hosts[number] = there

    def _instead_of(self, name: str, content: str, folder: Path) -> None:
        """A file in ``/etc``, as the cluster sees it."""
        target, ours = Path("/etc") / name, folder / name
        if target.exists():
            ours.write_text(content + "\n")
            self._here("mount", "--bind", str(ours), str(target))

    def _here(self, *command: str) -> None:
        _run(*self.driver.prefix, *command)

    def host(self, number: int) -> Host:
        return self._hosts[number]

    def cut(self, host: Host) -> None:
        self._rules("add", host)

    def heal(self, host: Host) -> None:
        self._rules("del", host)

    def _rules(self, verb: str, host: Host) -> None:
        address = self._addresses[host.name]
        # The store stays within reach: what is cut off can still write.
        self._here("ip", "rule", verb, "pref", "1", "from", address, "to", self.store, "lookup", "local")
        self._here("ip", "rule", verb, "pref", "1", "from", self.store, "to", address, "lookup", "main")
        # All else gets lost; a route that refuses it would tell who sends.
        self._here("ip", "rule", verb, "pref", "2", "from", address, "lookup", _HOLE)
        self._here("ip", "rule", verb, "pref", "2", "to", address, "lookup", _HOLE)

    def small_disk(self, folder: Path, megabytes: int) -> None:
        self._here("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "none", str(folder))
        self._small_disks.add(folder)

    def is_small(self, folder: Path) -> bool:
        return not self._small_disks.isdisjoint({folder, *folder.parents})

    def seal(self, folder: Path) -> None:
        # Elsewhere first: where somebody has already opened a file for writing, it can't become read-only.
        aside = str(self._aside)
        self._here("mount", "--bind", str(folder), aside)
        self._here("mount", "-o", "remount,bind,ro", aside)
        # Over what is there: files that are open stay so, as on a disk whose rights were taken away.
        self._here("mount", "--move", aside, str(folder))

    def unseal(self, folder: Path) -> None:
        self._here("umount", "--lazy", str(folder))

    def seen_from_here(self, path: Path) -> Path:
        return Path(f"/proc/{self._keeper}/root") / str(path).lstrip("/")

    def pid(self, inside: int) -> int:
        for pid in descendants(self._outer.pid):
            if id_inside(pid) == inside and not is_gone(pid):
                return pid
        return self._adopted(inside)

    def _adopted(self, inside: int) -> int:
        """Processes that came in by `nsenter` are no children of the keeper's."""
        ours = os.readlink(f"/proc/{self._keeper}/ns/pid")
        for name in os.listdir("/proc"):
            if name.isdigit() and id_inside(int(name)) == inside:
                try:
                    if os.readlink(f"/proc/{name}/ns/pid") == ours and not is_gone(int(name)):
                        return int(name)
                except OSError:
                    continue
        return 0

    def started(self, process: subprocess.Popen[bytes]) -> int:
        return wait_for(lambda: next(iter(children(process.pid)), 0), "a process in its namespaces", 20)

    def close(self) -> None:
        self._outer.communicate()


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


def _impossible(what: str) -> NotImplementedError:
    return NotImplementedError(f"{what} needs namespaces: {why_no_namespaces() or 'ask for them'}")


@functools.cache
def why_no_namespaces() -> str:
    """What is missing for namespaces on this machine, in words; nothing if they can be made."""
    missing = [
        command for command in ("unshare", "nsenter", "setpriv", "ip") if shutil.which(command) is None
    ]
    if missing:
        return f"there is no {' and no '.join(missing)} here"
    if os.geteuid() != 0:
        return "only root can make them"
    tried = subprocess.run(
        ["unshare", "--fork", "--pid", "--mount-proc", "--net", "--mount", "ip", "link", "add", "near",
         "type", "veth", "peer", "name", "far"],
        capture_output=True, text=True,
    )  # fmt: skip
    return f"this machine makes none: {tried.stderr.strip()}" if tried.returncode else ""
