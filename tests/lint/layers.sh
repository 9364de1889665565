#!/usr/bin/env bash
# Who may include whom: compares every #include "layer/..." with layers.txt; backends include nxl and
# their own folder only; nothing includes tests.
set -uo pipefail
cd "$(dirname "$0")/../.."
bad=0
while IFS=: read -r layer allowed; do
    case $layer in '#'* | '') continue ;; esac
    for file in agent/"$layer"/*.[ch] operator/"$layer"/*.[ch]; do
        [ -e "$file" ] || continue
        while read -r header; do
            part=${header%%/*}
            case " $layer $allowed " in *" $part "*) continue ;; esac
            echo "$file includes \"$header\": $layer may include: $allowed"
            bad=1
        done < <(sed -nE 's/^#include "([^"]*\/[^"]*)".*/\1/p' "$file")
        if grep -nE '#include <nixlet\.h>' "$file" | grep -q . && [ "$layer" != client ] && [ "$layer" != ctl ]; then
            echo "$file includes nixlet.h: that is the application's side"
            bad=1
        fi
    done
done <tests/lint/layers.txt
for file in backends/*/*.[ch]; do
    own=$(basename "$(dirname "$file")")
    while read -r header; do
        case $header in "$own"/* | */*) [ "${header%%/*}" = "$own" ] || { echo "$file includes \"$header\""; bad=1; } ;; esac
    done < <(sed -nE 's/^#include "([^"]*)".*/\1/p' "$file")
done
if grep -rnE '#include "(tests|support)/' agent backends operator 2>/dev/null; then
    echo "product code includes tests"
    bad=1
fi
exit $bad
