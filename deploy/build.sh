#!/usr/bin/env bash
# Builds one preset (default release) into build/<preset>: build.sh [PRESET] [TARGET...]
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
shift || true
log=build/$preset.log
mkdir -p build
if ! cmake --preset "$preset" >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
fi
targets=()
for target in "$@"; do targets+=(--target "$target"); done
if ! cmake --build --preset "$preset" "${targets[@]}" >>"$log" 2>&1; then
    grep -E 'error|warning|FAILED' "$log" >&2 || tail -40 "$log" >&2
    exit 1
fi
