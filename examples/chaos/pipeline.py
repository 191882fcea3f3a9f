"""A pipeline as anybody has one: orders come as JSON, each customer's total goes out as Parquet."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F


def totals(spark: SparkSession, orders: str, out: str) -> int:
    """Write the total of each customer; how many customers there are."""
    read = spark.read.schema("customer string, amount long").json(orders)
    summed = read.groupBy("customer").agg(F.sum("amount").alias("amount"), F.count("*").alias("orders"))
    summed.write.mode("overwrite").parquet(out)
    return spark.read.parquet(out).count()
