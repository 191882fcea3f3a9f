"""What one of Spark's Python workers does between two tasks, made cheap.

Before each task the worker invalidates the import caches, for which Python (up to 3.12) reads the
directory of every archive on the path again, and PySpark itself is such an archive; after each task
it collects garbage among all objects that its imports have made.  Together that is a tenth of a
second of processor time for a task, which may have ten milliseconds of work.
"""

from __future__ import annotations

import gc
import sys
import zipimport

_frozen = False


def settle() -> None:
    """Leave the worker such that its next task starts quickly; called at the end of each of ours."""
    global _frozen
    if not _frozen:
        # Modules live as long as the process: the collector need not look at them again.
        gc.collect()
        gc.freeze()
        _frozen = True
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            # An import that looks there makes it anew.
            sys.path_importer_cache.pop(path, None)
