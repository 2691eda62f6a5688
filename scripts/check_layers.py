#!/usr/bin/env python3
"""Checks that includes follow the layers of the program.

  check_layers.py [ROOT]     exit code 1 and one line per violation

A folder of src/ may include itself and the folders named in LAYERS; ROOM_LAYERS orders the folders
inside some of them. A third-party header may be included only where THIRD_PARTY allows it. kernels/
includes nothing of src/, and only KERNEL_USERS include it, but for PURE_KERNEL_HEADERS.
"""
from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

LAYERS: dict[str, set[str]] = {
    "base": set(),
    "config": {"base"},
    "plan": {"config", "base"},
    "backend": {"base"},
    "comm": {"backend", "base"},
    "io": {"config", "base"},
    "data": {"plan", "io", "config", "base"},
    "adapter": {"plan", "config", "backend", "io", "base"},
    "model": {"adapter", "plan", "config", "backend", "io", "base"},
    "measure": {"model", "adapter", "data", "plan", "comm", "io", "backend", "config", "base"},
    "watch": {"comm", "base"},
    "train": {"measure", "model", "adapter", "data", "plan", "comm", "io", "backend", "config",
              "base"},
    "report": {"plan", "io", "config", "base"},
}
LAYERS["session"] = set(LAYERS)
# Inside a room: a folder may include itself and those before it. "." are the files of the room
# itself; where it is missing, each of these has its own place. No folder and no such file includes
# itself by way of others (circles()), also in rooms that are not listed.
ROOM_LAYERS: dict[str, list[str]] = {
    "plan": [".", "memory", "cost", "timing", "pack", "schedule", "predict", "deploy", "sweep",
             "deployments", "text"],
    "model": ["objective", "layers"],
    "train": ["checkpoint", "orders", "search", "records", "rewards", "workers", "services"],
}
LAYERS["bench"] = set(LAYERS) - {"watch", "report"}
LAYERS["selftest"] = {"io", "backend", "config", "base"}
LAYERS["app"] = {"selftest", "bench", "session", "report", "watch", "train", "measure", "plan",
                 "comm", "io", "backend", "config", "base"}
LAYERS["main.cpp"] = {"app", "session", "train", "comm", "backend", "base"}
LAYERS["pages.cpp"] = {"config"}

# Made by the build.
GENERATED = {"version_values.h"}

# Header (regular expression) -> path prefixes below src/ that may include it.
THIRD_PARTY: list[tuple[str, tuple[str, ...]]] = [
    (r"yaml-cpp/", ("config/", "plan/")),
    (r"coin/.*", ("plan/milp.cpp",)),
    (r"boost/asio.*", ("comm/",)),
    (r"boost/program_options.*", ("config/command_options.",)),
    (r"mpi\.h", ("comm/",)),
    (r"nccl\.h", ("comm/",)),
    (r"hdf5\.h|H5.*\.h", ("io/",)),
    (r"(oneapi/)?dnnl.*|cblas\.h|openblas.*|mkl.*", ("backend/cpu/",)),
    (r"cuda.*|cublas.*", ("backend/cuda/", "backend/gpu_info.cpp", "comm/nccl_",
                          "comm/stream_flags.")),
    (r"nvtx3/.*", ("backend/cuda/",)),
    (r"omp\.h", ("backend/cpu/",)),
    (r"nlohmann/.*", ("io/", "train/", "measure/", "session/", "bench/", "report/",
                       "selftest/", "app/")),
]
KERNEL_USERS = ("backend/cuda/",)
# Numbers without CUDA -> path prefixes below src/ that may include them, too: what kernels allocate
# is counted by the plan before there is a GPU, and offered by abstract classes of the backend.
PURE_KERNEL_HEADERS: dict[str, tuple[str, ...]] = {
    "kernels/sizes.h": ("backend/", "plan/cost/", "plan/memory/"),
    "kernels/lora/lora_sizes.h": ("plan/memory/",),
}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def includes(path: Path) -> list[tuple[int, str, bool]]:
    """Line, header and whether it was written with <> of every include."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            found.append((number, match[2], match[1] == "<"))
    return found


def own_target(header: str, root: Path) -> str | None:
    """Path below src/ or "kernels/..." of one of the program's own headers."""
    if (root / "src" / header).exists():
        return header
    if header.startswith("kernels/"):
        return header
    return None


def third_party_fault(name: str, header: str) -> str | None:
    for pattern, allowed in THIRD_PARTY:
        if re.fullmatch(pattern if pattern.endswith(("*", "h")) else pattern + ".*", header):
            if not name.startswith(allowed):
                return f"<{header}> belongs in {' or '.join(allowed)}"
    return None


def room_fault(name: str, target: str) -> str | None:
    """Of a file that includes another one of its room, which is in ROOM_LAYERS."""
    room = name.split("/")[0]
    order = ROOM_LAYERS[room]
    own, other = (file.rpartition("/")[0].partition("/")[2] or "." for file in (name, target))
    for folder in (own, other):
        if folder not in order and folder != ".":
            return f"the folder {room}/{folder} has no place in ROOM_LAYERS"
    if own in order and other in order and order.index(other) > order.index(own):
        return f"{name.rpartition('/')[0]} may not include {target}"
    return None


def place_in_room(name: str) -> str:
    """The folder of a file, or the file itself, without its ending, where it has none in its room."""
    room, _, rest = name.partition("/")
    folder = rest.partition("/")[0]
    return f"{room}/{folder if '/' in rest else rest.rpartition('.')[0]}"


def circles(root: Path) -> list[str]:
    """Circles of includes between places of a room of which one at least is a folder."""
    edges: dict[str, set[str]] = {}
    folders = set()
    for path in sources(root / "src"):
        name = path.relative_to(root / "src").as_posix()
        own = place_in_room(name)
        if name.count("/") > 1:
            folders.add(own)
        room = name.split("/")[0] + "/"
        for _, header, _ in includes(path):
            if header.startswith(room) and place_in_room(header) != own:
                edges.setdefault(own, set()).add(place_in_room(header))

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            new = edges.get(waiting.pop(), set()) - seen
            seen |= new
            waiting += new
        return seen

    behind = {place: reached(place) for place in edges}
    return [f"src/{folder}: includes itself by way of "
            + ", ".join(sorted(other for other in behind[folder]
                               if other != folder and folder in behind.get(other, set())))
            for folder in sorted(folders) if folder in behind.get(folder, set())]


def check_source(path: Path, root: Path) -> list[str]:
    """Violations of one file of src/."""
    name = path.relative_to(root / "src").as_posix()
    layer = name.split("/")[0]
    faults = []
    if layer not in LAYERS:
        return [f"src/{name}:1: the folder {layer} has no place among the layers"]
    for line, header, angled in includes(path):
        target = own_target(header, root)
        fault = None
        if target is None:
            fault = third_party_fault(name, header)
            if fault is None and not angled and header not in GENERATED:
                fault = f'"{header}" is not found below src/'
        elif target.startswith("kernels/"):
            users = KERNEL_USERS + PURE_KERNEL_HEADERS.get(target, ())
            if not name.startswith(users):
                fault = f"only {', '.join(users)} may include {target}"
        elif target.split("/")[0] not in LAYERS[layer] | {layer}:
            fault = f"{layer} may not include {target}"
        elif layer in ROOM_LAYERS and target.split("/")[0] == layer:
            fault = room_fault(name, target)
        if fault:
            faults.append(f"src/{name}:{line}: {fault}")
    return faults


def check_kernel(path: Path, root: Path) -> list[str]:
    """kernels/ is a leaf, and its pure headers include the standard library and each other."""
    name = path.relative_to(root).as_posix()
    faults = []
    for line, header, angled in includes(path):
        if (root / "src" / header).exists():
            faults.append(f"{name}:{line}: kernels may not include {header} of src/")
        elif name in PURE_KERNEL_HEADERS and header not in PURE_KERNEL_HEADERS and not (
                angled and "." not in header):
            faults.append(f"{name}:{line}: a header of numbers may not include {header}")
    return faults


def sources(folder: Path) -> list[Path]:
    if not folder.exists():
        return []
    return sorted(p for p in folder.rglob("*") if p.suffix in {".h", ".cpp", ".cu", ".cuh"})


def check(root: Path) -> list[str]:
    faults = []
    for path in sources(root / "src"):
        faults += check_source(path, root)
    for path in sources(root / "kernels"):
        faults += check_kernel(path, root)
    return faults + circles(root)


def main() -> int:
    faults = check(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT)
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
