#!/usr/bin/env bash
# Generated pages are in step with the tables they come from: agent/SETTINGS.md.
# Mend with: build/release/bin/nixlet-agent --print-docs > agent/SETTINGS.md
set -uo pipefail
cd "$(dirname "$0")/../.."
./deploy/build.sh release nixlet-agent >/dev/null || exit 1
diff <(build/release/bin/nixlet-agent --print-docs) agent/SETTINGS.md || {
    echo "agent/SETTINGS.md is stale: build/release/bin/nixlet-agent --print-docs > agent/SETTINGS.md"
    exit 1
}
