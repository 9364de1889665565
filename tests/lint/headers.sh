#!/usr/bin/env bash
# Every public header stands alone, as strict C11 and as C++17; every inner one as GNU C17.
set -uo pipefail
cd "$(dirname "$0")/../.."
bad=0
flags="-Wall -Wextra -Wpedantic -Werror -Iagent/include -fsyntax-only"
for header in agent/include/*.h agent/include/nxl/*.h; do
    # shellcheck disable=SC2086
    gcc -std=c11 $flags -x c "$header" || { echo "not C11 alone: $header"; bad=1; }
    # shellcheck disable=SC2086
    g++ -std=c++17 $flags -x c++ "$header" || { echo "not C++17 alone: $header"; bad=1; }
done
for header in agent/*/*.h backends/*.h; do
    case $header in agent/include/*) continue ;; esac
    # shellcheck disable=SC2086
    gcc -std=gnu17 -D_GNU_SOURCE $flags -Iagent -Ibackends -I"$(dirname "$header")" -x c "$header" || { echo "does not stand alone: $header"; bad=1; }
done
exit $bad
