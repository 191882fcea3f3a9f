"""Real Spark made to fail at chosen points; see ``docs/chaos.md``."""
