#!/usr/bin/env bash
# Runs a command with an API server of its own: with-control-plane.sh [OPTION]... [-- COMMAND [ARG]...]
#   --manager             also kube-controller-manager (garbage collection, service accounts, node lifecycle)
#   --scheduler           also kube-scheduler
#   --crds                with our CRDs from crds/
#   --apiserver-flag F    one more flag of kube-apiserver; likewise --manager-flag, --etcd-flag
#   --folder DIR          where logs and data lie; stays (default: a temporary folder, removed)
# COMMAND (default: an interactive shell) finds kubectl in PATH and KUBECONFIG, NXL_KUBE_URL, NXL_KUBE_CA,
# NXL_KUBE_TOKEN_FILE (system:masters), NXL_KUBE_FOLDER (pki/, audit.log, *.log, *.pid) and NXL_KUBE_ETCD_URL.
# Everything is on loopback with free ports and ends with COMMAND. 77 if the servers cannot be built here.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
manager=0 scheduler=0 crds=0 folder="" keep=0
apiserver_flags=() manager_flags=() etcd_flags=()
usage() { sed -n '2,10s/^# \{0,1\}//p' "$0"; }
while [ $# -gt 0 ]; do
    case $1 in
    --manager) manager=1 ;;
    --scheduler) scheduler=1 ;;
    --crds) crds=1 ;;
    --apiserver-flag) apiserver_flags+=("$2"); shift ;;
    --manager-flag) manager_flags+=("$2"); shift ;;
    --etcd-flag) etcd_flags+=("$2"); shift ;;
    --folder) folder=$2 keep=1; shift ;;
    -h | --help) usage; exit 0 ;;
    --) shift; break ;;
    *) usage >&2; exit 2 ;;
    esac
    shift
done
[ $# -gt 0 ] || set -- "${SHELL:-/bin/bash}"

bin=${NXL_KUBE_BIN:-$("$here/build.sh" kube etcd)}
if [ $keep = 1 ]; then mkdir -p "$folder"; folder=$(cd "$folder" && pwd); else folder=$(mktemp -d /tmp/nixlet-kube-XXXXXX); fi

pids=()
finish() {
    trap '' TERM INT HUP
    # The API server first: what it serves must not outlive its store.
    [ ${#pids[@]} = 0 ] || { kill -CONT "${pids[@]}"; kill "${pids[@]}"; } 2>/dev/null || true
    local deadline=$((SECONDS + 3)) pid
    for pid in "${pids[@]}"; do
        while kill -0 "$pid" 2>/dev/null && [ $SECONDS -lt $deadline ]; do sleep 0.05; done
        kill -9 "$pid" 2>/dev/null || true
    done
    wait 2>/dev/null || true
    [ $keep = 1 ] || rm -rf "$folder"
}
trap finish EXIT
trap 'exit 143' TERM INT HUP

start() { # start NAME [WORD]...
    local name=$1
    shift
    setpriv --pdeathsig KILL "$here/component.sh" "$name" "$folder" "$@" >"$folder/$name.log" 2>&1 </dev/null &
    pids+=($!)
    echo $! >"$folder/$name.pid"
}

await() { # await SECONDS PID COMMAND...: 1 when the time is over or the process has ended
    local deadline=$((SECONDS + $1)) pid=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        kill -0 "$pid" 2>/dev/null && [ $SECONDS -lt $deadline ] || return 1
        sleep 0.1
    done
}

free_ports() { # free_ports COUNT
    python3 -c 'import socket, sys
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(sys.argv[1]))]
print(*[s.getsockname()[1] for s in held])' "$1"
}

up() { # another process may take a port between the look and the start: then once more
    local port etcd_port peer_port
    read -r port etcd_port peer_port < <(free_ports 3)
    url=https://127.0.0.1:$port etcd_url=http://127.0.0.1:$etcd_port
    printf 'ADDRESS=127.0.0.1\nPORT=%s\nETCD_PORT=%s\nPEER_PORT=%s\nBIN=%s\n' "$port" "$etcd_port" "$peer_port" "$bin" >"$folder/ports"
    rm -rf "$folder/pki" "$folder/etcd"
    "$here/pki.sh" "$folder/pki" "$url"
    ask=(curl -sf --max-time 5 --cacert "$folder/pki/ca.crt" --cert "$folder/pki/admin.crt" --key "$folder/pki/admin.key")
    start etcd "${etcd_flags[@]}"
    # Without the controller-manager nobody makes the service accounts that the admission plug-in asks for.
    [ $manager = 1 ] || set -- --disable-admission-plugins=ServiceAccount
    start apiserver "$@" "${apiserver_flags[@]}"
    await 90 "${pids[-1]}" "${ask[@]}" "$url/readyz"
}

for attempt in 1 2 3; do
    up && break
    tail -n 5 "$folder"/*.log >&2
    kill -9 "${pids[@]}" 2>/dev/null || true
    wait 2>/dev/null || true
    pids=()
    [ "$attempt" != 3 ] || { echo "with-control-plane.sh: the API server did not become ready" >&2; exit 1; }
done
if [ $manager = 1 ]; then
    start manager "${manager_flags[@]}"
    await 60 "${pids[-1]}" "${ask[@]}" "$url/api/v1/namespaces/default/serviceaccounts/default" || {
        tail -n 5 "$folder/manager.log" >&2
        exit 1
    }
fi
[ $scheduler = 0 ] || start scheduler

export PATH=$bin:$PATH KUBECONFIG=$folder/pki/admin.kubeconfig NXL_KUBE_URL=$url NXL_KUBE_CA=$folder/pki/ca.crt
export NXL_KUBE_TOKEN_FILE=$folder/pki/admin.token NXL_KUBE_FOLDER=$folder NXL_KUBE_ETCD_URL=$etcd_url
if [ $crds = 1 ]; then
    kubectl apply --server-side -f "$here/../../crds/nixlpeers.yaml" -f "$here/../../crds/nixlpeerslices.yaml" >/dev/null
    kubectl wait --for=condition=Established crd/nixlpeers.nixlet.dev crd/nixlpeerslices.nixlet.dev --timeout=30s >/dev/null
fi
status=0
"$@" || status=$?
exit $status
