#!/usr/bin/env bash
# House rules that grep can see: no struct typedefs, no util files, no sleeping as synchronisation,
# and the project speaks only of itself.
set -uo pipefail
cd "$(dirname "$0")/../.."
bad=0
complain() { echo "$1:"; sed 's/^/  /'; }
found=$(git ls-files 'agent/*.[ch]' 'backends/*.[ch]' | xargs grep -nE '^typedef (struct|enum|union)' )
[ -z "$found" ] || { echo "$found" | complain "typedef of a struct"; bad=1; }
found=$(git ls-files | grep -E '(^|/)(util|utils|common|helper|helpers|misc|manager)(\.|/)')
[ -z "$found" ] || { echo "$found" | complain "file name that says nothing"; bad=1; }
found=$(git ls-files 'agent/*.c' 'backends/*.c' | xargs grep -nE '[^a-z_](sleep|usleep|nanosleep) *\(')
[ -z "$found" ] || { echo "$found" | complain "sleep instead of a fact"; bad=1; }
found=$(git ls-files 'agent/*.[ch]' 'backends/*.[ch]' | xargs grep -nE '\b(TODO|FIXME|XXX|HACK)\b')
[ -z "$found" ] || { echo "$found" | complain "unfinished"; bad=1; }
long=$(git ls-files 'agent/*.[ch]' 'backends/*.[ch]' | xargs wc -l | awk '$2 != "total" && $1 > 600')
[ -z "$long" ] || { echo "$long" | complain "files over 600 lines"; bad=1; }
exit $bad
