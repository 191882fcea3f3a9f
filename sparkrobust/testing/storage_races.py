"""Races for the storage suite: what each thread or process does, and how they are started together."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from sparkrobust.storage.contract import AlreadyExistsError, ChangedError, Storage

_PATIENCE_SECONDS = 120.0

Result = TypeVar("Result")


def together(number: int, action: Callable[[int], Result]) -> list[Result]:
    """Run ``action(0)`` ... ``action(number - 1)`` in threads that start at one moment."""
    barrier = threading.Barrier(number)
    results: dict[int, Result] = {}
    failures: list[BaseException] = []

    def run(which: int) -> None:
        try:
            barrier.wait(_PATIENCE_SECONDS)
            results[which] = action(which)
        except BaseException as error:  # raised again below, in the thread of the test
            failures.append(error)

    threads = [threading.Thread(target=run, args=(which,), daemon=True) for which in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_PATIENCE_SECONDS)
    if failures:
        raise failures[0]
    assert len(results) == number, "a thread did not come to an end"
    return [results[which] for which in range(number)]


def wins(action: Callable[[], None]) -> bool:
    """Whether the action was the one that created the object."""
    try:
        action()
    except AlreadyExistsError:
        return False
    return True


def add_one(storage: Storage, path: str, times: int) -> int:
    """Increase the number in an object, again and again; how often somebody else was faster."""
    lost = 0
    for _ in range(times):
        while True:
            data, version = storage.read_versioned(path)
            try:
                storage.replace_if_unchanged(path, b"%d" % (int(data) + 1), version)
                break
            except ChangedError:
                lost += 1
    return lost


def in_processes(number: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Run ``work(which, barrier, *arguments)`` in fresh processes and collect what each returns."""
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(number), context.SimpleQueue()
    processes = [
        context.Process(target=_answer, args=(answers, work, which, barrier, *arguments), daemon=True)
        for which in range(number)
    ]
    for process in processes:
        process.start()
    try:
        for process in processes:
            process.join(_PATIENCE_SECONDS)
        assert [process.exitcode for process in processes] == [0] * number
        return [answers.get() for _ in processes]
    finally:
        for process in processes:
            process.kill()


def _answer(answers: Any, work: Callable[..., Any], which: int, barrier: Any, *arguments: Any) -> None:
    answers.put(work(which, barrier, *arguments))


def put_rounds(which: int, barrier: Any, storage: Storage, folder: str, rounds: int) -> tuple[int, list[int]]:
    """In each round all processes create one object; who this is, and the rounds that it won."""
    won = []
    for number in range(rounds):
        barrier.wait(_PATIENCE_SECONDS)
        if wins(partial(storage.put_if_absent, f"{folder}/{number}", b"%d" % which)):
            won.append(number)
    return which, won


def add_rounds(_which: int, barrier: Any, storage: Storage, path: str, times: int) -> int:
    """All processes increase one number."""
    barrier.wait(_PATIENCE_SECONDS)
    return add_one(storage, path, times)


def read_all(_which: int, _barrier: Any, storage: Storage, path: str) -> bytes:
    """What another process finds under a path."""
    return storage.read(path)
