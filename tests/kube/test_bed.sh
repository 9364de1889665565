#!/usr/bin/env bash
# bed.sh: real nodes run a pod, notice a container's death and a node's crash, and leave nothing behind.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${NXL_KUBE_BIN-$("$here/build.sh" --where 2>/dev/null)} || bin=""
[ -n "$bin" ] || { echo "SKIP: ${NXL_KUBE_WHY:-there is no kubelet; tests/kube/build.sh makes one}"; exit 77; }
[ -x /bin/busybox ] || { echo "SKIP: there is no busybox; deploy/packages.sh kube installs it"; exit 77; }
export NXL_KUBE_BIN=$bin
work=$(mktemp -d /tmp/nixlet-bed-test-XXXXXX)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/root/{bin,tmp}
cp /bin/busybox "$work/root/bin/"
for name in sh sleep id kill; do ln -s busybox "$work/root/bin/$name"; done
"$here/image.py" "$work/busybox.tar" example.invalid/busybox:1 "$work/root" sh

status=0
"$here/bed.sh" --nodes 2 --image "$work/busybox.tar" --folder "$work/bed" --manager-flag --node-monitor-grace-period=8s \
    --manager-flag --node-monitor-period=1s -- bash -c '
    set -ex
    kubectl run one --image=example.invalid/busybox:1 --image-pull-policy=Never --command -- sh -c "echo hello; exec sleep 1000"
    kubectl wait pod/one --for=condition=Ready --timeout=60s
    [ "$(kubectl logs one)" = hello ]
    uid=$(kubectl get pod one -o jsonpath={.metadata.uid})
    before=$(kubectl get pod one -o jsonpath="{.status.containerStatuses[0].containerID}")
    # attestation rests on this: the path of the cgroup names the pod
    pid=$(pgrep -f "^sleep 1000")
    grep -q "pod$uid" /proc/$pid/cgroup
    kill -9 $pid
    kubectl wait pod/one --for="jsonpath={.status.containerStatuses[0].restartCount}=1" --timeout=60s
    [ "$(kubectl get pod one -o jsonpath="{.status.containerStatuses[0].containerID}")" != "$before" ]
    kubectl delete pod one --grace-period=1
    kill -9 "$(cat "$NXL_KUBE_FOLDER/node2.pid")"
    kubectl wait node/node2 --for=condition=Ready=Unknown --timeout=60s
    kubectl get nodes
    exit 42' >"$work/out" 2>&1 || status=$?
if [ $status = 77 ]; then
    echo "SKIP: $(tail -1 "$work/out")"
    exit 77
elif [ $status != 42 ]; then
    echo "FAILED with status $status"
    tail -n 40 "$work/out"
    exit 1
fi
left=$(find /sys/fs/cgroup -maxdepth 2 -name 'bed-node[12]' | head -3)
[ -z "$left" ] || { echo "FAILED: $left stays behind"; exit 1; }
echo "ok"
