"""``spark-submit`` of the PySpark that is installed beside this Python."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyspark


def spark_home() -> Path:
    """Where the jars and scripts of this PySpark are."""
    return Path(str(pyspark.__file__)).parent


if __name__ == "__main__":
    submit = spark_home() / "bin" / "spark-submit"
    os.execve(submit, [str(submit), *sys.argv[1:]], {**os.environ, "SPARK_HOME": str(spark_home())})
