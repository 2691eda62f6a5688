#!/usr/bin/env python3
"""What the idle time of a pipeline on processors is made of, from what its ranks did (idle_of_trace.py).

  idle_parts.py RUN_DIR...     runs with `logging: {trace: true}`

The order in which every rank computed is played again, in turns with other times:
  levelled    a computation takes what such ones of its rank took in the mean, by tokens and adapters:
              what is idle is what the slowest rank computes more than the mean (unequal ranks), and fills,
              drains, ends and waits of one batch for another
  measured    it takes what it took, and nothing else takes time: what is idle more is jitter, and whatever
              slows a rank down at times
  as it was   what is idle more is between computations: messages, the host's work, and late wake-ups
Parts are percentages of the whole time of all ranks."""
import json
import sys
from collections import defaultdict
from pathlib import Path

COMPUTED = ("forward", "evaluate", "backward")


class Trace:
    def __init__(self, path: Path):
        events = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"]
        self.ranks = sorted({e["pid"] for e in events})
        self.spans = {r: sorted((e for e in events if e["pid"] == r and e["cat"] != "wait"), key=lambda e: e["ts"])
                      for r in self.ranks}
        self.waits = {r: sum(e["dur"] for e in events if e["pid"] == r and e["cat"] == "wait") for r in self.ranks}
        every = [s for spans in self.spans.values() for s in spans]
        self.whole = max(s["ts"] + s["dur"] for s in every) - min(s["ts"] for s in every)

    def idle(self) -> float:
        return 1 - sum(s["dur"] for spans in self.spans.values() for s in spans) / (self.whole * len(self.ranks))


def load(span: dict) -> tuple[float, float, float]:
    return 1.0, float(span["args"]["tokens"]), float(len(span["args"]["adapters"].split(",")))


def solve(rows: list, values: list) -> list[float]:
    """Least squares of three terms, by Cramer's rule."""
    n = 3
    a = [[sum(r[i] * r[j] for r in rows) + (1e-6 if i == j else 0) for j in range(n)] for i in range(n)]
    b = [sum(r[i] * v for r, v in zip(rows, values)) for i in range(n)]

    def det(m):
        return (m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1]) - m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0])
                + m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0]))

    whole = det(a)
    return [det([[b[i] if j == k else a[i][j] for j in range(n)] for i in range(n)]) / whole for k in range(n)]


def levelled(trace: Trace) -> tuple[dict, list[str]]:
    """Times by rank and place, and how far measured ones are from them."""
    times = {rank: [s["dur"] for s in spans] for rank, spans in trace.spans.items()}
    words = []
    for rank, spans in trace.spans.items():
        spreads = []
        for kind in COMPUTED:
            places = [i for i, s in enumerate(spans) if s["cat"] == kind]
            if len(places) < 8:
                continue
            terms = solve([load(spans[i]) for i in places], [spans[i]["dur"] for i in places])
            ratios = []
            least = 0.1 * sum(spans[i]["dur"] for i in places) / len(places)
            for i in places:
                expected = max(least, sum(t * x for t, x in zip(terms, load(spans[i]))))
                ratios.append(spans[i]["dur"] / expected)
                times[rank][i] = expected
            ratios.sort()
            mean = sum(ratios) / len(ratios)
            deviation = (sum((r - mean) ** 2 for r in ratios) / len(ratios)) ** 0.5
            late = max(places, key=lambda i: spans[i]["dur"])
            spreads.append(f"{kind} {sum(times[rank][i] for i in places) / len(places) / 1e3:.2f} ms +-{deviation:.0%}, "
                           f"slowest hundredth {ratios[int(0.99 * len(ratios))]:.2f} x, "
                           f"longest {spans[late]['dur'] / 1e3:.0f} ms at {(spans[late]['ts'] - spans[0]['ts']) / 1e6:.1f} s")
        words.append(f"  rank {rank}: " + "; ".join(spreads))
    return times, words


def play(trace: Trace, times: dict) -> float:
    """Idle share when each rank does its computations in their order, one as soon as its message is there."""
    ends: dict = {}
    at = {rank: 0 for rank in trace.ranks}
    now = {rank: 0.0 for rank in trace.ranks}
    moved = True
    while moved:
        moved = False
        for place, rank in enumerate(trace.ranks):
            spans = trace.spans[rank]
            while at[rank] < len(spans):
                span = spans[at[rank]]
                kind, number = span["cat"], span["name"].split(" ")[-1]
                ready = 0.0
                if kind in COMPUTED:
                    other = place + 1 if kind == "backward" else place - 1
                    if 0 <= other < len(trace.ranks):
                        if (kind, number, other) not in ends:
                            break
                        ready = ends[kind, number, other]
                start = max(now[rank], ready)
                now[rank] = start + times[rank][at[rank]]
                if kind in COMPUTED:
                    ends[kind, number, place] = now[rank]
                at[rank] += 1
                moved = True
    if any(at[rank] < len(trace.spans[rank]) for rank in trace.ranks):
        return float("nan")
    busy = sum(sum(t) for t in times.values())
    return 1 - busy / (max(now.values()) * len(trace.ranks))


def between(trace: Trace) -> list[str]:
    """By rank: what neither computes nor waits, per computation."""
    words = []
    for rank, spans in trace.spans.items():
        computed = sum(s["dur"] for s in spans)
        other = trace.whole - computed - trace.waits[rank]
        words.append(f"  rank {rank}: computes {computed / 1e6:.2f} s, waits {trace.waits[rank] / 1e6:.2f} s, "
                     f"else {other / 1e6:.2f} s ({other / max(1, len(spans)):.0f} us a computation)")
    return words


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    for run_dir in sys.argv[1:]:
        trace = Trace(Path(run_dir) / "trace.json")
        level, words = levelled(trace)
        steady = play(trace, level)
        measured = play(trace, {r: [s["dur"] for s in spans] for r, spans in trace.spans.items()})
        idle = trace.idle()
        sums = [sum(times) for times in level.values()]
        unequal = 1 - sum(sums) / (len(sums) * max(sums))
        print(f"{run_dir}: {idle:.1%} idle of {trace.whole / 1e6:.2f} s: unequal ranks {unequal:.1%}, "
              f"fills and order {steady - unequal:+.1%}, jitter {measured - steady:+.1%}, between computations {idle - measured:+.1%}")
        print("\n".join(words + between(trace)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
