#!/usr/bin/env python3
"""Makes a torch that was installed without its CUDA libraries importable on a CPU.

  stub_cuda_libraries.py TORCH_LIB_DIR

Writes a library beside torch's own for every CUDA library that these were linked with and that is
missing: all their functions return 0, which tells torch that there is no GPU. For tests only. Needs
binutils and gcc."""
import collections
import re
import subprocess
import sys
import tempfile
from pathlib import Path

CUDA_LIBRARY = re.compile(r"lib(cu|nv|nccl)")
CUDA_FUNCTION = re.compile(r"(__)?(cu|nv|nccl)")


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def symbols(library, which):
    """(name, version) of a library's dynamic symbols."""
    lines = output("nm", "-D", which, library).splitlines()
    return {tuple(re.sub("@+", "@", line.split()[-1]).partition("@")[::2]) for line in lines}


def missing(libraries):
    """Sonames of the CUDA libraries asked for, and version -> names of the functions used of them."""
    needed = {name for library in libraries
              for name in re.findall(r"NEEDED.*\[(.*)\]", output("readelf", "-d", library))}
    defined = {name for library in libraries for name, _ in symbols(library, "--defined-only")}
    functions = collections.defaultdict(set)
    for library in libraries:
        for name, version in symbols(library, "--undefined-only"):
            versioned = CUDA_LIBRARY.match(version) or version == "NVSHMEM"
            if name not in defined and (versioned or not version and CUDA_FUNCTION.match(name)):
                functions[version].add(name)
    return sorted(filter(CUDA_LIBRARY.match, needed)), functions


def write_stub(path, version, names):
    """A library whose functions `names` return 0, under a symbol version or none."""
    with tempfile.TemporaryDirectory() as folder:
        source, script = Path(folder, "stub.s"), Path(folder, "stub.map")
        labels = "".join(f".globl {name}\n.type {name}, @function\n{name}:\n" for name in sorted(names))
        source.write_text(f'.text\n{labels} xor %eax, %eax\n ret\n.section .note.GNU-stack\n')
        script.write_text(f"{version} {{ global: *; }};\n")
        command = ["gcc", "-shared", "-nostdlib", "-o", path, f"-Wl,-soname,{path.name}", source]
        if version and names:
            command.append(f"-Wl,--version-script={script}")
        subprocess.run(command, check=True)


def main(folder):
    libraries = [path for path in sorted(folder.glob("*.so*")) if not CUDA_LIBRARY.match(path.name)]
    sonames, functions = missing(libraries)
    for soname in sonames:
        version = "NVSHMEM" if "nvshmem" in soname else soname
        if soname.startswith("libnccl"):  # holds what has no version as well
            version = ""
        write_stub(folder / soname, version, functions[version])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
