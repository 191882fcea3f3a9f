"""What gets to a host that is cut off, and from it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from fault_injection.spark.chaos import Chaos
from fault_injection.spark.places import Host, Namespaces, why_no_namespaces

pytest_plugins = ["fault_injection.pytest_plugin"]

needs_namespaces = pytest.mark.skipif(bool(why_no_namespaces()), reason=why_no_namespaces())

DRIVER, STORE, FIRST, SECOND = "10.9.0.1", "10.9.0.2", "10.9.1.2", "10.9.2.2"
PORT = 5555
RECEIVE = f"""
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ear:
    ear.bind(("0.0.0.0", {PORT}))
    print("ready", flush=True)
    sys.stdin.read()
    ear.settimeout(0.2)
    print(ear.recv(10), flush=True)
"""
SEND = f"""
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mouth:
    mouth.sendto(b"hello", (sys.argv[1], {PORT}))
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespaces]:
    made = Namespaces(tmp_path_factory.mktemp("etc"), 2)
    yield made
    made.close()


def arrives(sender: Host, receiver: Host, address: str) -> bool:
    """Whether what one host sends gets to the other; who sends is never told that it does not."""
    with subprocess.Popen(
        [*receiver.prefix, sys.executable, "-c", RECEIVE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as ear:
        assert ear.stdout is not None
        assert ear.stdout.readline() == "ready\n"
        subprocess.run([*sender.prefix, sys.executable, "-c", SEND, address], check=True)
        return "hello" in ear.communicate()[0]


@needs_namespaces
def test_nothing_leaves_or_reaches_a_host_that_is_cut_off_but_for_the_store(places: Namespaces) -> None:
    driver, first, second = places.driver, places.host(0), places.host(1)

    def reached() -> list[bool]:
        return [
            arrives(first, driver, DRIVER),
            arrives(driver, first, FIRST),
            arrives(first, second, SECOND),
            arrives(second, first, FIRST),
            arrives(first, driver, STORE),
            arrives(second, driver, DRIVER),
        ]

    assert reached() == [True] * 6
    places.cut(first)
    assert reached() == [False, False, False, False, True, True]
    places.heal(first)
    assert reached() == [True] * 6


LOST = "99"


def say_what_blocks_a_lost_executor_has(spark: SparkSession) -> list[str]:
    """What Spark says of an executor whose words were held up by a cut; those that it lists then."""
    jvm, context = spark._jvm, spark.sparkContext._jsc.sc()
    assert jvm is not None
    nothing = jvm.scala.Option.empty()
    manager = jvm.org.apache.spark.storage.BlockManagerId.apply(LOST, "worker-0", 1, nothing)
    event = jvm.org.apache.spark.scheduler.SparkListenerBlockManagerAdded(0, manager, 0, nothing, nothing)
    context.listenerBus().post(event)
    context.listenerBus().waitUntilEmpty()
    listed = context.statusStore().executorList(True)
    return [listed.apply(number).id() for number in range(listed.size())]


def test_nobody_waits_for_a_lost_executor_that_spark_lists_as_active_ever_after(chaos: Chaos) -> None:
    job = f"{__name__}:{say_what_blocks_a_lost_executor_has.__name__}"
    assert LOST in chaos.run(job).outcome.value
    assert LOST in chaos.run(job).outcome.value
