#!/usr/bin/env bash
# One table of default ports, without clash, and the option tables agree with it.
set -uo pipefail
cd "$(dirname "$0")/../.."
bad=0
table=agent/include/nxl/ports.h
ports=$(grep -oE 'X\([A-Z_]+, *[0-9]+' $table | grep -oE '[0-9]+$')
[ -n "$ports" ] || { echo "$table has no rows"; exit 1; }
twice=$(echo "$ports" | sort | uniq -d)
[ -z "$twice" ] || { echo "ports that stand twice in $table:" $twice; bad=1; }
while IFS=: read -r file port; do
    echo "$ports" | grep -qx "$port" || { echo "$file has default port $port, which is not in $table"; bad=1; }
done < <(grep -rhoE --include='*.c' -H '"[0-9.]*:7[0-9]{3}"' agent operator 2>/dev/null | sed -E 's/^([^:]*):.*:([0-9]+)"$/\1:\2/')
exit $bad
