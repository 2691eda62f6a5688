#!/usr/bin/env bash
# The Python of the tests: an environment of its own with tests/python/requirements*.txt, kept in
# ${XDG_CACHE_HOME:-~/.cache}/loratrain-tests under a name that changes with these files.
#   test_python.sh --make      makes it where it is missing (1.5 GB, half a minute of CPU time);
#                              where pip gets no packages it says so and exits with 0
#   test_python.sh ARGUMENT... runs it, or python3 where it has not been made
set -euo pipefail
here="$(cd "$(dirname "$0")/../tests/python" && pwd)"
hash="$(cat "$here"/requirements.txt "$here"/requirements_torch.txt "$here"/stub_cuda_libraries.py | sha256sum)"
folder="${XDG_CACHE_HOME:-$HOME/.cache}/loratrain-tests/${hash:0:12}"

make_environment() {
    local pip=("$folder/bin/python" -m pip install -q --disable-pip-version-check)
    rm -rf "$folder"
    python3 -m venv "$folder" && "${pip[@]}" -r "$here/requirements.txt" &&
        "${pip[@]}" --no-deps -r "$here/requirements_torch.txt" &&
        "$folder/bin/python" "$here/stub_cuda_libraries.py" "$folder"/lib/python3*/site-packages/torch/lib &&
        "$folder/bin/python" -c 'import torch, peft' && touch "$folder/ready"
}

if [ "${1:-}" = --make ]; then
    [ -e "$folder/ready" ] && exit 0
    mkdir -p "$(dirname "$folder")"
    make_environment >"$folder.log" 2>&1 ||
        echo "no Python environment for tests (those are skipped): $(tail -n 1 "$folder.log")"
    exit 0
fi
if [ -e "$folder/ready" ]; then exec "$folder/bin/python" "$@"; fi
exec python3 "$@"
