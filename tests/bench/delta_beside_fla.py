#!/usr/bin/env python3
"""Times flash-linear-attention's chunk_gated_delta_rule, forward and backward, at the shapes of bench_delta.

  delta_beside_fla.py [--path FOLDER] [--unguarded] [tokens [key heads [value heads]]]

Needs torch with a GPU, triton and fla-core (`pip download --no-deps fla-core`, unpacked in FOLDER). Heads of 128
columns, bf16, one sample of all tokens and samples of 2048 tokens. Prints the best and the median of 30 runs, in
microseconds, between events of the stream. q and k get their lengths in its kernels, as in ours.
"""
from __future__ import annotations

import argparse
import statistics
import sys

DIM = 128
SAMPLE = 2048


def times(torch, call, runs: int = 30) -> tuple[float, float]:
    """Best and median microseconds of a call."""
    for _ in range(3):
        call()
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(runs)]
    for begin, end in events:
        begin.record()
        call()
        end.record()
    torch.cuda.synchronize()
    taken = [begin.elapsed_time(end) * 1e3 for begin, end in events]
    return min(taken), statistics.median(taken)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path")
    parser.add_argument("--unguarded", action="store_true",
                        help="time the backward also where fla refuses it, as this Triton compiles it wrongly")
    parser.add_argument("tokens", nargs="?", type=int, default=8192)
    parser.add_argument("key_heads", nargs="?", type=int, default=16)
    parser.add_argument("value_heads", nargs="?", type=int, default=32)
    arguments = parser.parse_args()
    if arguments.path:
        sys.path.insert(0, arguments.path)
    import torch
    import triton
    from fla.ops.common import chunk_o
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    tokens, keys, values = arguments.tokens, arguments.key_heads, arguments.value_heads
    torch.manual_seed(0)

    def random(heads: int, *width: int, dtype=torch.bfloat16):
        return torch.randn(1, tokens, heads, *width, device="cuda", dtype=dtype)

    q, k, v = random(keys, DIM), random(keys, DIM), random(values, DIM)
    g = -0.1 * torch.rand(1, tokens, values, device="cuda")
    beta = torch.rand(1, tokens, values, device="cuda")
    leaves = [x.requires_grad_() for x in (q, k, v, g, beta)]
    d_o = random(values, DIM)
    guarded = chunk_o.IS_NVIDIA_HOPPER and chunk_o.TRITON_ABOVE_3_4_0 and not chunk_o.TRITON_ABOVE_3_7_1
    if guarded and arguments.unguarded:
        chunk_o.TRITON_ABOVE_3_7_1 = True
    note = ", backward wrong with this Triton: its time alone" if guarded else ""
    print(f"Triton {triton.__version__}{note}")
    print(f"{torch.cuda.get_device_name()}, {tokens} tokens, {keys} key heads, {values} value heads of {DIM}")
    for length in sorted({tokens, min(tokens, SAMPLE)}, reverse=True):
        offsets = torch.arange(0, tokens + 1, length, device="cuda")

        def forward():
            return chunk_gated_delta_rule(q, k, v, g, beta, use_qk_l2norm_in_kernel=True, cu_seqlens=offsets)[0]

        def backward(o):
            torch.autograd.grad(o, leaves, d_o, retain_graph=True)

        with torch.no_grad():
            best, median = times(torch, forward)
        print(f"samples of {length}: forward {best:9.1f} {median:9.1f}")
        if guarded and not arguments.unguarded:
            continue
        output = forward()
        best, median = times(torch, lambda: backward(output))
        print(f"samples of {length}: backward {best:8.1f} {median:9.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
