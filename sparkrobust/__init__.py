"""Write and read real Apache Hudi copy-on-write tables from PySpark.

>>> import sparkrobust as sr
>>> sr.write(df).options(**options).mode("append").save(path)  # doctest: +SKIP
>>> sr.read(spark).load(path)  # doctest: +SKIP

Names are loaded when first used: executors import this package too, and have no need of what only a
driver has.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from sparkrobust import errors as errors
    from sparkrobust.spark.reader import read as read
    from sparkrobust.spark.table import Table as Table
    from sparkrobust.spark.writer import WriteResult as WriteResult
    from sparkrobust.spark.writer import write as write

_HOMES = {
    "Table": "sparkrobust.spark.table",
    "WriteResult": "sparkrobust.spark.writer",
    "read": "sparkrobust.spark.reader",
    "write": "sparkrobust.spark.writer",
}

__all__ = ["Table", "WriteResult", "__version__", "errors", "read", "write"]


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("sparkrobust.errors")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
