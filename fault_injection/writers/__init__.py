"""Many real processes that write one table at once, some of them killed: all of a driver but Spark."""
