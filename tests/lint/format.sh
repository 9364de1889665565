#!/usr/bin/env bash
# Every C file is laid out as .clang-format says. Versions of clang-format differ, so only the oldest
# supported system's counts: 14.
set -uo pipefail
cd "$(dirname "$0")/../.."
tool=$(command -v clang-format-14 || command -v clang-format) || { echo "SKIP: clang-format is not installed"; exit 77; }
"$tool" --version | grep -q 'version 14\.' || { echo "SKIP: $("$tool" --version) lays out in another way than 14"; exit 77; }
git ls-files -z '*.c' '*.h' '*.cc' | xargs -0 "$tool" --dry-run --Werror 2>&1 | sed -nE 's/^([^:]+):([0-9]+):.*/\1:\2: run clang-format -i \1/p' | sort -u -t: -k1,1 | head -20
exit "${PIPESTATUS[1]}"
