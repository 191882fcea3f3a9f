"""Whether a DataFrame gives each partition the same rows when Spark makes a part of it again.

Only a shuffle makes it matter: without one a task that runs again reads its own rows again, whole.
Below a shuffle, what goes by chance or by the order of rows may send a row elsewhere the second
time, and so lose it or double it.  The plan's text is looked at, since it is there on every Spark,
over Spark Connect too.  What Python functions do, nobody can see.
"""

from __future__ import annotations

import re
from threading import Lock

from pyspark.sql import DataFrame

from sparkrobust.world import Ids

_SHUFFLE = re.compile(r"\bExchange (?!SinglePartition)")
_BY_CHANCE = re.compile(
    r"\b(?:rand|randn|random|uuid|shuffle|randstr|uniform|monotonically_increasing_id|SPARK_PARTITION_ID)\("
    r"|RoundRobinPartitioning|\b(?:Global|Local|Collect)Limit\b|\bSample\b",
    re.IGNORECASE,
)
_BY_ORDER = re.compile(
    # Which of several rows comes first after a shuffle depends on which of its blocks was fetched first.
    r"\b(?:first|last|any_value|first_value|last_value|nth_value|max_by|min_by|mode"
    r"|collect_list|collect_set|listagg|row_number|ntile|lag|lead)\(",
    re.IGNORECASE,
)
_FIELDS_SHOWN = "spark.sql.debug.maxToStringFields"
_ALL = "100000"
_IDS = Ids()
_one_at_a_time = Lock()
"""What a plan shows is a setting of the session, which several threads may write with."""


def may_change(frame: DataFrame) -> bool:
    """Whether a second reading may give a partition other rows."""
    lines = _plan(frame).splitlines()
    shuffles = [number for number, line in enumerate(lines) if _SHUFFLE.search(line)]
    # What feeds a shuffle stands below it.
    below = lines[shuffles[0] :] if shuffles else []
    return any(_BY_CHANCE.search(line) or _BY_ORDER.search(line) for line in below)


def _plan(frame: DataFrame) -> str:
    # ``explain`` would print it, and whatever other threads print meanwhile would be taken for a part of it.
    spark, view = frame.sparkSession, f"sparkrobust_{_IDS.nonce()}"
    with _one_at_a_time:
        before = spark.conf.get(_FIELDS_SHOWN, None)
        spark.conf.set(_FIELDS_SHOWN, _ALL)
        try:
            frame.createTempView(view)
            try:
                return str(spark.sql(f"EXPLAIN SELECT * FROM {view}").collect()[0][0])
            finally:
                spark.catalog.dropTempView(view)
        finally:
            if before is None:
                spark.conf.unset(_FIELDS_SHOWN)
            else:
                spark.conf.set(_FIELDS_SHOWN, before)
