#!/usr/bin/env bash
# What the shared objects export: libnixlet only what its headers declare, a plug-in one symbol.
set -uo pipefail
cd "$(dirname "$0")/../.."
bad=0
./deploy/build.sh release >/dev/null || exit 1
declared=$(cat agent/include/nixlet.h agent/include/nxl/err.h | tr '\n' ' ' | grep -oE 'NXL_EXPORT [^;]*;' | grep -oE 'nxl_[a-z_]+\(' | tr -d '(' | sort -u)
exported=$(nm -D --defined-only build/release/lib/libnixlet.so | awk '{print $3}' | sed 's/@.*//' | sort -u)
extra=$(comm -13 <(echo "$declared") <(echo "$exported") | grep -vE '^(_init|_fini|_edata|_end|__bss_start|NIXLET_.*)$')
missing=$(comm -23 <(echo "$declared") <(echo "$exported"))
[ -z "$extra" ] || { echo "libnixlet exports what no header declares:" $extra; bad=1; }
[ -z "$missing" ] || { echo "declared but not in libnixlet:" $missing; bad=1; }
needed=$(readelf -d build/release/lib/libnixlet.so | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -vE '^(libc|ld-linux|libpthread)')
[ -z "$needed" ] || { echo "libnixlet needs more than libc:" $needed; bad=1; }
count=0
for plugin in build/release/lib/nixlet/backends/*.so; do
    names=$(nm -D --defined-only "$plugin" | awk '{print $3}' | grep -vE '^(_init|_fini|_edata|_end|__bss_start)$')
    [ "$names" = nxl_backend_entry ] || { echo "$plugin exports:" $names; bad=1; }
    count=$((count + 1))
done
[ $count -ge 3 ] || { echo "only $count plug-ins were built"; bad=1; }
exit $bad
