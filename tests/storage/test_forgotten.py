"""A staged file that is forgotten, and never closed."""

from __future__ import annotations

import gc
import uuid

import pytest

from fault_injection.proxy import proxy_before
from fault_injection.s3_server import S3Server
from sparkrobust.storage.resolve import storage_for
from tests.servers import AzureServer
from tests.storage.conftest import BUCKET


@pytest.mark.parametrize("store", ["s3", "azure"])
def test_a_writer_that_is_forgotten_asks_the_store_nothing_when_its_memory_is_collected(
    request: pytest.FixtureRequest, store: str
) -> None:
    # That happens anywhere, an import that all threads wait for included.
    server: S3Server | AzureServer = request.getfixturevalue(f"{store}_server")
    folder = uuid.uuid4().hex[:8]
    if isinstance(server, S3Server):
        endpoint, url, key, below = server.endpoint, f"s3a://{BUCKET}/{folder}", "fs.s3a.endpoint", ""
    else:
        endpoint, url = f"http://127.0.0.1:{server.port}", server.url(folder)
        key, below = "fs.azure.blob.endpoint", f"/{server.account}"
    with proxy_before(endpoint) as proxy:
        storage = storage_for(url, {**server.options(), key: f"{proxy.endpoint}{below}"})
        writer = storage.stage("staging", "one", "a/final")
        writer.write(b"data")
        assert proxy.take() or store == "azure", "nothing went through the proxy"
        del writer
        gc.collect()
        assert proxy.take() == []
