#!/usr/bin/env bash
# Every top-level folder and every room has a README; they stay short (40 lines; backends' how-to 120).
set -uo pipefail
cd "$(dirname "$0")/../.."
bad=0
for folder in agent backends crds deploy operator tests agent/base agent/wire agent/catalog agent/plan agent/host agent/xfer agent/front \
    agent/cluster agent/stream operator/push agent/status agent/client agent/ctl backends/null backends/fault backends/shm backends/ucx; do
    [ -d "$folder" ] || continue
    limit=40
    [ "$folder" = backends ] && limit=120
    if [ ! -f "$folder/README.md" ]; then
        echo "$folder has no README.md"
        bad=1
    elif [ "$(wc -l <"$folder/README.md")" -gt $limit ]; then
        echo "$folder/README.md has more than $limit lines"
        bad=1
    fi
done
exit $bad
