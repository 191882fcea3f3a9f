"""PySpark's daemon, from which the Python workers of an executor are forked, in a job that can be hit.

Spark starts it by its setting ``spark.python.daemon.module``.
"""

from __future__ import annotations

import runpy

from fault_injection.spark.inside import TASK, become

if __name__ == "__main__":
    become(TASK)
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
