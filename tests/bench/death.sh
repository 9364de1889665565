#!/bin/sh
# How soon others know that a client was killed: tests/bench/death.sh [KILLS]. Release build; JSON
# lines on standard output; exit status 1 if a goal is missed.
set -eu
cd "$(dirname "$0")/../.."
./deploy/build.sh release bench_death >&2
exec build/release/tests/bench_death "$@"
