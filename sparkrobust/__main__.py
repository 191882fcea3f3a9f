"""``python -m sparkrobust``, and the command ``sparkrobust``."""

from __future__ import annotations

import sys

try:
    from sparkrobust.cli import main
except ImportError as missing:
    sys.exit(f"sparkrobust's command needs typer and rich (sparkrobust[cli]): {missing}")

if __name__ == "__main__":
    main()
