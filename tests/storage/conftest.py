"""What the tests of the stores share."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator

import pytest

for suite in ("races", "cases", "reading", "writing", "staging"):
    pytest.register_assert_rewrite(f"sparkrobust.testing.storage_{suite}")
pytest.register_assert_rewrite("sparkrobust.testing.locks")

from fault_injection.s3_server import S3Server  # noqa: E402
from fault_injection.servers import s3  # noqa: E402
from sparkrobust.storage.object_store import ObjectStorage  # noqa: E402
from sparkrobust.storage.patience import Patience  # noqa: E402
from sparkrobust.storage.s3 import S3Storage  # noqa: E402
from sparkrobust.storage.s3_settings import S3Settings, client_of  # noqa: E402
from tests.servers import AzureServer, azurite  # noqa: E402
from tests.skipping import or_skip  # noqa: E402

BUCKET = "tables"
QUICK = Patience(tries=3, first_pause=0.02, longest_pause=0.1)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server with one bucket."""
    pytest.importorskip("botocore", reason="boto3 is not installed")
    with or_skip(lambda: s3(tmp_path_factory.mktemp("s3"))) as server:
        client_of(S3Settings.of(server.options(), BUCKET)).create_bucket(Bucket=BUCKET)
        yield server


@pytest.fixture
def s3_table(s3_server: S3Server) -> Callable[[], S3Storage]:
    """Makes handles on one fresh root in the bucket; publishing gives up early."""
    root = f"s3a://{BUCKET}/test/{uuid.uuid4().hex[:8]}"
    return lambda: S3Storage(root, s3_server.options(), settling=QUICK)


@pytest.fixture(scope="session")
def azure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    """A real Azure emulator with one container."""
    pytest.importorskip("obstore", reason="obstore is not installed")
    with or_skip(lambda: azurite(tmp_path_factory.mktemp("azurite"))) as server:
        yield server


@pytest.fixture
def azure_table(azure_server: AzureServer) -> Callable[[], ObjectStorage]:
    """Makes handles on one fresh root in the container."""
    root = azure_server.url(f"test/{uuid.uuid4().hex[:8]}")
    return lambda: ObjectStorage(root, azure_server.options())


@pytest.fixture
def unique() -> Callable[[], str]:
    """Gives names that no other test of this run has."""
    numbers = itertools.count()
    run = uuid.uuid4().hex[:8]
    return lambda: f"{run}-{next(numbers)}"
