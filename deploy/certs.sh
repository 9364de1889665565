#!/bin/sh
# Makes an authority and one certificate per node for links between agents: P-256, subject CN = node,
# URI SAN nixlet://<cluster>/node/<node>. For trying and for tests; keep DIR/ca.key apart otherwise.
# An authority that is there already is used again, so nodes can be added later.
# usage: deploy/certs.sh DIR CLUSTER NODE...      DAYS=365 sets how long they are valid (0: expired)
set -eu

if [ $# -lt 3 ]; then
    echo "usage: $0 DIR CLUSTER NODE...   (DAYS=365)" >&2
    exit 2
fi
command -v openssl >/dev/null || { echo "$0: openssl is not installed (Debian: apt-get install openssl)" >&2; exit 1; }
dir=$1
cluster=$2
shift 2
days=${DAYS:-365}
case $cluster in
'' | *[!A-Za-z0-9._-]*) echo "$0: cluster '$cluster' may hold letters, digits, '.', '_' and '-' only" >&2; exit 2 ;;
esac

umask 077
mkdir -p "$dir"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
quiet() { # openssl talks even when all is well
    "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
}

if [ ! -e "$dir/ca.key" ]; then
    cat >"$work/ca.cnf" <<END
[req]
distinguished_name = name
x509_extensions = authority
prompt = no
[name]
CN = nixlet authority of $cluster
[authority]
basicConstraints = critical,CA:TRUE,pathlen:0
keyUsage = critical,keyCertSign,cRLSign
subjectKeyIdentifier = hash
END
    quiet openssl ecparam -name prime256v1 -genkey -noout -out "$dir/ca.key"
    quiet openssl req -new -x509 -key "$dir/ca.key" -sha256 -days 3650 -config "$work/ca.cnf" -out "$dir/ca.pem"
fi

for node in "$@"; do
    case $node in
    '' | *[!A-Za-z0-9._-]*) echo "$0: node '$node' may hold letters, digits, '.', '_' and '-' only" >&2; exit 2 ;;
    esac
    cat >"$work/node.cnf" <<END
[req]
distinguished_name = name
prompt = no
[name]
CN = $node
[node]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = serverAuth,clientAuth
subjectAltName = URI:nixlet://$cluster/node/$node
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
END
    quiet openssl ecparam -name prime256v1 -genkey -noout -out "$dir/$node.key"
    quiet openssl req -new -key "$dir/$node.key" -config "$work/node.cnf" -out "$work/node.csr"
    quiet openssl x509 -req -in "$work/node.csr" -CA "$dir/ca.pem" -CAkey "$dir/ca.key" -sha256 \
        -set_serial "0x$(openssl rand -hex 16)" -days "$days" -extfile "$work/node.cnf" -extensions node \
        -out "$dir/$node.pem"
    chmod 644 "$dir/$node.pem"
done
chmod 644 "$dir/ca.pem"
