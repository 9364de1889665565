#!/bin/sh
# The numbers of one machine: tests/bench/local.sh [cost|move|delay|ucx|idle]. Release build; JSON lines
# on standard output; exit status 1 if a goal is missed. About a minute on two quiet cores.
set -eu
cd "$(dirname "$0")/../.."
./deploy/build.sh release bench_local >&2
exec build/release/tests/bench_local "$@"
