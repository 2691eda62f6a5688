"""One line in place of a traceback where a script's Python packages are missing."""
from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def needed_packages(module: str, names: str) -> Iterator[None]:
    """Around the imports of a script, whose __name__ is `module`: ends it with exit code 2 if a package is missing."""
    try:
        yield
    except ImportError as missing:
        if module != "__main__":
            raise
        print(f"{Path(sys.argv[0]).stem}: needs the Python packages {names}: pip install -r scripts/requirements.txt "
              f"({missing})", file=sys.stderr)
        sys.exit(2)
