#!/usr/bin/env python3
"""Idle time of a planned order of computations when they take longer or shorter than planned.

  loratrain JOB.yaml --dry-run --ranks 4 --out DIR
  idle_with_jitter.py DIR/trace.json [DEVIATION]     (0.15)

Times are multiplied by lognormal factors of mean 1 per rank, each for itself or correlated from one to the
next of a rank; the order stays (idle_parts.py). Means of four draws."""
import math
import random
import sys
from pathlib import Path

import idle_parts

CORRELATIONS = (0.0, 0.5, 0.9, 0.98)
DRAWS = 4


def jittered(times: list[float], deviation: float, correlation: float, draw: random.Random) -> list[float]:
    state = draw.gauss(0, 1)
    factors = []
    for _ in times:
        state = correlation * state + math.sqrt(1 - correlation ** 2) * draw.gauss(0, 1)
        factors.append(math.exp(deviation * state))
    mean = sum(factors) / len(factors)
    return [time * factor / mean for time, factor in zip(times, factors)]


def main() -> int:
    if not 2 <= len(sys.argv) <= 3:
        print(__doc__)
        return 2
    deviation = float(sys.argv[2]) if len(sys.argv) == 3 else 0.15
    trace = idle_parts.Trace(Path(sys.argv[1]))
    planned = {rank: [span["dur"] for span in spans] for rank, spans in trace.spans.items()}
    print(f"as planned: {idle_parts.play(trace, planned):.1%} idle")
    for correlation in CORRELATIONS:
        draw = random.Random(1)
        shares = [idle_parts.play(trace, {rank: jittered(times, deviation, correlation, draw)
                                          for rank, times in planned.items()}) for _ in range(DRAWS)]
        print(f"deviation {deviation:.0%}, correlation {correlation}: {sum(shares) / DRAWS:.1%} idle")
    return 0


if __name__ == "__main__":
    sys.exit(main())
