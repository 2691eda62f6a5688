#!/usr/bin/env python3
"""Prints what gpu_visit.sh left as tables, with the bars of gpu_cases.py.

  gpu_table.py RESULTS.jsonl...

Several files (of visits with 1, 2 and 4 GPUs, say) are read one after another; of equal runs the last
counts. The exit code is 1 where a bar is missed or a test failed."""
from __future__ import annotations

import json
import sys
from pathlib import Path

from gpu_cases import CASES, Case

GIB = 2.0 ** 30
MARKS = {True: "ok", False: "MISSED", None: "not measured"}


class Results:
    def __init__(self, lines: list[dict]):
        self.ours: dict[tuple, dict] = {}
        self.peers: dict[tuple, dict] = {}
        self.checks: dict[str, dict] = {}
        for line in lines:
            if line.get("side") == "loratrain":
                self.ours[line["gpus"], line["name"]] = line
            elif line.get("side") == "peer":
                self.peers[line["gpus"], line["name"], line["what"]] = line
            elif line.get("case") in ("test", "sanitizer"):
                self.checks[line["name"]] = line

    def peers_of(self, gpus: int, name: str) -> list[dict]:
        return [line for (g, n, _), line in self.peers.items() if (g, n) == (gpus, name)]

    def rate(self, gpus: int, name: str) -> float | None:
        return self.ours.get((gpus, name), {}).get("tokens_per_second")

    def best_peer(self, gpus: int, name: str) -> float | None:
        rates = [line["tokens_per_second"] for line in self.peers_of(gpus, name) if "tokens_per_second" in line]
        return max(rates, default=None)

    def value(self, gpus: int, case: Case, key: str) -> float | None:
        line = self.ours.get((gpus, case.name), {})
        if key == "peer":
            return quotient(self.rate(gpus, case.name), self.best_peer(gpus, case.name))
        if key.startswith("rate"):
            return quotient(self.rate(gpus, case.name), self.rate(gpus, case.bars[key][1]))
        if key == "waiting":
            return max(waiting_shares(line), default=None)
        return line.get(key)


def quotient(a: float | None, b: float | None) -> float | None:
    return a / b if a and b else None


def waiting_shares(line: dict) -> list[float]:
    """Per stage: time without any operator, or in one that waits for another rank."""
    if "profile_of_ranks" not in line:
        return line.get("idle_share_of_ranks", [])
    return [profile["idle_share"] + profile["wait_share"] for profile in line["profile_of_ranks"]]


def percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f}%"


def thousands(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def gib(value: float | None) -> str:
    return "" if value is None else f"{value / GIB:.1f}"


def print_table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """A Markdown table with columns of equal width."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    for row in [head, tuple("-" * width for width in widths), *rows]:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |")
    print()


def bench_row(results: Results, gpus: int, case: Case) -> tuple[str, ...]:
    line = results.ours[gpus, case.name]
    if "problem" in line:
        return (case.name, line["problem"], *[""] * 8)
    peer, ratio = results.best_peer(gpus, case.name), results.value(gpus, case, "peer")
    waits = " ".join(percent(share) for share in waiting_shares(line)) if gpus > 1 else ""
    return (case.name, thousands(line["tokens_per_second"]), percent(line["mfu"]),
            percent(line["mfu_with_attention"]), percent(line["share_of_gemm_rate"]),
            percent(line["lora_overhead"]), waits, gib(line["peak_bytes"]), thousands(peer),
            "" if ratio is None else f"{ratio:.2f}")


def print_bench(results: Results, gpus: int) -> None:
    cases = [case for case in CASES[gpus] if (gpus, case.name) in results.ours]
    if not cases:
        return
    print(f"## loratrain bench on {gpus} GPU{'s' if gpus > 1 else ''}")
    print_table(("case (adapters x samples x tokens per step)", "tokens/s", "MFU", "with attention",
                 "of GEMM rate", "cost of LoRA", "idle + waiting per stage", "peak GiB", "best peer", "ratio"),
                [bench_row(results, gpus, case) for case in cases])


def print_peers(results: Results, gpus: int) -> None:
    rows = []
    for case in CASES[gpus]:
        for line in results.peers_of(gpus, case.name):
            if "problem" in line:
                rows.append((line["what"], line["problem"], "", "", ""))
            else:
                ratio = quotient(results.rate(gpus, case.name), line["tokens_per_second"])
                rows.append((line["what"], thousands(line["tokens_per_second"]), gib(line["peak_bytes"]),
                             case.name, "" if ratio is None else f"{ratio:.2f}"))
    if rows:
        print(f"## Peers on {gpus} GPU{'s' if gpus > 1 else ''}")
        print_table(("peer", "tokens/s", "peak GiB", "loratrain's case", "loratrain / peer"), rows)


def holds(relation: str, value: float, limit: float) -> bool:
    return {"at most": value <= limit, "within": abs(value) <= limit}.get(relation, value >= limit)


def bar_rows(results: Results, gpus: int) -> list[tuple[str, str, str, bool | None]]:
    rows = []
    for case in CASES[gpus]:
        for key, (relation, *_, limit) in case.bars.items():
            value = results.value(gpus, case, key)
            passed = None if value is None else holds(relation, value, limit)
            what = {"peer": "rate over the fastest peer's", "waiting": "idle + waiting, largest stage"}.get(key, key)
            if key.startswith("rate"):
                what = f"rate over that of {case.bars[key][1]}"
            shown = "" if value is None else f"{value:,.3g}" if value < 1000 else thousands(value)
            bound = "at least" if relation == "share of" else relation
            rows.append((f"{case.name}: {what}", f"{bound} {limit:,}", shown, passed))
    return rows


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    results = Results([json.loads(line) for path in sys.argv[1:] for line in Path(path).read_text().splitlines()])
    bars: list[tuple[str, str, str, bool | None]] = []
    for gpus in CASES:
        if any(key[0] == gpus for key in (*results.ours, *results.peers)):
            print_bench(results, gpus)
            print_peers(results, gpus)
            bars += bar_rows(results, gpus)
    if results.checks:
        print("## Tests")
        print_table(("test", "result"), [(name, line["result"]) for name, line in results.checks.items()])
    if bars:
        print("## Bars")
        print_table(("what", "bar", "measured", ""), [(*row[:3], MARKS[row[3]]) for row in bars])
    failed = any(line["passed"] is False for line in results.checks.values())
    return 1 if failed or any(row[3] is False for row in bars) else 0


if __name__ == "__main__":
    sys.exit(main())
