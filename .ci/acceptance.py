"""Replays the conversation trace through a real server and checks what the demo reports."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TRACE = ROOT.parent / "shared/traces/mooncake_conversation_trace.jsonl"


@dataclasses.dataclass(frozen=True)
class Case:
    """One replay: hit ratios of an LRU of that many blocks, and how far below it may stay."""

    capacity_blocks: int
    shards: int
    workers: int
    hit_ratio: float
    above: float
    below: float


CASES = [
    Case(5860, 1, 1, 0.1355, 0.002, 0.002),
    Case(20000, 1, 1, 0.2875, 0.002, 0.002),
    Case(5860, 4, 1, 0.1355, 0.005, 0.005),
    Case(20000, 4, 1, 0.2875, 0.005, 0.005),
    Case(5860, 16, 1, 0.1355, 0.015, 0.015),
    Case(20000, 16, 1, 0.2875, 0.015, 0.015),
]


def replay(binary: str, case: Case) -> list[str]:
    """Runs one replay and returns what is wrong with its report."""
    command = [
        binary, "demo", "--json", "--trace", str(TRACE), "--object-bytes", "4096",
        "--shards", str(case.shards), "--workers", str(case.workers),
        "--capacity-blocks", str(case.capacity_blocks),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        return [f"exit status {done.returncode}: {done.stderr.strip()[-2000:]}"]
    report = json.loads(done.stdout)
    print(
        f"  {case.capacity_blocks} blocks, {case.shards} shards: hit ratio "
        f"{report['hit_ratio']:.4f} (ideal LRU {report['ideal_lru_hit_ratio']:.4f}), "
        f"{report['wrong_bytes']} wrong bytes, books balanced: {report['books_balanced']}, "
        f"{report['keys_per_s']:.0f} keys/s, {report['gb_per_s']:.2f} GB/s"
    )
    wrong = []
    low, high = case.hit_ratio - case.below, case.hit_ratio + case.above
    if not low <= report["hit_ratio"] <= high:
        wrong.append(f"hit ratio {report['hit_ratio']} is not in {low:.4f}..{high:.4f}")
    if report["wrong_bytes"] != 0:
        wrong.append(f"{report['wrong_bytes']} wrong bytes")
    if report["books_balanced"] is not True:
        wrong.append("the books do not balance")
    return wrong


def main() -> int:
    if not TRACE.is_file():
        print(f"the trace is missing: {TRACE}")
        if os.environ.get("CI") == "true":
            return 1
        print("skipped: the acceptance replays need it")
        return 0
    failed = 0
    for case in CASES:
        wrong = replay(sys.argv[1], case)
        failed += bool(wrong)
        for line in wrong:
            print(f"FAILED {case}: {line}")
    print(f"acceptance: {len(CASES) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
