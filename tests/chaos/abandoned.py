"""A tester that is going to be killed: it starts a cluster and a driver, freezes that, says so, and waits.

python -m tests.chaos.abandoned FOLDER isolated|plain
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from fault_injection.spark.chaos import Chaos
from fault_injection.spark.cluster import Cluster

if __name__ == "__main__":
    with Cluster(Path(sys.argv[1]), isolated=sys.argv[2] == "isolated") as cluster, Chaos(cluster) as chaos:
        session = chaos.session()
        session.wait_until_whole()
        executors = [executor.pid for executor in session.executors()]
        session.freeze()
        print(json.dumps([*cluster.pids, *session.pids, *executors]), flush=True)
        time.sleep(3600)
