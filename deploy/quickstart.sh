#!/usr/bin/env bash
# The main job, visible: two node agents move a request's KV blocks between a prefill and a decode
# process, with Redis, notices and a sudden death. Leaves nothing running.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

usage() {
    cat <<'TEXT'
usage: deploy/quickstart.sh [--two-nodes] [--tls TRANSPORTS] [--no-install] [--keep-logs DIR]

  --two-nodes    put the two agents into two network namespaces joined by a veth pair (needs root):
                 no shared memory between them, UCX must use TCP
  --tls LIST     UCX transports, e.g. tcp (default: what UCX finds best)
  --no-install   do not look for missing packages
  --keep-logs D  copy the logs of agents, clients and Redis to D
TEXT
}

two_nodes=0 install=1 logs="" transports=""
while [ $# -gt 0 ]; do
    case $1 in
    --two-nodes) two_nodes=1 ;;
    --tls) transports=$2; shift ;;
    --no-install) install=0 ;;
    --keep-logs) logs=$2; shift ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
    esac
    shift
done

run=$(mktemp -d "${TMPDIR:-/tmp}/nixlet-quickstart.XXXXXX")
pids=() spaces=()
cleanup() {
    status=$?
    trap - EXIT INT TERM
    for ((i = ${#pids[@]} - 1; i >= 0; i--)); do kill "${pids[i]}" 2>/dev/null || true; done
    for pid in "${pids[@]}"; do
        for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; read -rt 0.05 <> <(:) || true; done
        kill -KILL "$pid" 2>/dev/null || true
    done
    for space in "${spaces[@]}"; do ip netns del "$space" 2>/dev/null || true; done
    if [ -n "$logs" ]; then mkdir -p "$logs" && cp "$run"/*.log "$logs"/ 2>/dev/null || true; fi
    if [ $status -ne 0 ]; then
        for log in "$run"/*.log; do [ -s "$log" ] && { echo "--- ${log##*/}"; tail -n 15 "$log"; }; done >&2
    fi
    rm -rf "$run"
    exit $status
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Waits for a fact: until COMMAND... succeeds, 15 s at most.
until_true() {
    what=$1
    shift
    for _ in $(seq 300); do
        "$@" >/dev/null 2>&1 && return 0
        read -rt 0.05 <> <(:) || true
    done
    echo "quickstart: $what did not come up in 15 s" >&2
    return 1
}

[ "$(uname -s)" = Linux ] || { echo "quickstart: nixlet runs on Linux" >&2; exit 1; }
if [ $two_nodes = 1 ] && [ "$(id -u)" != 0 ]; then
    echo "quickstart: --two-nodes makes network namespaces and needs root" >&2
    exit 1
fi
[ $install = 0 ] || ./deploy/packages.sh build run
echo "building (build/release) ..."
./deploy/build.sh release nixlet-agent nixlet nixlet-prefill nixlet-decode
bin=$root/build/release/bin

space_a="" space_b="" address_a=127.0.0.1 address_b=127.0.0.1
if [ $two_nodes = 1 ]; then
    id=$$
    space_a=nxl-a-$id space_b=nxl-b-$id
    ip netns add "$space_a" && spaces+=("$space_a")
    ip netns add "$space_b" && spaces+=("$space_b")
    ip link add "nxa$id" netns "$space_a" type veth peer name "nxb$id" netns "$space_b"
    address_a=10.77.0.1 address_b=10.77.0.2
    for side in a b; do
        eval "space=\$space_$side address=\$address_$side"
        ip -n "$space" link set lo up
        ip -n "$space" addr add "$address/24" dev "nx$side$id"
        ip -n "$space" link set "nx$side$id" up
    done
    link_is_up() { [ "$(ip netns exec "$1" cat "/sys/class/net/$2/operstate")" = up ]; }
    until_true "the link of node a" link_is_up "$space_a" "nxa$id"
    until_true "the link of node b" link_is_up "$space_b" "nxb$id"
    transports=${transports:-tcp}
    echo "two network namespaces, joined by a veth pair: $address_a and $address_b"
fi

# In a namespace of its own a process also needs that namespace's /sys, where UCX reads the devices.
enter() {
    if [ -z "$1" ]; then shift; exec "$@"; fi
    space=$1
    shift
    exec ip netns exec "$space" "$@"
}

start() { # start NAME SPACE COMMAND...
    name=$1 space=$2
    shift 2
    enter "$space" "$@" >"$run/$name.log" 2>&1 &
    pids+=($!)
    disown $! # its end is ours to report, not the shell's
}

start redis "" redis-server --port 0 --unixsocket "$run/redis.sock" --save "" --appendonly no --daemonize no --dir "$run"
until_true "redis-server" redis-cli -s "$run/redis.sock" ping
./deploy/certs.sh "$run/pki" quickstart node-a node-b >"$run/certs.log" 2>&1

agent() { # agent SIDE SPACE ADDRESS
    mkdir -p "$run/$1"
    args=(--agent.node="node-$1" --agent.cluster=quickstart --socket.path="$run/$1/agent.sock" --http.socket="$run/$1/http.sock"
        --http.listen= --link.listen="$3:0" --link.cert="$run/pki/node-$1.pem" --link.key="$run/pki/node-$1.key"
        --link.ca="$run/pki/ca.pem" --store.url="unix://$run/redis.sock")
    [ -z "$transports" ] || args+=(--backends.ucx.tls="$transports")
    start "agent-$1" "$2" "$bin/nixlet-agent" "${args[@]}"
    until_true "agent $1" curl -sf --unix-socket "$run/$1/http.sock" http://localhost/readyz
}
agent a "$space_a" "$address_a"
agent b "$space_b" "$address_b"
echo "two agents are ready, linked by TLS 1.3 when they first need each other"

start prefill "$space_a" "$bin/nixlet-prefill" "$run/a/agent.sock"
enter_b=()
[ -z "$space_b" ] || enter_b=(ip netns exec "$space_b")
status=0
"${enter_b[@]}" "$bin/nixlet-decode" "$run/b/agent.sock" || status=$?
[ $status = 0 ] && echo "all of it was true" || echo "NOT all of it was true" >&2
exit $status
