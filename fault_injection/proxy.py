"""A proxy before a real HTTP server, S3's or Azure's: it sees what is asked, and has faults happen to it."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

LOOPBACK = "127.0.0.1"
_UPSTREAM_SECONDS = 60
_OF_ONE_CONNECTION = ("connection", "expect")
_LENGTHS = ("content-length", "transfer-encoding", "connection")
_CODES = {
    403: "AccessDenied",
    404: "NoSuchKey",
    409: "ConditionalRequestConflict",
    500: "InternalError",
    501: "NotImplemented",
    503: "SlowDown",
}
"""What S3 calls a status."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What was asked."""

    method: str
    path: str
    """Bucket and key, or account, container and key; decoded, without a slash before it."""
    query: str
    """As it was sent."""

    @property
    def key(self) -> str:
        """The path without its first part; nothing for a request to a bucket."""
        return self.path.partition("/")[2]

    @property
    def parameters(self) -> dict[str, str]:
        found = parse_qs(self.query, keep_blank_values=True)
        return {name: values[0] for name, values in found.items()}


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What the server said."""

    status: int
    headers: list[tuple[str, str]]
    content: bytes


# -- faults -----------------------------------------------------------------------------------------------


class Exchange(BaseHTTPRequestHandler):
    """A request that is to be answered, in one way or another."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server
    _body: bytes

    def handle_any(self) -> None:
        self._body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        asked = Request(method=self.command, path=unquote(url.path).lstrip("/"), query=url.query)
        self.server.choose(asked)(self)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any

    def ask(self) -> Reply:
        """Have the server do it."""
        connection = http.client.HTTPConnection(self.server.upstream, timeout=_UPSTREAM_SECONDS)
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in _OF_ONE_CONNECTION:
                connection.putheader(name, value)
        connection.endheaders(self._body or None)
        reply = connection.getresponse()
        content = reply.read()
        connection.close()
        length = reply.headers.get("Content-Length") if self.command == "HEAD" else None
        headers = [(name, value) for name, value in reply.headers.items() if name.lower() not in _LENGTHS]
        headers.append(("Content-Length", length or str(len(content))))
        return Reply(status=reply.status, headers=headers, content=content)

    def tell(self, reply: Reply, *, most: int | None = None) -> None:
        """Answer, with so many bytes of the body at most."""
        self.send_response_only(reply.status)
        for name, value in reply.headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.content[:most])

    def cut(self) -> None:
        """No more answer comes."""
        self.close_connection = True
        with suppress(OSError):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


Fault: TypeAlias = Callable[[Exchange], None]
"""What happens to a request."""


def no_fault(exchange: Exchange) -> None:
    """The server does it, and its answer comes."""
    exchange.tell(exchange.ask())


def lose_request(exchange: Exchange) -> None:
    """The server never sees it, and the connection is cut."""
    exchange.cut()


def lose_answer(exchange: Exchange) -> None:
    """The server does it, and the connection is cut."""
    exchange.ask()
    exchange.cut()


def cut_body(exchange: Exchange) -> None:
    """The server does it, and half of the answer's body comes."""
    reply = exchange.ask()
    exchange.tell(reply, most=len(reply.content) // 2)
    exchange.cut()


def answering(status: int) -> Fault:
    """It is answered with this status, and the server never sees it."""

    def answer(exchange: Exchange) -> None:
        code = _CODES.get(status, http.client.responses.get(status, "Unknown"))
        content = f"<Error><Code>{code}</Code><Message>planned</Message></Error>".encode()
        if exchange.command == "HEAD":
            content = b""
        headers = [("Content-Length", str(len(content))), ("Content-Type", "application/xml")]
        exchange.tell(Reply(status=status, headers=headers, content=content))

    answer.__name__ = f"answering_{status}"
    return answer


missing, conflict, not_implemented, denied, busy = map(answering, (404, 409, 501, 403, 503))


# -- the proxy ---------------------------------------------------------------------------------------------

Choose: TypeAlias = Callable[[Request], Fault]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Sixteen hands of each of several processes reach out at the same time.
    request_queue_size = 256

    def __init__(self, address: str, upstream: str, choose: Choose) -> None:
        super().__init__((address, 0), Exchange)
        self.upstream, self.choose = upstream, choose


@contextmanager
def serving(upstream: str, choose: Choose, address: str = LOOPBACK) -> Iterator[str]:
    """Stand before the server at an endpoint; the proxy's own endpoint, at any port of the address.

    Parameters
    ----------
    choose
        Says what happens to a request; several threads ask it.
    """
    server = _Server(address, urlsplit(upstream).netloc, choose)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://{address}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Proxy:
    """Remembers what was asked; the next requests of a method meet the faults that are planned, in order."""

    endpoint: str = ""
    seen: list[Request] = field(default_factory=list)
    planned: dict[str, list[Fault]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def plan(self, method: str, *faults: Fault) -> None:
        with self._lock:
            self.planned.setdefault(method, []).extend(faults)

    def choose(self, request: Request) -> Fault:
        with self._lock:
            self.seen.append(request)
            faults = self.planned.get(request.method)
            return faults.pop(0) if faults else no_fault

    @property
    def methods(self) -> list[str]:
        """Of all requests so far, in their order."""
        return [request.method for request in self.seen]

    def all_happened(self) -> bool:
        return not any(self.planned.values())

    def take(self) -> list[Request]:
        """What was asked since the last call."""
        with self._lock:
            taken, self.seen = self.seen, []
        return taken


@contextmanager
def proxy_before(upstream: str) -> Iterator[Proxy]:
    """A proxy on loopback before the server at an endpoint."""
    proxy = Proxy()
    with serving(upstream, proxy.choose) as proxy.endpoint:
        yield proxy
