#!/usr/bin/env bash
# clang-tidy with the repository's checks over all C++ sources: tidy.sh BUILD_DIR [path regex]
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
build="$1"
filter="${2:-/(src|tests)/}"
python3 - "$build/compile_commands.json" "$filter" <<'EOF' | xargs -P "$(nproc)" -n 4 clang-tidy -p "$build" --quiet
import json, re, sys
files = {entry["file"] for entry in json.load(open(sys.argv[1]))}
print("\n".join(sorted(f for f in files if re.search(sys.argv[2], f) and f.endswith(".cpp"))))
EOF
