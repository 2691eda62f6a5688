#!/usr/bin/env python3
"""The rates of a GPU, as plan/cost/cost_model.cpp has them, from what `loratrain bench` measured there.

  device_rates.py RESULTS.jsonl      lines of `loratrain bench --model llama-3.1-8b --predict --json`

A line has what the profile took for two layers and a head (`costs`) and what the run then observed
(`refined_costs`). Prints both as rates, and the time per token that each comes to. The step of the
optimizer is read from lines whose adapters have several ranks (--mixed-ranks)."""
import json
import sys
from pathlib import Path

HIDDEN, HEAD, LAYERS, Q = 4096, 4096 * 128256, 32, 4096  # llama-3.1-8b
LAYER_FIXED = 60e-6      # of the table's rows for GPUs
BYTES_PER_STEPPED_PARAMETER = 32.0


def rates(parameters: int, costs: dict) -> dict:
    """Inverse of built_in_costs()."""
    layer = (parameters - HEAD) / LAYERS
    fixed, per_token, per_square = (sum(costs[part][i] for part in ("layer_forward", "layer_backward"))
                                    for i in range(3))
    head, step = costs["head"][1], costs["step"][1]
    return {"matrix TFLOP/s": 4e-12 * layer / per_token if per_token else None,
            "attention TFLOP/s": 6e-12 * Q / per_square if per_square else None,
            "head TFLOP/s": 4e-12 * HEAD / head if head else None,
            "fixed ms": 1e3 * fixed,
            "lost tokens": max(0.0, fixed - LAYER_FIXED) / per_token if per_token else None,
            "forward's share": costs["layer_forward"][1] / per_token if per_token else None,
            "forward's share of attention": costs["layer_forward"][2] / per_square if per_square else None,
            "us a token, samples of 2048": 1e6 * (fixed / 8192 + per_token + 2048 * per_square),
            "step: TB/s": 1e-12 * BYTES_PER_STEPPED_PARAMETER / step if step else None,
            "step: fixed ms": 1e3 * costs["step"][0]}


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    for line in Path(sys.argv[1]).read_text().splitlines():
        result = json.loads(line)
        print(f"{result['device']}, {result['precision']}, {result['adapters']} adapters x {result['samples']} x "
              f"{result['sample_tokens']}{', ranks 8 to 128' if result['mixed_ranks'] else ''}: "
              f"{result['tokens_per_second']:.0f} tokens/s, off by {result['prediction_error']:+.1%} as profiled")
        for source in ("costs", "refined_costs"):
            if source not in result:
                continue
            shown = rates(result["parameters"], result[source])
            print(f"  {source}: " + ", ".join(f"{name} {'-' if value is None else f'{value:.3g}'}"
                                              for name, value in shown.items()))
            print("    " + json.dumps({key: result[source][key]
                                       for key in ("layer_forward", "layer_backward", "head", "step")}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
