"""A proxy before a real server that loses what a test tells it to: requests, answers, halves of them."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


class Fault(Enum):
    """What happens to a request."""

    LOSE_REQUEST = "the server never sees it, and the connection is cut"
    LOSE_ANSWER = "the server does it, and the connection is cut"
    CUT_BODY = "the server does it, and half of the answer's body comes"
    BUSY = "503 SlowDown, without asking the server"
    MISSING = "404, without asking the server"
    CONFLICT = "409 ConditionalRequestConflict, without asking the server"
    NOT_IMPLEMENTED = "501 NotImplemented, without asking the server"
    DENIED = "403 AccessDenied, without asking the server"


_ANSWERS = {
    Fault.BUSY: (503, "SlowDown"),
    Fault.MISSING: (404, "NoSuchKey"),
    Fault.CONFLICT: (409, "ConditionalRequestConflict"),
    Fault.NOT_IMPLEMENTED: (501, "NotImplemented"),
    Fault.DENIED: (403, "AccessDenied"),
}


@dataclass
class LossyProxy:
    """Faults for the next requests of a method, in order; everything else goes through."""

    endpoint: str
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def plan(self, method: str, *faults: Fault) -> None:
        with self.lock:
            self.faults.setdefault(method, []).extend(faults)

    def next_fault(self, method: str) -> Fault | None:
        with self.lock:
            self.seen.append(method)
            planned = self.faults.get(method)
            return planned.pop(0) if planned else None

    def all_happened(self) -> bool:
        return not any(self.faults.values())


@contextmanager
def lossy_proxy(upstream: str) -> Iterator[LossyProxy]:
    """A proxy on loopback before the server at an endpoint."""
    host = urlsplit(upstream).netloc
    proxy = LossyProxy(endpoint="")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            fault = proxy.next_fault(self.command)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if fault in _ANSWERS:
                self._answer(*_ANSWERS[fault])
            elif fault is Fault.LOSE_REQUEST:
                self._cut()
            else:
                self._forward(body, fault)

        def _forward(self, body: bytes, fault: Fault | None) -> None:
            connection = http.client.HTTPConnection(host, timeout=60)
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in ("connection", "expect"):
                    connection.putheader(name, value)
            connection.endheaders(body or None)
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            if fault is Fault.LOSE_ANSWER:
                self._cut()
                return
            self.send_response_only(answer.status)
            length = answer.headers.get("Content-Length") if self.command == "HEAD" else str(len(content))
            for name, value in answer.headers.items():
                if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.send_header("Content-Length", length or "0")
            self.end_headers()
            if fault is Fault.CUT_BODY:
                self.wfile.write(content[: len(content) // 2])
                self._cut()
            else:
                self.wfile.write(content)

        def _answer(self, status: int, code: str) -> None:
            content = b""
            if self.command != "HEAD":
                content = b"<Error><Code>%s</Code><Message>planned</Message></Error>" % code.encode()
            self.send_response_only(status)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Content-Type", "application/xml")
            self.end_headers()
            self.wfile.write(content)

        def _cut(self) -> None:
            self.close_connection = True
            with suppress(OSError):
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    proxy.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
