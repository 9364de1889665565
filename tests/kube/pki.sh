#!/usr/bin/env bash
# A throw-away CA, certificates, kubeconfigs and keys for a test's control plane: pki.sh FOLDER URL [IP]...
# FOLDER/ca.crt|key signs all; FOLDER/NAME.crt|key|kubeconfig for admin, manager, scheduler, proxy; sa.key|pub sign
# service account tokens; admin.token is a bearer token of system:masters. IP: further names of the API server.
# Sourced by bed.sh for its functions.
set -euo pipefail

pki_key() { openssl ecparam -name prime256v1 -genkey -noout -out "$pki/$1.key"; }

pki_authority() { # pki_authority NAME
    pki_key "$1"
    openssl req -x509 -new -key "$pki/$1.key" -subj "/CN=nixlet-test-$1" -days 30 -out "$pki/$1.crt" \
        -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign
}

pki_leaf() { # pki_leaf NAME SUBJECT serverAuth|clientAuth [ALTNAMES] [AUTHORITY]
    pki_key "$1"
    openssl req -new -key "$pki/$1.key" -subj "$2" -out "$pki/$1.csr"
    printf 'basicConstraints=CA:FALSE\nkeyUsage=digitalSignature\nextendedKeyUsage=%s\n%s\n' \
        "$3" "${4:+subjectAltName=$4}" >"$pki/$1.ext"
    openssl x509 -req -in "$pki/$1.csr" -CA "$pki/${5:-ca}.crt" -CAkey "$pki/${5:-ca}.key" -set_serial "0x$(openssl rand -hex 8)" \
        -days 30 -extfile "$pki/$1.ext" -out "$pki/$1.crt" 2>/dev/null
    rm -f "$pki/$1.csr" "$pki/$1.ext"
}

pki_kubeconfig() { # pki_kubeconfig NAME URL
    cat >"$pki/$1.kubeconfig" <<YAML
apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "$2", certificate-authority: $pki/ca.crt}}]
users: [{name: $1, user: {client-certificate: $pki/$1.crt, client-key: $pki/$1.key}}]
contexts: [{name: test, context: {cluster: test, user: $1}}]
current-context: test
YAML
}

pki_all() { # pki_all URL [IP]...
    local url=$1 names="DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
    local address name
    shift
    for address in 127.0.0.1 10.96.0.1 "$@"; do names=$names,IP:$address; done
    pki_authority ca
    pki_leaf apiserver /CN=kube-apiserver serverAuth "$names,DNS:kubernetes.default.svc.cluster.local"
    pki_leaf apiserver-kubelet /O=system:masters/CN=apiserver-kubelet-client clientAuth
    pki_leaf front-proxy /CN=front-proxy-client clientAuth
    pki_leaf admin /O=system:masters/CN=admin clientAuth
    pki_leaf manager /CN=system:kube-controller-manager clientAuth
    pki_leaf scheduler /CN=system:kube-scheduler clientAuth
    pki_leaf proxy /CN=system:kube-proxy clientAuth
    for name in admin manager scheduler proxy; do pki_kubeconfig $name "$url"; done
    openssl genrsa -out "$pki/sa.key" 2048 2>/dev/null
    openssl rsa -in "$pki/sa.key" -pubout -out "$pki/sa.pub" 2>/dev/null
    printf %s "$(openssl rand -hex 24)" >"$pki/admin.token"
    echo "$(cat "$pki/admin.token"),admin-by-token,admin-by-token,system:masters" >"$pki/tokens.csv"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    [ $# -ge 2 ] || { sed -n '2,3s/^# \{0,1\}//p' "$0" >&2; exit 2; }
    umask 077
    pki=$1
    mkdir -p "$pki"
    shift
    pki_all "$@"
fi
