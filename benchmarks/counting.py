"""A proxy before an S3 server that counts what it is asked, by the driver and by tasks alike."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request: its method, the object's key (``""`` for one to the bucket), and its parameters."""

    method: str
    key: str
    query: dict[str, str]


@dataclass
class CountingProxy:
    """Where it listens, and what it has seen so far."""

    endpoint: str = ""
    seen: list[Request] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> list[Request]:
        """What was asked since the last call."""
        with self.lock:
            taken, self.seen = self.seen, []
        return taken


@contextmanager
def counting_proxy(upstream: str) -> Iterator[CountingProxy]:
    """Stand before the server at an endpoint, on loopback."""
    host = urlsplit(upstream).netloc
    proxy = CountingProxy()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def pass_on(self) -> None:
            url = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
            key = unquote(url.path).lstrip("/").partition("/")[2]
            with proxy.lock:
                proxy.seen.append(Request(method=self.command, key=key, query=query))
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            connection = http.client.HTTPConnection(host, timeout=60)
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in ("connection", "expect"):
                    connection.putheader(name, value)
            connection.endheaders(body or None)
            self._answer(connection.getresponse())
            connection.close()

        def _answer(self, answer: http.client.HTTPResponse) -> None:
            content = answer.read()
            length = answer.headers.get("Content-Length") if self.command == "HEAD" else str(len(content))
            self.send_response_only(answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.send_header("Content-Length", length or "0")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = pass_on

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
