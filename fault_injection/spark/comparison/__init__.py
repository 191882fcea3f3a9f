"""The same faults for Hudi, Delta, Iceberg, plain parquet and sparkrobust, by one command."""
