#!/usr/bin/env python3
"""Writes what a run has measured in the forms of other trackers. Nothing goes online.

  export_metrics.py RUN_DIR -o OUT --csv --wandb --mlflow       (any of the three)

  --csv      OUT/metrics.csv: a line for each adapter and step; OUT/devices.csv: for each sample of a rank's
             memory, power and clocks
  --wandb    OUT/wandb: an offline run for each adapter, of one group; later, where there is a network:
             wandb sync OUT/wandb/offline-run-*
  --mlflow   OUT/mlruns: a file store, one experiment with a run for each adapter; to look at it:
             mlflow ui --backend-store-uri OUT/mlruns

Values are those of RUN_DIR/adapters/NAME/metrics.jsonl, evaluations of a step beside its loss; with them go
the adapter's keys of RUN_DIR/resolved.yaml. Samples of RUN_DIR/devices are a run "(devices)" of their own, with
seconds since the first as steps, values as rank-0/watts. Reads a run that still trains as well, as far as it has come.
--wandb needs wandb, --mlflow mlflow or mlflow-skinny, both with pyyaml, which they bring; --csv nothing.
"""
from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import time
from pathlib import Path

Row = dict[str, float]


class InputError(Exception):
    """What is wrong with what the user gave."""


def read_rows(path: Path) -> dict[int, Row]:
    """By step, in order; a last line that is still being written is left out."""
    rows: dict[int, Row] = {}
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
            step = values.pop("step")
        except (ValueError, KeyError, AttributeError) as error:
            if number == len(lines):  # no newline behind it yet
                continue
            raise InputError(f"{path}:{number}: no line of metrics ({error})") from error
        numbers = {key: float(value) for key, value in values.items()
                   if isinstance(value, (int, float)) and not isinstance(value, bool)}
        rows.setdefault(int(step), {}).update(numbers)
    return dict(sorted(rows.items()))


def read_run(run_dir: Path) -> dict[str, dict[int, Row]]:
    """The steps of every adapter that has any."""
    files = sorted((run_dir / "adapters").glob("*/metrics.jsonl"))
    if not files:
        raise InputError(f"{run_dir}: no adapters/NAME/metrics.jsonl in it; give the run.dir of a job that "
                         "has trained a step")
    return {path.parent.name: read_rows(path) for path in files}


def read_samples(run_dir: Path) -> list[Row]:
    """Of all ranks, in order of time; lines that are no samples, as one that is being written, are left out."""
    samples = []
    for path in sorted((run_dir / "devices").glob("rank-*.jsonl")):
        for line in path.read_text(encoding="utf-8").split("\n"):
            try:
                sample = json.loads(line)
                samples.append({"time": sample.pop("time"), "rank": sample.pop("rank"), **sample})
            except (ValueError, KeyError, AttributeError, TypeError):
                continue
    return sorted(samples, key=lambda sample: (sample["time"], sample["rank"]))


def steps_of(samples: list[Row]) -> dict[int, Row]:
    """By whole seconds since the first sample."""
    steps: dict[int, Row] = {}
    for sample in samples:
        row = steps.setdefault(int(sample["time"] - samples[0]["time"]), {})
        row.update({f"rank-{sample['rank']}/{key}": float(value) for key, value in sample.items()
                    if key not in ("time", "rank", "seconds")})
    return steps


def read_keys(run_dir: Path) -> dict[str, dict]:
    """The keys of every adapter in resolved.yaml."""
    import yaml

    job = yaml.safe_load((run_dir / "resolved.yaml").read_text(encoding="utf-8"))
    defaults = job.get("defaults") or {}
    return {adapter["name"]: {**defaults, **adapter} for adapter in job.get("adapters") or []}


def columns_of(run: dict[str, dict[int, Row]]) -> list[str]:
    """Of all adapters, in the order in which they come first."""
    return list(dict.fromkeys(key for rows in run.values() for row in rows.values() for key in row))


def write_csv(run: dict[str, dict[int, Row]], out: Path) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    path = out / "metrics.csv"
    columns = columns_of(run)
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["adapter", "step", *columns])
        for name, rows in run.items():
            for step, row in rows.items():
                writer.writerow([name, step, *(row.get(column, "") for column in columns)])
    return path


def write_devices_csv(samples: list[Row], out: Path) -> Path:
    path = out / "devices.csv"
    columns = list(dict.fromkeys(key for sample in samples for key in sample))
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(samples)
    return path


def write_wandb(run: dict[str, dict[int, Row]], keys: dict[str, dict], group: str, out: Path) -> Path:
    import wandb

    out.mkdir(parents=True, exist_ok=True)
    for name, rows in run.items():
        tracked = wandb.init(mode="offline", dir=str(out), project="loratrain", group=group, name=name,
                             config=keys.get(name, {}), settings=wandb.Settings(silent=True))
        for step, row in rows.items():
            tracked.log(row, step=step)
        tracked.finish()
    return out / "wandb"


def write_mlflow(run: dict[str, dict[int, Row]], keys: dict[str, dict], group: str, out: Path) -> Path:
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # which newer versions ask for
    from mlflow.entities import Metric, Param
    from mlflow.tracking import MlflowClient

    store = (out / "mlruns").resolve()
    client = MlflowClient(tracking_uri=store.as_uri())
    known = client.get_experiment_by_name(group)
    experiment = known.experiment_id if known else client.create_experiment(group)
    now = int(time.time() * 1000)
    most = 1000  # metrics that one call takes
    for name, rows in run.items():
        run_id = client.create_run(experiment, run_name=name, tags={"adapter": name}).info.run_id
        params = [Param(key, json.dumps(value)) for key, value in keys.get(name, {}).items()]
        client.log_batch(run_id, params=params)
        metrics = [Metric(key, value, now, step) for step, row in rows.items()
                   for key, value in row.items()]
        for first in range(0, len(metrics), most):
            client.log_batch(run_id, metrics=metrics[first:first + most])
        client.set_terminated(run_id)
    return store


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    for name in ("csv", "wandb", "mlflow"):
        parser.add_argument(f"--{name}", action="store_true")
    args = parser.parse_args(arguments)
    if not (args.csv or args.wandb or args.mlflow):
        parser.error("say what to write: --csv, --wandb, --mlflow")
    group = args.run_dir.resolve().name
    try:
        run = read_run(args.run_dir)
        samples = read_samples(args.run_dir)
        keys = read_keys(args.run_dir) if args.wandb or args.mlflow else {}
        if args.csv:
            print(f"wrote {write_csv(run, args.out)}")
            if samples:
                print(f"wrote {write_devices_csv(samples, args.out)}")
        if samples:
            run["(devices)"] = steps_of(samples)
        if args.wandb:
            print(f"wrote {write_wandb(run, keys, group, args.out)}")
        if args.mlflow:
            print(f"wrote {write_mlflow(run, keys, group, args.out)}")
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        print(f"error: {error.name} is not installed: pip install wandb, or mlflow-skinny", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
