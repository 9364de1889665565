#!/usr/bin/env bash
# Builds the Kubernetes that the tests run from its Go modules, and keeps the binaries:
#   build.sh [COMPONENT]...   kube (apiserver, controller-manager, scheduler, kubelet, kubectl, proxy), etcd, helm;
#                             default: kube etcd. Prints the folder with the binaries as its last line.
#   build.sh --where [...]    only prints that folder; 1 if something is missing in it
# 77: it cannot be built here (no Go, no network), and why. The folder is named by a hash of everything that
# decides the result, so it never needs to be cleaned by hand; builds take turns and run at the lowest priority.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${NIXLET_KUBE_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/nixlet/kube}
programs="kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl"
flags=(-trimpath -buildvcs=false)

where=0 components=()
for word in "$@"; do
    case $word in
    --where) where=1 ;;
    kube | etcd | helm) components+=("$word") ;;
    *) sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done
[ ${#components[@]} -gt 0 ] || components=(kube etcd)

say() { echo "kube build: $*" >&2; }
cannot() { say "$*"; exit 77; }

command -v go >/dev/null || cannot "there is no Go toolchain; install Go $(sed -n 's/^go //p' "$here/modules/kube/go.mod") or newer"
toolchain=$(go env GOVERSION)
export GOTOOLCHAIN=local CGO_ENABLED=0

hash_of() { # hash_of COMPONENT: what decides its binary
    { echo "$toolchain ${flags[*]} $(go env GOOS GOARCH | tr '\n' ' ')"; cd "$here/modules/$1" && cat -- *; } | sha256sum | cut -c1-16
}
key=$({ for component in kube etcd helm; do hash_of $component; done; } | sha256sum | cut -c1-16)
folder=$cache/$key

complete() {
    local component
    for component in "${components[@]}"; do [ -x "$folder/$component" ] || return 1; done
}
if [ $where = 1 ]; then
    echo "$folder"
    complete
    exit
fi
if complete; then
    echo "$folder"
    exit 0
fi

renice -n 19 $$ >/dev/null 2>&1 || true
mkdir -p "$cache/store" "$folder"
exec 9>"$cache/lock"
if ! flock -n 9; then
    say "waiting for the build that is under way"
    flock 9
fi

# A build that was killed leaves its work folder; the next one goes on from there.
work=$cache/work
mkdir -p "$work/tmp"
export GOCACHE=$work/cache GOMODCACHE=$work/modules GOTMPDIR=$work/tmp GOFLAGS="-modcacherw -p=${NIXLET_KUBE_JOBS:-2}"
child=""
finish() {
    [ -z "$child" ] || { kill "$child" 2>/dev/null && wait "$child" 2>/dev/null; } || true
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 143' TERM INT HUP

fetch_modules() { # fetch_modules COMPONENT
    local attempt
    for attempt in 1 2 3; do
        (cd "$here/modules/$1" && timeout 900 go mod download) >"$work/$1-modules.log" 2>&1 && return 0
        say "$1: modules could not be fetched (try $attempt): $(tail -1 "$work/$1-modules.log")"
    done
    return 1
}

link_flags() { # link_flags COMPONENT: without its version the server calls itself v0.0.0 and charts refuse it
    local version base=k8s.io/component-base/version
    case $1 in
    kube)
        version=$(sed -n 's/^\tk8s.io\/kubernetes \(v[0-9.]*\)$/\1/p' "$here/modules/kube/go.mod")
        echo "-s -w -X $base.gitVersion=$version -X $base.gitMajor=1 -X $base.gitMinor=$(echo "$version" | cut -d. -f2)" \
            "-X $base.gitTreeState=clean -X k8s.io/client-go/pkg/version.gitVersion=$version"
        ;;
    helm) echo "-s -w -X helm.sh/helm/v4/internal/version.version=$(sed -n 's/^\thelm.sh\/helm\/v4 \(v[0-9.]*\).*/\1/p' "$here/modules/helm/go.mod")" ;;
    *) echo "-s -w" ;;
    esac
}

package_of() { case $1 in kube) echo . ;; etcd) echo go.etcd.io/etcd/server/v3 ;; helm) echo helm.sh/helm/v4/cmd/helm ;; esac; }

compile() { # compile COMPONENT INTO
    local component=$1 log=$work/$1.log start=$SECONDS next=$((SECONDS + 30))
    (cd "$here/modules/$component" && exec go build -v "${flags[@]}" -ldflags "$(link_flags "$component")" -o "$2" "$(package_of "$component")") \
        >"$log" 2>&1 9>&- &
    child=$!
    while kill -0 "$child" 2>/dev/null; do
        if [ $SECONDS -ge $next ]; then
            next=$((SECONDS + 30))
            say "$component: $((SECONDS - start)) s, $(wc -l <"$log") packages"
        fi
        sleep 1
    done
    local status=0
    wait "$child" || status=$?
    child=""
    if [ $status != 0 ]; then
        grep -v '^[^ ]*/[^ ]*$' "$log" | tail -20 >&2 || true
        say "$component: go build failed with status $status"
        return 1
    fi
    say "$component: built in $((SECONDS - start)) s"
}

for component in "${components[@]}"; do
    [ -x "$folder/$component" ] && continue
    kept=$cache/store/$component-$(hash_of "$component")
    if [ ! -x "$kept" ]; then
        say "$component: fetching modules"
        fetch_modules "$component" || cannot "$component: its Go modules cannot be fetched (no network?)"
        compile "$component" "$work/$component" || exit 1
        mv "$work/$component" "$kept"
    fi
    if [ "$component" = kube ]; then
        for program in $programs; do ln -sfn kube "$folder/$program"; done
    fi
    ln -f "$kept" "$folder/$component.new"
    mv -T "$folder/$component.new" "$folder/$component"
done

# Older binaries go when nobody has used them for a month.
find "$cache" -mindepth 1 -maxdepth 1 -type d ! -name store ! -name work ! -name "$key" -mtime +30 -exec rm -rf {} +
find "$cache/store" -type f -links 1 -delete
echo "$folder"
