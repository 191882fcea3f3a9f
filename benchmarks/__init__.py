"""Side-by-side measurements of sparkrobust and its peers; ``python -m benchmarks --help``."""
