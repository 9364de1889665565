#!/usr/bin/env bash
# Installs the Debian packages that a purpose needs and that are missing: packages.sh build|test|kube|fuzz ...
# Says what it does; needs root (or sudo) only when something is missing.
set -euo pipefail

build="gcc g++ make cmake ninja-build pkg-config libc6-dev libuv1-dev libucx-dev libmicrohttpd-dev libjansson-dev
       libhiredis-dev libyaml-dev libcurl4-openssl-dev libssl-dev libxxhash-dev uthash-dev libcmocka-dev"
run="redis-server openssl iproute2 procps curl"
test="$run libucx0 ucx-utils curl git python3-minimal nftables strace"
# tests/kube: control planes need only the first line, real nodes the second (Go comes from elsewhere)
kube="openssl curl python3-minimal util-linux iproute2 procps
      containerd runc containernetworking-plugins iptables nftables busybox-static"
lint="clang clang-tidy clang-format libclang-rt-14-dev llvm"

wanted=""
for purpose in "$@"; do
    case $purpose in
    build) wanted="$wanted $build" ;;
    run) wanted="$wanted $run libucx0" ;;
    test) wanted="$wanted $test" ;;
    kube) wanted="$wanted $kube" ;;
    lint | fuzz | tsan) wanted="$wanted $lint" ;;
    *)
        echo "packages.sh: unknown purpose '$purpose' (build, run, test, kube, lint, fuzz, tsan)" >&2
        exit 2
        ;;
    esac
done

missing=""
for package in $wanted; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

sudo=""
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "packages.sh: missing$missing; install them as root" >&2; exit 1; }
    sudo=sudo
fi
echo "installing:$missing"
export DEBIAN_FRONTEND=noninteractive
# A policy that starts no service: we run our own redis-server.
$sudo apt-get update -qq || echo "packages.sh: apt-get update failed, trying with the lists that are there" >&2
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' | $sudo tee $policy >/dev/null
    $sudo chmod +x $policy
    trap '$sudo rm -f $policy' EXIT
fi
# shellcheck disable=SC2086
$sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null
