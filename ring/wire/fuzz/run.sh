#!/usr/bin/env bash
# Fuzzes one target for some seconds from its committed corpus: run.sh TARGET [SECONDS]
# Needs cargo, g++ and, for the address sanitizer, a nightly toolchain (without one: a line says so).
# With MINIMISE=1 it then renews the committed corpus: the seeds, and the fewest inputs that reach the rest.
set -euo pipefail
cd "$(dirname "$0")"
target=${1:?usage: run.sh decode|handle [SECONDS]}
seconds=${2:-60}
corpus=corpus/$target
[ -d "$corpus" ] || { echo "no target called '$target'" >&2; exit 2; }
command -v g++ >/dev/null || { echo "g++ is missing: libFuzzer is built from C++" >&2; exit 2; }

toolchain=+nightly
flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
flags+=" -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
flags+=" -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing"
if cargo $toolchain --version >/dev/null 2>&1; then
  flags+=" -Zsanitizer=address"
else
  toolchain=
  echo "no nightly toolchain: fuzzing without the address sanitizer"
fi
host=$(rustc $toolchain -vV | sed -n 's/^host: //p')
build=${CARGO_TARGET_DIR:-$PWD/target}/fuzz

echo "== replays the corpora of all targets"
CARGO_TARGET_DIR=$build cargo test --quiet --locked --lib
echo "== builds $target"
RUSTFLAGS=$flags CARGO_TARGET_DIR=$build \
  cargo $toolchain build --quiet --locked --release --target "$host" --features libfuzzer --bin "$target"

case $target in
  handle) bytes=1536 ;; # the books are checked after every few bytes
  *) bytes=8192 ;;
esac
binary=$build/$host/release/$target
export ASAN_OPTIONS=detect_leaks=0 # it needs ptrace, which containers often lack
found=$build/found/$target
mkdir -p "$found" artifacts
echo "== fuzzes $target for $seconds s"
"$binary" -max_total_time="$seconds" -max_len=$bytes -timeout=10 -rss_limit_mb=2048 -detect_leaks=0 \
  -print_final_stats=1 -verbosity=0 -artifact_prefix="artifacts/$target-" "$found" "$corpus"
if [ "${MINIMISE:-}" = 1 ]; then
  echo "== keeps the seeds, and the fewest inputs that reach all that was reached"
  rm -rf "$corpus.next"
  CARGO_TARGET_DIR=$build cargo run --quiet --locked --bin seeds "$target" "$corpus.next"
  "$binary" -set_cover_merge=1 -use_counters=0 -max_len=$bytes -detect_leaks=0 -verbosity=0 \
    "$corpus.next" "$corpus" "$found"
  rm -rf "$corpus" && mv "$corpus.next" "$corpus"
fi
