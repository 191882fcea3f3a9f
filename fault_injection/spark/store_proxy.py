"""The proxy before a cluster's store, a process of its own: what happens to a request a session's rules say.

    python -m fault_injection.spark.store_proxy ADDRESS UPSTREAM

The environment names the session's folder, as for a driver's and a task's process.  Its endpoint is the
one line that it prints, when it listens.
"""

from __future__ import annotations

import sys
import threading
import time

from fault_injection.proxy import Fault, Request, answering, lose_answer, no_fault, serving
from fault_injection.spark.exchange import Hit, Rule, Run
from fault_injection.spark.inside import STORE, Process, become


class Judge:
    """Has each request reach the point ``request``, and finds out what the rules made of it there."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._in_hand = threading.local()  # each thread has a request of its own
        process.deeds |= {"answer": self._answer, "cut": self._cut, "slow": self._slow}

    def choose(self, request: Request) -> Fault:
        self._in_hand.fault = no_fault
        facts = {"method": request.method, "path": request.path, "query": request.query}
        self._process.reached("request", facts)
        chosen: Fault = self._in_hand.fault
        return chosen

    def _answer(self, run: Run, rule: Rule, hit: Hit) -> None:
        self._in_hand.fault = answering(int(rule.text))

    def _cut(self, run: Run, rule: Rule, hit: Hit) -> None:
        self._in_hand.fault = lose_answer

    def _slow(self, run: Run, rule: Rule, hit: Hit) -> None:
        time.sleep(float(rule.text))


def main(address: str, upstream: str) -> None:
    judge = Judge(become(STORE))
    with serving(upstream, judge.choose, address) as endpoint:
        sys.stdout.write(f"{endpoint}\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
