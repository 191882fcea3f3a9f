"""Whether a DataFrame gives each partition the same rows when Spark makes a part of it again.

Only a shuffle makes it matter: without one a task that runs again reads its own rows again, whole.
Below a shuffle, what goes by chance or by the order of rows may send a row elsewhere the second
time, and so lose it or double it.  The plan's text is looked at, since it is there on every Spark,
over Spark Connect too.  What Python functions do, nobody can see.
"""

from __future__ import annotations

import contextlib
import io
import re

from pyspark.sql import DataFrame

_SHUFFLE = re.compile(r"\bExchange (?!SinglePartition)")
_BY_CHANCE = re.compile(
    r"\b(?:rand|randn|random|uuid|shuffle|randstr|uniform|monotonically_increasing_id|SPARK_PARTITION_ID)\("
    r"|RoundRobinPartitioning|\b(?:Global|Local|Collect)Limit\b|\bSample\b",
    re.IGNORECASE,
)
_FIELDS_SHOWN = "spark.sql.debug.maxToStringFields"
_ALL = "100000"


def may_change(frame: DataFrame) -> bool:
    """Whether a second reading may give a partition other rows."""
    lines = _plan(frame).splitlines()
    shuffles = [number for number, line in enumerate(lines) if _SHUFFLE.search(line)]
    # What feeds a shuffle stands below it.
    return bool(shuffles) and any(_BY_CHANCE.search(line) for line in lines[shuffles[0] :])


def _plan(frame: DataFrame) -> str:
    conf = frame.sparkSession.conf
    before = conf.get(_FIELDS_SHOWN, None)
    conf.set(_FIELDS_SHOWN, _ALL)
    try:
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            frame.explain()
        return text.getvalue()
    finally:
        if before is None:
            conf.unset(_FIELDS_SHOWN)
        else:
            conf.set(_FIELDS_SHOWN, before)
