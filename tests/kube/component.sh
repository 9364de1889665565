#!/usr/bin/env bash
# Becomes one component of a control plane: component.sh etcd|apiserver|manager|scheduler FOLDER [KEY=VALUE]... [FLAG]...
# FOLDER/pki is made by pki.sh, FOLDER/ports holds ADDRESS, PORT, ETCD_PORT, PEER_PORT and BIN as KEY=VALUE lines;
# words KEY=VALUE override them (a second API server: PORT=... ETCD=http://... AUDIT=...). It execs, so that its pid is
# the component's own; output goes to where the caller says. The one place that knows the flags.
set -euo pipefail
name=$1 folder=$2
shift 2
ADDRESS=127.0.0.1 ETCD="" AUDIT=$folder/audit.log
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck disable=SC1091
. "$folder/ports"
while [ $# -gt 0 ]; do
    case $1 in
    [A-Z]*=*) printf -v "${1%%=*}" %s "${1#*=}" ;;
    *) break ;;
    esac
    shift
done
pki=$folder/pki
manager_flags=(--leader-elect=false --bind-address=127.0.0.1)

case $name in
etcd)
    exec "$BIN/etcd" --data-dir "$folder/etcd" --unsafe-no-fsync --log-level=warn \
        --listen-client-urls="http://127.0.0.1:$ETCD_PORT" --advertise-client-urls="http://127.0.0.1:$ETCD_PORT" \
        --listen-peer-urls="http://127.0.0.1:$PEER_PORT" --initial-advertise-peer-urls="http://127.0.0.1:$PEER_PORT" \
        --initial-cluster="default=http://127.0.0.1:$PEER_PORT" "$@"
    ;;
apiserver)
    # From 1.37 on a loopback address cannot be published as the endpoint of the service.
    [ "$ADDRESS" != 127.0.0.1 ] || set -- --endpoint-reconciler-type=none "$@"
    exec "$BIN/kube-apiserver" --etcd-servers="${ETCD:-http://127.0.0.1:$ETCD_PORT}" \
        --bind-address="${BIND:-127.0.0.1}" --secure-port="$PORT" --advertise-address="$ADDRESS" \
        --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" --client-ca-file="$pki/ca.crt" \
        --token-auth-file="$pki/tokens.csv" --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
        --allow-privileged=true --service-cluster-ip-range=10.96.0.0/16 \
        --service-account-issuer=https://kubernetes.default.svc.cluster.local \
        --service-account-signing-key-file="$pki/sa.key" --service-account-key-file="$pki/sa.pub" \
        --kubelet-client-certificate="$pki/apiserver-kubelet.crt" --kubelet-client-key="$pki/apiserver-kubelet.key" \
        --kubelet-certificate-authority="$pki/ca.crt" --kubelet-preferred-address-types=InternalIP \
        --requestheader-client-ca-file="$pki/ca.crt" --requestheader-allowed-names=front-proxy-client \
        --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group \
        --requestheader-extra-headers-prefix=X-Remote-Extra- \
        --proxy-client-cert-file="$pki/front-proxy.crt" --proxy-client-key-file="$pki/front-proxy.key" \
        --audit-policy-file="$here/audit.yaml" --audit-log-path="$AUDIT" --audit-log-mode=blocking "$@"
    ;;
manager)
    exec "$BIN/kube-controller-manager" --kubeconfig="$pki/manager.kubeconfig" \
        --authentication-kubeconfig="$pki/manager.kubeconfig" --authorization-kubeconfig="$pki/manager.kubeconfig" \
        --service-account-private-key-file="$pki/sa.key" --root-ca-file="$pki/ca.crt" \
        --use-service-account-credentials=true --cluster-signing-cert-file="$pki/ca.crt" \
        --cluster-signing-key-file="$pki/ca.key" --secure-port="${MANAGER_PORT:-0}" "${manager_flags[@]}" "$@"
    ;;
scheduler)
    exec "$BIN/kube-scheduler" --kubeconfig="$pki/scheduler.kubeconfig" \
        --authentication-kubeconfig="$pki/scheduler.kubeconfig" --authorization-kubeconfig="$pki/scheduler.kubeconfig" \
        --secure-port="${SCHEDULER_PORT:-0}" "${manager_flags[@]}" "$@"
    ;;
*)
    echo "component.sh: unknown component '$name' (etcd, apiserver, manager, scheduler)" >&2
    exit 2
    ;;
esac
