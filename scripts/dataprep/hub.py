"""Names of models and data sets on a hub, given where files are expected: nothing here reaches a network."""
from __future__ import annotations

import re
from pathlib import Path


def download_hint(path: Path, option: str = "") -> str:
    """", or, where org/name is a name on a hub, ..." where a path that is not here looks like one: it is of two words, and
    there is no folder org; else "". `option`: of the download, as "--repo-type dataset "."""
    words = re.fullmatch(r"(\w[\w.-]*)/(\w[\w.-]*)", str(path), re.ASCII)
    if words is None or path.exists() or path.parent.exists():
        return ""
    return (f", or, where {path} is a name on a hub, download it first: hf download {option}{path} --local-dir {words[2]}, "
            f"and give that folder")
