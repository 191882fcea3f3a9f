"""The table's lock in ZooKeeper, by the recipe and the names of Curator's, which Hudi's writers use.

Who wants the lock makes a node with a number that ZooKeeper gives; the lowest number has it, and each
other one waits for the node before its own to go.  A node lives as long as the session of its maker, so
a writer that dies, or can't reach ZooKeeper any more, loses it.  Each taking of the lock has a session
of its own, whose end is the end of its node, whatever else fails.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

from sparkrobust.errors import InvalidOptionError, PermissionDeniedError, UnavailableError
from sparkrobust.storage.locks import Grip, Holder, TableLock, owner_in, signed
from sparkrobust.world import Clock, Ids

_NUMBER_AFTER = "lock-"
"""What Curator's nodes have before their numbers: ``_c_<uuid>-lock-<number>``."""


class ZooKeeperLock(TableLock):
    """Hudi's ``ZookeeperBasedLockProvider``.

    Parameters
    ----------
    hosts
        The servers, as ZooKeeper's own clients are told: ``host:port,host:port``.
    path
        The node below which those who want the lock stand in line.
    session_seconds
        After which the lock of one who is gone is free.
    connect_seconds
        How long a server may take to answer.
    """

    shared = True
    pause_seconds = 1.0

    def __init__(
        self,
        hosts: str,
        path: str,
        *,
        session_seconds: float = 60,
        connect_seconds: float = 15,
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> None:
        super().__init__(clock or Clock(), ids or Ids())
        self.hosts, self.path = hosts, "/" + path.strip("/")
        self.session_seconds, self.connect_seconds = session_seconds, connect_seconds
        self._in_line: dict[str, _Place] = {}
        self._worth_a_look = threading.Event()

    def __str__(self) -> str:
        return f"zookeeper://{self.hosts}{self.path}"

    @property
    def way_out(self) -> str:  # type: ignore[override]
        return f"write again later; the lock of a dead owner is free after {self.session_seconds:.0f} s"

    def try_acquire(self, owner: str, nonce: str) -> Grip | None:
        place = self._in_line.get(nonce)
        if place is None:
            client = self._client()
            place = _Place(self, client, self._ids.uuid(), signed(owner, nonce))
            self._in_line[nonce] = place  # before there is a session, which has to be ended
            try:
                self._start(client)
            except BaseException:
                self.withdraw(nonce)
                raise
        self._worth_a_look.clear()
        if not place.is_first(self._worth_a_look.set):
            return None
        return _ZooKeeperGrip(self, place, nonce)

    def wait(self, seconds: float) -> None:
        self._worth_a_look.wait(seconds)

    def withdraw(self, nonce: str) -> None:
        place = self._in_line.get(nonce)
        if place is not None:
            place.leave()
            del self._in_line[nonce]

    def holder(self) -> Holder | None:
        client = self._client()
        try:
            self._start(client)
            return self._first_of(client)
        finally:
            _end(client)

    def _first_of(self, client: Any) -> Holder | None:
        for name in self.line(client):
            found = self.answer(client.get_async(f"{self.path}/{name}"))
            if found:
                data, stat = found
                # Hudi's node holds the address of its host.
                said = owner_in(data) or data.decode(errors="replace")
                return Holder(owner=said, seconds=max(0, self._clock.now_ms() - stat.ctime) / 1000)
        return None

    def line(self, client: Any) -> list[str]:
        """The nodes of those who stand in line, by Curator's rule; other nodes don't."""
        names = self.answer(client.get_children_async(self.path)) or []
        numbered = [name for name in names if _NUMBER_AFTER in name]
        return sorted(numbered, key=lambda name: name.rpartition(_NUMBER_AFTER)[2])

    # -- ZooKeeper -----------------------------------------------------------------------------------

    def _client(self) -> Any:
        """A client that is to have a session of its own."""
        try:
            return _kazoo().client.KazooClient(hosts=self.hosts, timeout=self.session_seconds)
        except ValueError as error:
            raise InvalidOptionError(
                f"hoodie.write.lock.zookeeper.url: {self.hosts!r} names no servers: {error}"
            ) from error

    def _start(self, client: Any) -> None:
        """Begin its session."""
        with self._clear_errors():
            client.start(timeout=self.connect_seconds)

    def answer(self, asked: Any) -> Any:
        """What ZooKeeper answers in time; ``None`` where it knows no such node."""
        with self._clear_errors():
            try:
                return asked.get(timeout=self.connect_seconds)
            except _kazoo().exceptions.NoNodeError:
                return None

    @contextmanager
    def _clear_errors(self) -> Iterator[None]:
        errors, times = _kazoo().exceptions, _kazoo().handlers.threading
        try:
            yield
        except errors.NoAuthError as error:
            raise PermissionDeniedError(f"ZooKeeper at {self.hosts} refuses it: {self.path}") from error
        except (errors.KazooException, times.KazooTimeoutError) as error:
            said = str(error) or type(error).__name__
            raise UnavailableError(f"ZooKeeper at {self.hosts} does not answer: {said}") from error


class _Place:
    """One's place in the line for the lock, in a session of its own."""

    def __init__(self, lock: ZooKeeperLock, client: Any, uuid: str, content: bytes) -> None:
        self._lock, self._client, self._content = lock, client, content
        self._prefix = f"_c_{uuid}-{_NUMBER_AFTER}"

    def is_first(self, tell: Callable[[], None]) -> bool:
        """Whether the lock is ours; if not, ``tell`` is called once that may have changed."""
        client, path, answer = self._client, self._lock.path, self._lock.answer
        line = self._lock.line(client)
        if self._number_in(line) is None:  # a node whose maker got no answer is found by its name
            create = client.create_async(
                f"{path}/{self._prefix}", self._content, ephemeral=True, sequence=True, makepath=True
            )
            answer(create)
            line = self._lock.line(client)
        mine = self._number_in(line)
        if mine == 0:
            return True
        before = f"{path}/{line[mine - 1]}" if mine else ""
        if not before or answer(client.exists_async(before, lambda _: tell())) is None:
            tell()  # it has gone meanwhile, or our own session had
        return False

    def is_there(self) -> bool:
        """Whether our node stands; once it is the first it is so for as long as it does."""
        return self._number_in(self._lock.line(self._client)) is not None

    def _number_in(self, line: list[str]) -> int | None:
        return next((number for number, name in enumerate(line) if name.startswith(self._prefix)), None)

    def leave(self) -> None:
        """End the session, and with it the node."""
        _end(self._client)


class _ZooKeeperGrip(Grip):
    def __init__(self, lock: ZooKeeperLock, place: _Place, nonce: str) -> None:
        self._lock, self._place, self._nonce = lock, place, nonce
        self._released = False

    def is_held(self) -> bool:
        try:
            return not self._released and self._place.is_there()
        except UnavailableError:
            return False  # nobody can say so

    def release(self) -> None:
        self._released = True
        self._lock.withdraw(self._nonce)


def _end(client: Any) -> None:
    """End a session."""
    with suppress(Exception):  # what can't be ended by a request ends by itself
        client.stop()
        client.close()


@cache
def _kazoo() -> Any:
    """Kazoo, which is imported only when a lock in ZooKeeper is first used."""
    try:
        import kazoo.client  # noqa: PLC0415
        import kazoo.exceptions  # noqa: PLC0415
        import kazoo.handlers.threading  # noqa: PLC0415
    except ImportError as error:
        raise InvalidOptionError(
            "hoodie.write.lock.provider: ZookeeperBasedLockProvider needs kazoo",
            hint="install it on the driver: sparkrobust[zookeeper]",
        ) from error
    return kazoo
