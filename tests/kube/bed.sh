#!/usr/bin/env bash
# Runs a command with a cluster of real nodes (kubelet, containerd, runc), each in namespaces of its own:
#   bed.sh [OPTION]... [-- COMMAND [ARG]...]
#   --nodes N        how many (default 1)
#   --image F.tar    loaded on every node, with image.py's or any OCI archive; may be given several times
#   --folder DIR     where logs and data lie; stays (default: a temporary folder, removed)
#   --apiserver-flag F, --manager-flag F
# COMMAND finds kubectl in PATH, KUBECONFIG and NXL_KUBE_FOLDER. Kill -9 of $(cat $NXL_KUBE_FOLDER/node1.pid) is a crash
# of node1, `ip -n node1 link set eth0 down` cuts it off. Nothing reaches the machine's network; all ends with COMMAND.
# Needs root. 77 if it cannot run here, and why.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

# Keeps the cgroup mounts under a /sys that belongs to this network namespace, and gives it a /run of its own. While
# propagation is private: unmounting a copy of shared mounts would take the originals along.
own_sys_and_run() {
    mkdir -p "$folder/cgroups"
    mount --rbind /sys/fs/cgroup "$folder/cgroups"
    mount -t sysfs sysfs /sys
    mount --rbind "$folder/cgroups" /sys/fs/cgroup
    umount -l "$folder/cgroups"
    mount -t tmpfs -o mode=755 tmpfs /run
    mkdir -p /run/netns /run/lock
}

write_node_settings() { # write_node_settings NAME NUMBER
    cat >"$node/cni/10-pods.conflist" <<JSON
{"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
 "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.$2.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "/run/cni-ipam"}}]}
JSON
    cat >"$node/containerd.toml" <<TOML
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.internal.v1.opt"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "example.invalid/pause:1"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$node/cni"
TOML
    # failCgroupV1: from 1.35 on a kubelet refuses machines with the older cgroups unless told otherwise.
    cat >"$node/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: /bed-$1
failSwapOn: false
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $folder/pki/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $folder/pki/serve-$1.crt
tlsPrivateKeyFile: $folder/pki/serve-$1.key
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
resolvConf: ""
enforceNodeAllocatable: []
makeIPTablesUtilChains: false
evictionHard: {memory.available: "100Mi", nodefs.available: "1%", imagefs.available: "1%", nodefs.inodesFree: "1%"}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
YAML
}

run_node() { # run_node NAME NUMBER ADDRESS: in the namespaces of the node
    node=$folder/$1
    mkdir -p "$node"/{containerd,kubelet,pods,cni}
    hostname "$1"
    own_sys_and_run
    # The default paths, since charts and volume drivers hard-code them, but a folder each.
    local pair image group
    for pair in kubelet:/var/lib/kubelet pods:/var/log/pods containerd:/var/lib/containerd; do
        mkdir -p "${pair#*:}"
        mount --bind "$node/${pair%%:*}" "${pair#*:}"
    done
    mount --make-rshared /
    for group in /sys/fs/cgroup/*/; do mkdir -p "${group}bed-$1" 2>/dev/null || true; done
    if [ -f /sys/fs/cgroup/cpuset/cpuset.cpus ]; then
        for group in cpus mems; do cat "/sys/fs/cgroup/cpuset/cpuset.$group" >"/sys/fs/cgroup/cpuset/bed-$1/cpuset.$group"; done
    fi
    write_node_settings "$1" "$2"
    containerd -c "$node/containerd.toml" >"$folder/containerd-$1.log" 2>&1 &
    until ctr -n k8s.io version >/dev/null 2>&1; do sleep 0.05; done
    while read -r image; do ctr -n k8s.io images import "$image" >/dev/null; done <"$folder/images"
    "$bin/kubelet" --config="$node/kubelet.yaml" --kubeconfig="$folder/pki/$1.kubeconfig" --hostname-override="$1" \
        --node-ip="$3" --v=2 >"$folder/kubelet-$1.log" 2>&1 &
    wait -n
    exit 1
}

start() { # start NAME [WORD]...
    local name=$1
    shift
    "$here/component.sh" "$name" "$folder" "$@" >"$folder/$name.log" 2>&1 </dev/null &
    echo $! >"$folder/$name.pid"
}

await() { # await SECONDS COMMAND...
    local deadline=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $deadline ] || { echo "bed.sh: still not: $*" >&2; tail -n 5 "$folder"/*.log >&2; return 1; }
        sleep 0.1
    done
}

add_node() { # add_node NUMBER: a network namespace on the bridge, keys, and the node in it
    local name=node$1 ip=10.250.0.$((10 + $1)) pki=$folder/pki
    pki_leaf "$name" "/O=system:nodes/CN=system:node:$name" clientAuth
    pki_leaf "serve-$name" "/O=system:nodes/CN=system:node:$name" serverAuth "DNS:$name,IP:$ip"
    pki_kubeconfig "$name" https://10.250.0.1:443
    ip netns add "$name"
    ip link add "v$1" type veth peer name eth0 netns "$name"
    ip link set "v$1" master lan up
    ip -n "$name" addr add "$ip/24" dev eth0
    ip -n "$name" link set lo up
    ip -n "$name" link set eth0 up
    ip -n "$name" route add default via 10.250.0.1
    ip route add "10.244.$1.0/24" via "$ip"
    NXL_BED=node nsenter --net="/run/netns/$name" unshare --mount --pid --uts --ipc --fork --kill-child --mount-proc \
        --propagation private "$here/bed.sh" "$name" "$1" "$ip" >"$folder/$name.log" 2>&1 &
    echo $! >"$folder/$name.pid"
}

run_cluster() {
    own_sys_and_run
    mount --make-rshared /
    ip link set lo up
    sysctl -qw net.ipv4.ip_forward=1
    # The bridge carries the address of the service kubernetes, and the server listens on 443: no kube-proxy is needed.
    ip link add lan type bridge
    ip addr add 10.250.0.1/24 dev lan
    ip addr add 10.96.0.1/32 dev lan
    ip link set lan up
    printf 'ADDRESS=10.250.0.1\nBIND=0.0.0.0\nPORT=443\nETCD_PORT=2379\nPEER_PORT=2380\nBIN=%s\n' "$bin" >"$folder/ports"
    local pki=$folder/pki number
    # shellcheck disable=SC1091
    . "$here/pki.sh"
    pki_all https://127.0.0.1:443 10.250.0.1
    export PATH=$bin:$PATH KUBECONFIG=$pki/admin.kubeconfig NXL_KUBE_FOLDER=$folder NXL_KUBE_URL=https://127.0.0.1:443
    export NXL_KUBE_CA=$pki/ca.crt NXL_KUBE_TOKEN_FILE=$pki/admin.token
    start etcd
    # shellcheck disable=SC2086
    start apiserver $NXL_BED_APISERVER
    for number in $(seq "$nodes"); do add_node "$number"; done
    await 90 kubectl get --raw /readyz
    # shellcheck disable=SC2086
    start manager $NXL_BED_MANAGER
    start scheduler
    for number in $(seq "$nodes"); do await 120 kubectl wait --for=condition=Ready "node/node$number" --timeout=1s; done
    await 60 kubectl get serviceaccount default
    echo "bed.sh: $nodes node(s) ready after $SECONDS s" >&2
    unset NXL_BED
    local status=0
    "$@" || status=$?
    exit $status
}

case ${NXL_BED:-} in
node) folder=$NXL_BED_FOLDER bin=$NXL_BED_BIN && run_node "$@" ;;
cluster) folder=$NXL_BED_FOLDER bin=$NXL_BED_BIN nodes=$NXL_BED_NODES && run_cluster "$@" ;;
esac

nodes=1 folder="" keep=0 images=() apiserver="" manager=""
while [ $# -gt 0 ]; do
    case $1 in
    --nodes) nodes=$2; shift ;;
    --image) images+=("$(realpath "$2")"); shift ;;
    --folder) folder=$2 keep=1; shift ;;
    --apiserver-flag) apiserver="$apiserver $2"; shift ;;
    --manager-flag) manager="$manager $2"; shift ;;
    -h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --) shift; break ;;
    *) sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
    shift
done
[ $# -gt 0 ] || set -- "${SHELL:-/bin/bash}"
cannot() { echo "bed.sh: $*" >&2; exit 77; }
[ "$(id -u)" = 0 ] || cannot "real nodes need root"
for tool in containerd runc ctr nsenter unshare ip openssl; do
    command -v $tool >/dev/null || cannot "there is no $tool; deploy/packages.sh kube installs it"
done
unshare --net --mount --pid --fork true 2>/dev/null || cannot "namespaces cannot be made here"
bin=${NXL_KUBE_BIN:-$("$here/build.sh" kube etcd)}
if [ $keep = 1 ]; then mkdir -p "$folder"; folder=$(cd "$folder" && pwd); else folder=$(mktemp -d /tmp/nixlet-bed-XXXXXX); fi
mkdir -p "$folder/pki" "$folder/pause/root"
"${CC:-cc}" -Os -static -s -o "$folder/pause/root/pause" "$here/pause.c"
"$here/image.py" "$folder/pause.tar" example.invalid/pause:1 "$folder/pause/root" /pause
printf '%s\n' "$folder/pause.tar" "${images[@]}" >"$folder/images"

finish() { # the namespaces took the processes along; folders of cgroups and data stay
    local number
    for number in $(seq "$nodes"); do
        find /sys/fs/cgroup/*/"bed-node$number" -depth -type d -exec rmdir {} + 2>/dev/null || true
        rm -rf "$folder/node$number"
    done
    [ $keep = 1 ] || rm -rf "$folder"
}
trap finish EXIT
status=0
NXL_BED=cluster NXL_BED_FOLDER=$folder NXL_BED_BIN=$bin NXL_BED_NODES=$nodes NXL_BED_APISERVER=$apiserver NXL_BED_MANAGER=$manager \
    unshare --net --mount --pid --uts --ipc --fork --kill-child --mount-proc --propagation private "$here/bed.sh" "$@" || status=$?
exit $status
