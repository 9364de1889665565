#!/usr/bin/env bash
# with-control-plane.sh gives a command a cluster, hands its exit status on and leaves nothing behind.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${NXL_KUBE_BIN-$("$here/build.sh" --where 2>/dev/null)} || bin=""
[ -n "$bin" ] || { echo "SKIP: ${NXL_KUBE_WHY:-there is no kube-apiserver; tests/kube/build.sh makes one}"; exit 77; }
export NXL_KUBE_BIN=$bin
work=$(mktemp -d /tmp/nixlet-kube-test-XXXXXX)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; tail -n 20 "$work"/*.out; exit 1; }

status=0
"$here/with-control-plane.sh" --manager --scheduler --crds --apiserver-flag --goaway-chance=0.01 --folder "$work/cluster" -- bash -c '
    set -e
    kubectl auth can-i "*" "*" >/dev/null
    kubectl get serviceaccount default -o name
    kubectl get nxp --all-namespaces
    curl -sf --cacert "$NXL_KUBE_CA" -H "Authorization: Bearer $(cat "$NXL_KUBE_TOKEN_FILE")" "$NXL_KUBE_URL/version" | grep gitVersion
    curl -sf "$NXL_KUBE_ETCD_URL/version"
    kubectl create serviceaccount agent >/dev/null
    kubectl create token agent --audience nixlet-operator | grep -c "\.[^.]*\."
    tr "\0" "\n" <"/proc/$(cat "$NXL_KUBE_FOLDER/apiserver.pid")/cmdline" | grep -x -- --goaway-chance=0.01
    exit 42' >"$work/first.out" 2>&1 || status=$?
[ $status = 42 ] || fail "the command's status came back as $status"
for name in etcd apiserver manager scheduler; do
    pid=$(cat "$work/cluster/$name.pid")
    [ ! -e "/proc/$pid" ] || fail "$name still runs as $pid"
done

# Killed the hard way it takes its servers along all the same.
"$here/with-control-plane.sh" --folder "$work/killed" -- bash -c 'echo up; exec sleep 60' >"$work/second.out" 2>&1 &
runner=$!
for _ in $(seq 900); do grep -q up "$work/second.out" && break; sleep 0.1; done
grep -q up "$work/second.out" || fail "it did not come up"
sleeper=$(cat /proc/$runner/task/$runner/children)
kill -9 $runner
wait $runner 2>/dev/null || true
for name in etcd apiserver; do
    pid=$(cat "$work/killed/$name.pid")
    for _ in $(seq 100); do [ -e "/proc/$pid" ] || break; sleep 0.1; done
    [ ! -e "/proc/$pid" ] || fail "$name outlives its runner as $pid"
done
for pid in $sleeper; do # what stays is the command, which is its own
    [ "$(cat "/proc/$pid/comm" 2>/dev/null)" != sleep ] || kill "$pid"
done
echo "ok"
