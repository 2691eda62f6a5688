#!/usr/bin/env python3
"""Draws jobs/pipelines.svg: four adapters on a pipeline of four GPUs, one after another and together.

  draw_pipelines.py build/loratrain -o jobs/pipelines.svg

Both halves are dry runs of one job (JOB below: two steps of each adapter of an 8B model on four H200)
and have one time axis. A forward is pale, a backward full, each in the colour of its adapter.
"""
from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ADAPTERS = ("add", "sort", "units", "json")
COLOURS = {"add": ("#99c9e6", "#0072b2"), "sort": ("#f3bd96", "#d55e00"),
           "units": ("#95d8c5", "#009e73"), "json": ("#ecc3db", "#cc5f9f")}  # pale, full: timeline_svg.cpp
STEP, IDLE, TEXT = "#1c2430", "#e9ebef", "#1c2430"
RANKS = 4
WIDTH, LEFT, RIGHT, ROW, BAR = 960.0, 58.0, 14.0, 26.0, 20.0


def job(adapters: tuple[str, ...]) -> str:
    """Bytes stand for tokens: only the lengths of samples matter in a dry run."""
    data = "".join(f"  {name}: {{path: {ROOT}/inputs/demo_tasks/{name}/train.jsonl, tokenizer: bytes}}\n" for name in adapters)
    names = "".join(f"  - {{name: {name}, dataset: {name}}}\n" for name in adapters)
    return ("model: {synthetic: llama-3.1-8b}\nrun: {dir: run}\nparallel: {deployment: pipeline}\n"
            f"datasets:\n{data}defaults: {{global_batch_size: 64, max_steps: 2}}\nadapters:\n{names}")


def dry_run(program: str, adapters: tuple[str, ...], policy: str) -> list[dict]:
    """What its ranks do: events of the trace, times in ms."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.yaml"
        path.write_text(job(adapters))
        subprocess.run([program, path, "--dry-run", "--ranks", str(RANKS), "--device", "h200", "--set",
                        f"schedule.policy={policy}", "--out", folder], check=True, capture_output=True)
        events = json.loads((Path(folder) / "trace.json").read_text())["traceEvents"]
    return [{"rank": event["pid"], "kind": event["cat"], "start": event["ts"] / 1e3,
             "end": (event["ts"] + event["dur"]) / 1e3, "adapters": event["args"]["adapters"]}
            for event in events if event.get("cat") in ("forward", "backward", "step")]


def one_after_another(program: str) -> list[dict]:
    events: list[dict] = []
    for name in ADAPTERS:
        begin = max((event["end"] for event in events), default=0.0)
        events += [{**event, "start": event["start"] + begin, "end": event["end"] + begin}
                   for event in dry_run(program, (name,), "1f1b")]
    return events


def idle_share(events: list[dict]) -> float:
    whole = RANKS * max(event["end"] for event in events)
    return 1.0 - sum(event["end"] - event["start"] for event in events) / whole


def bars(event: dict) -> list[tuple[str, float]]:
    """(colour, share of the height) of the adapters of an event."""
    if event["kind"] == "step":
        return [(STEP, 1.0)]
    shares = [(name, float(tokens)) for name, tokens in (part.split() for part in event["adapters"].split(", "))]
    whole = sum(tokens for _, tokens in shares)
    return [(COLOURS[name][event["kind"] == "backward"], tokens / whole) for name, tokens in shares]


def rectangle(x: float, y: float, width: float, height: float) -> str:
    return f"M{x:.1f} {y:.1f}h{width:.1f}v{height:.1f}h{-width:.1f}z"


def half(events: list[dict], top: float, longest: float, title: str) -> str:
    scale = (WIDTH - LEFT - RIGHT) / longest
    end = max(event["end"] for event in events)
    paths: dict[str, list[str]] = defaultdict(list)
    text = [f'<text x="{LEFT:.0f}" y="{top - 9:.0f}" font-weight="600">{title}: '
            f'{end:.0f} ms, {100 * idle_share(events):.0f}% idle</text>']
    for rank in range(RANKS):
        y = top + ROW * rank
        text.append(f'<text x="{LEFT - 8:.0f}" y="{y + 14:.0f}" text-anchor="end">GPU {rank}</text>')
        paths[IDLE].append(rectangle(LEFT, y, scale * end, BAR))
    for event in events:
        y = top + ROW * event["rank"]
        width = max(1.2, scale * (event["end"] - event["start"]) - 0.4)
        for colour, share in bars(event):
            paths[colour].append(rectangle(LEFT + scale * event["start"], y, width, BAR * share))
            y += BAR * share
    return "\n".join(text + [f'<path fill="{colour}" d="{"".join(parts)}"/>' for colour, parts in paths.items()])


def picture(apart: list[dict], together: list[dict]) -> str:
    longest = max(event["end"] for event in apart)
    height = 2 * (RANKS * ROW + 38) + 26
    below = 2 * (RANKS * ROW + 38) + 4
    legend = []
    for i, (name, (pale, full)) in enumerate(COLOURS.items()):
        x = LEFT + 190 * i
        legend.append(f'<path fill="{pale}" d="{rectangle(x, below, 12, 12)}"/><path fill="{full}" '
                      f'd="{rectangle(x + 12, below, 12, 12)}"/><text x="{x + 30:.0f}" y="{below + 10:.0f}">'
                      f'{name}: forward, backward</text>')
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img" aria-label="Four adapters on '
        f'four GPUs, one after another and together" font-family="system-ui, DejaVu Sans, sans-serif" font-size="12" fill="{TEXT}">',
        f'<path fill="#ffffff" d="{rectangle(0, 0, WIDTH, height)}"/>',
        half(apart, 30, longest, "One adapter after another"),
        half(together, 30 + RANKS * ROW + 38, longest, "Four adapters together"), *legend, "</svg>\n"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="loratrain")
    parser.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_args()
    args.output.write_text(picture(one_after_another(args.program), dry_run(args.program, ADAPTERS, "balanced")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
