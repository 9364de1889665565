#!/usr/bin/env bash
# All tests: installs what is missing, builds each variant, runs it, counts. Closing line:
#   N passed, N failed, N skipped
# Non-zero on any failure. Skips are listed with their reasons.
set -uo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'TEXT'
usage: tests/run.sh [--only LABEL]... [--list] [--variant NAME]... [--no-install]

  --only LABEL   unit, contract, integration, fuzz, lint, kube (may be given several times; default: all)
  --variant V    release, asan, tsan (default: all); fuzz and lint have their own builds, kube runs with release
  --list         what would run, without running it
  --no-install   do not look for missing packages

environment: NIXLET_FUZZ_SECONDS (60) per fuzz target, NIXLET_SOAK_SECONDS (20) per soak run,
  NIXLET_KUBE_WAIT (2400) seconds that kube waits for tests/kube/build.sh, which runs beside everything else
TEXT
}

only=() variants=() list=0 install=1
while [ $# -gt 0 ]; do
    case $1 in
    --only) only+=("$2"); shift ;;
    --variant) variants+=("$2"); shift ;;
    --list) list=1 ;;
    --no-install) install=0 ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
    esac
    shift
done
[ ${#only[@]} -gt 0 ] || only=(lint unit contract integration fuzz kube)
[ ${#variants[@]} -gt 0 ] || variants=(release asan tsan)
for label in "${only[@]}"; do
    case $label in unit | contract | integration | fuzz | lint | kube) ;; *) usage >&2; exit 2 ;; esac
done

passed=0 failed=0 skipped=0 failures=() skips=()
pass() { passed=$((passed + 1)); echo "  ok      $1"; }
fail() { failed=$((failed + 1)); failures+=("$1"); echo "  FAILED  $1"; }
skip() { skipped=$((skipped + 1)); skips+=("$1"); echo "  skipped $1"; }

wants() { for label in "${only[@]}"; do [ "$label" = "$1" ] && return 0; done; return 1; }
ctest_labels() {
    local wanted=""
    for label in unit contract integration; do wants $label && wanted="${wanted:+$wanted|}^$label\$"; done
    echo "$wanted"
}

wants_kube() { # only with the variant whose code people run
    wants kube || return 1
    local variant
    for variant in "${variants[@]}"; do [ "$variant" = release ] && return 0; done
    return 1
}

build() { # build PRESET
    echo "== building $1"
    local start=$SECONDS
    ./deploy/build.sh "$1" || { fail "build of $1"; return 1; }
    echo "   built in $((SECONDS - start)) s"
}

export NIXLET_SOAK_SECONDS=${NIXLET_SOAK_SECONDS:-20}
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:abort_on_error=1:detect_stack_use_after_return=1:intercept_tls_get_addr=0} # LSan dies in dead threads' TLS otherwise
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1:halt_on_error=1}
export LSAN_OPTIONS=${LSAN_OPTIONS:-suppressions=$PWD/tests/support/lsan.supp:print_suppressions=0}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1:suppressions=$PWD/tests/support/tsan.supp}

# One variant of the ctest suites. Each test executable counts once per variant.
run_variant() {
    local variant=$1 labels log
    labels=$(ctest_labels)
    [ -n "$labels" ] || return 0
    build "$variant" || return 0
    echo "== tests, $variant"
    log=build/$variant-tests.log
    ctest --test-dir "build/$variant" -L "$labels" --output-on-failure -j 2 >"$log" 2>&1
    count_tests "$variant" "$log"
}

count_tests() { # count_tests VARIANT LOG
    local variant=$1 log=$2 name result
    while read -r name result; do
        case $result in
        Passed) pass "$variant $name" ;;
        Skipped) skip "$variant $name: $(reason "$variant" "$name")" ;;
        *) fail "$variant $name ($result)" ;;
        esac
    done < <(sed -nE 's/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: ([^ ]+) \.*[* ]*(Passed|Failed|Timeout|Skipped|Not Run|Exception|Subprocess aborted).*/\1 \2/p' "$log")
    if ! grep -q 'tests passed' "$log"; then
        fail "$variant: no test ran"
        tail -20 "$log"
    elif grep -q '\*\*\*Failed\|\*\*\*Exception\|\*\*\*Timeout\|Subprocess aborted' "$log"; then
        tail -n 120 "$log"
    fi
}

# A test that skips prints "SKIP: why" as a line of its own.
reason() {
    local file="build/$1/Testing/Temporary/LastTest.log"
    awk -v name="$2" '$0 ~ "Test: " name "$" {on=1} on && /SKIP[ 0-9]*: / {sub(/.*SKIP[ 0-9]*: /, ""); print; exit}' "$file" 2>/dev/null
}

run_lint() {
    echo "== lint"
    local check name
    for check in tests/lint/*.sh; do
        name=$(basename "$check" .sh)
        if output=$("$check" 2>&1); then
            pass "lint $name"
        elif [ $? = 77 ]; then
            skip "lint $name: $(echo "$output" | tail -1)"
        else
            fail "lint $name"
            echo "$output" | tail -30
        fi
    done
}

# Kubernetes is built once per machine: minutes of work, begun at once, at the lowest priority, and waited for last.
kube_pid=""
start_kube_build() {
    mkdir -p build
    ./tests/kube/build.sh kube etcd >build/kube-build.out 2>build/kube-build.log </dev/null &
    kube_pid=$!
    trap 'kill "$kube_pid" 2>/dev/null' EXIT
    trap 'exit 143' TERM INT HUP
}

run_kube() {
    build release || return 0
    local status=0 deadline=$((SECONDS + ${NIXLET_KUBE_WAIT:-2400})) start=$SECONDS log=build/release-kube-tests.log
    echo "== kube: waiting for tests/kube/build.sh"
    while kill -0 "$kube_pid" 2>/dev/null && [ $SECONDS -lt $deadline ]; do sleep 1; done
    if kill -0 "$kube_pid" 2>/dev/null; then
        kill "$kube_pid"
        echo "kube build: not finished within ${NIXLET_KUBE_WAIT:-2400} s of waiting" >>build/kube-build.log
        status=77
    fi
    wait "$kube_pid" || status=${status/#0/$?}
    trap - EXIT
    echo "   waited $((SECONDS - start)) s"
    case $status in
    0) NXL_KUBE_BIN=$(tail -1 build/kube-build.out) && export NXL_KUBE_BIN ;;
    77) export NXL_KUBE_BIN="" NXL_KUBE_WHY=$(sed -n '$s/^kube build: //p' build/kube-build.log) ;;
    *)
        fail "kube: tests/kube/build.sh"
        tail -20 build/kube-build.log
        return 0
        ;;
    esac
    ctest --test-dir build/release -L '^kube$' --output-on-failure -j 2 >"$log" 2>&1
    count_tests release "$log"
}

run_fuzz() {
    build fuzz || return 0
    local seconds=${NIXLET_FUZZ_SECONDS:-60} target name corpus log
    echo "== fuzz, $seconds s a target"
    for target in build/fuzz/fuzz/fuzz_*; do
        [ -x "$target" ] || continue
        name=$(basename "$target")
        corpus=build/fuzz/corpus/$name
        mkdir -p "$corpus"
        log=build/fuzz/$name.log
        "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -artifact_prefix="build/fuzz/$name-" \
            "$corpus" "tests/fuzz/seeds/$name" >"$log" 2>&1 && pass "fuzz $name" || {
            fail "fuzz $name"
            tail -40 "$log"
        }
    done
}

if [ $list = 1 ]; then
    for variant in "${variants[@]}"; do
        [ -n "$(ctest_labels)" ] || break
        [ -d "build/$variant" ] || ./deploy/build.sh "$variant" help || true
        ctest --test-dir "build/$variant" -L "$(ctest_labels)" -N | sed -n "s/^ *Test *#[0-9]*: /$variant /p"
    done
    if wants_kube; then
        [ -d build/release ] || ./deploy/build.sh release help || true
        ctest --test-dir build/release -L '^kube$' -N | sed -n 's/^ *Test *#[0-9]*: /release /p'
    fi
    if wants lint; then for check in tests/lint/*.sh; do echo "lint $(basename "$check" .sh)"; done; fi
    if wants fuzz; then grep -rhoE 'NAME fuzz_[a-z]+' tests/fuzz --include=CMakeLists.txt | sed 's/NAME/fuzz/'; fi
    exit 0
fi

start=$SECONDS
wants_kube && start_kube_build
if [ $install = 1 ]; then
    purposes=(build test lint fuzz)
    wants_kube && purposes+=(kube)
    ./deploy/packages.sh "${purposes[@]}" || exit 1
fi
wants lint && run_lint
for variant in "${variants[@]}"; do run_variant "$variant"; done
wants fuzz && run_fuzz
wants_kube && run_kube

echo
echo "took $((SECONDS - start)) s"
for line in "${failures[@]}"; do echo "failed: $line"; done
for line in "${skips[@]}"; do echo "skipped: $line"; done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ] && [ $passed -gt 0 ]
