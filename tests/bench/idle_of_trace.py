#!/usr/bin/env python3
"""Idle time of a whole run, fill, drains and evaluations included, from what its ranks did.

  idle_of_trace.py RUN_DIR...     runs with `logging: {trace: true}`

Prints per run the share of the time from the first to the last recorded computation in which ranks
computed nothing. The program records the first 20,000 actions of a rank."""
import json
import sys
from pathlib import Path


def idle_shares(trace: dict) -> dict[int, float]:
    """By rank."""
    spans = [event for event in trace["traceEvents"]
             if event["ph"] == "X" and event["cat"] != "wait"]
    whole = max(s["ts"] + s["dur"] for s in spans) - min(s["ts"] for s in spans)
    ranks = sorted({span["pid"] for span in spans})
    return {rank: 1 - sum(s["dur"] for s in spans if s["pid"] == rank) / whole for rank in ranks}


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    for run_dir in sys.argv[1:]:
        shares = idle_shares(json.loads((Path(run_dir) / "trace.json").read_text()))
        mean = sum(shares.values()) / len(shares)
        by_rank = ", ".join(f"{100 * share:.1f}%" for share in shares.values())
        print(f"{run_dir}: {100 * mean:.1f}% idle; by rank {by_rank}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
