#!/usr/bin/env python3
"""Writes RESULTS.md from the measurements in results/*.jsonl, one table per section.

  write_results.py            writes tests/bench/RESULTS.md
  write_results.py --check    exit code 1 where RESULTS.md is not what it would write

A line of results/*.jsonl is a JSON object with "commit", "device", "date" and either what
run_gpu_cases.py wrote (a run of `loratrain bench` or of a peer), or "section", "case" and "figures"
{column: text} of something else that was measured. A line without commit, device or date is refused."""
from __future__ import annotations

import json
import sys
from pathlib import Path

from gpu_table import gib, percent, thousands, waiting_shares

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "RESULTS.md"
ORIGIN = ("commit", "device", "date")
HEAD = """# Measured

Every figure of this project with what was measured, the commit, the device and the date; written by
`write_results.py` from `results/*.jsonl`. `gpu_cases.py` has the options of the GPU cases,
`scripts/gpu_visit.sh` runs them. MFU counts 4 FLOP per base weight and token against 989 TFLOP/s;
LoRA's own work is not counted as useful. Older rows stand where nobody has measured again.
"""


def bench_figures(line: dict) -> dict[str, str]:
    figures = {"tokens/s": thousands(line["tokens_per_second"]), "MFU": percent(line.get("mfu")),
               "cost of LoRA": percent(line.get("lora_overhead")), "peak GiB": gib(line.get("peak_bytes"))}
    if line["gpus"] > 1:
        figures["idle and waiting per stage"] = " ".join(percent(share) for share in waiting_shares(line))
    if "prediction_error" in line:
        figures["predicted before"] = f"{100 * line['prediction_error']:+.1f}%"
    return figures


def row_of(line: dict) -> tuple[str, str, dict[str, str]]:
    """Section, case, figures."""
    if "figures" in line:
        return line["section"], line["case"], line["figures"]
    plural = "s" if line["gpus"] > 1 else ""
    if line["side"] == "peer":
        return (f"Peers on {line['gpus']} GPU{plural}", line["what"],
                {"tokens/s": thousands(line["tokens_per_second"]), "peak GiB": gib(line["peak_bytes"]),
                 "beside": line["name"]})
    return f"loratrain bench on {line['gpus']} GPU{plural}", line["name"], bench_figures(line)


def read(folder: Path) -> list[dict]:
    lines = []
    for path in sorted(folder.glob("*.jsonl")):
        for number, text in enumerate(path.read_text().splitlines(), 1):
            line = json.loads(text)
            missing = [key for key in ORIGIN if not line.get(key)]
            if missing:
                raise SystemExit(f"{path}:{number}: {', '.join(missing)} is missing")
            if "problem" not in line and line.get("case") not in ("test", "sanitizer"):
                lines.append(line)
    return lines


def table(rows: list[tuple[str, dict[str, str], dict]]) -> str:
    columns = list(dict.fromkeys(key for _, figures, _ in rows for key in figures))
    head = ["case", *columns, *ORIGIN]
    text = "| " + " | ".join(head) + " |\n|" + "---|" * len(head) + "\n"
    for case, figures, line in rows:
        cells = [case, *(figures.get(column, "") for column in columns), *(line[key] for key in ORIGIN)]
        text += "| " + " | ".join(cells) + " |\n"
    return text


def results_text(folder: Path) -> str:
    sections: dict[str, list] = {}
    for line in read(folder):
        section, case, figures = row_of(line)
        sections.setdefault(section, []).append((case, figures, line))
    return HEAD + "".join(f"\n## {name}\n{table(rows)}" for name, rows in sections.items())


def main() -> int:
    text = results_text(HERE / "results")
    if sys.argv[1:] == ["--check"]:
        if RESULTS.read_text() == text:
            return 0
        print(f"{RESULTS}: not what write_results.py makes of results/*.jsonl; run it")
        return 1
    RESULTS.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
