#!/usr/bin/env bash
# clang-tidy with the repository's checks over all C++ sources: tidy.sh BUILD_DIR [path regex]
set -euo pipefail
if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    echo "usage: tidy.sh BUILD_DIR [path regex]" >&2
    exit 2
fi
build="$1"
filter="${2:-/(src|tests)/}"
python3 - "$build/compile_commands.json" "$filter" <<'EOF' | xargs -r -d '\n' -P "$(nproc)" -n 4 clang-tidy -p "$build" --quiet
import json, re, sys
files = {entry["file"] for entry in json.load(open(sys.argv[1]))}
for file in sorted(files):
    if re.search(sys.argv[2], file) and file.endswith(".cpp"):
        print(file)
EOF
