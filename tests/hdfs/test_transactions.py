"""Transactions, rollbacks and recoveries: the coordinator's own tests, on HDFS."""

from tests.coordinator.test_recovery import *  # noqa: F403
from tests.coordinator.test_transaction import *  # noqa: F403
