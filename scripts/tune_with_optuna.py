#!/usr/bin/env python3
"""Lets Optuna choose the trials of a running job, through its inbox.

  tune_with_optuna.py RUN_DIR SPACE.yaml [--trials 50] [--at-once 8] [--storage sqlite:///study.db]

The job has a `sweep` with wait_minutes above 0, so that it waits for trials, and maybe eval.every_steps,
so that Optuna can end the hopeless ones. SPACE.yaml holds keys of an adapter with lists of values or
ranges, as `sweep.space` does:

  r: [8, 16, 32]
  learning_rate: {min: 1.0e-5, max: 1.0e-3, scale: log}

What a trial comes to is read from its metrics.jsonl once it has DONE or FAILED. With --storage a study
goes on where it was; the script may be started again while the job runs. Needs optuna and pyyaml.
"""
from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path

from needed_packages import needed_packages

with needed_packages(__name__, "optuna and pyyaml"):
    import optuna
    import yaml

OBJECTIVES = {"eval_loss": ("eval_loss", "minimize"), "exact_match": ("eval_exact_match", "maximize")}
OVER = ("done", "failed", "stopped")


def suggest(trial: optuna.Trial, space: dict) -> dict:
    """A value for each key of the space."""
    values = {}
    for key, choice in space.items():
        if isinstance(choice, dict):
            low, high, log = choice["min"], choice["max"], choice.get("scale") == "log"
            whole = isinstance(low, int) and isinstance(high, int)
            draw = trial.suggest_int if whole else trial.suggest_float
            values[key] = draw(key, low, high, log=log)
        elif any(isinstance(value, list) for value in choice):  # Optuna wants plain choices
            values[key] = json.loads(trial.suggest_categorical(key, [json.dumps(v) for v in choice]))
        else:
            values[key] = trial.suggest_categorical(key, choice)
    return values


def order(inbox: Path, name: str, text: str) -> None:
    """As the inbox wants it: written under another name, then renamed."""
    inbox.mkdir(parents=True, exist_ok=True)
    hidden = inbox / f".{name}.part"
    hidden.write_text(text, encoding="utf-8")
    hidden.rename(inbox / name)


def evaluations(folder: Path, column: str) -> list[tuple[int, float]]:
    """Step and value of each evaluation after training has begun; not a number where it is not."""
    path = folder / "metrics.jsonl"
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if not line.endswith("\n"):
            break  # not written to its end yet
        row = json.loads(line)
        if row["step"] > 0 and column in row:
            value = row[column]
            found.append((row["step"], math.nan if value is None else value))
    return found


class Tuner:
    """Trials under way, and the study that they belong to."""

    def __init__(self, run_dir: Path, space: dict, study: optuna.Study, column: str) -> None:
        self.run_dir, self.space, self.study, self.column = run_dir, space, study, column
        self.under_way = {self.name(t.number): optuna.Trial(study, t._trial_id)
                          for t in study.get_trials(states=[optuna.trial.TrialState.RUNNING])}  # of a start before
        self.stopping: set[str] = set()
        self.reported: dict[str, int] = {}  # the last step that was reported

    @staticmethod
    def name(number: int) -> str:
        return f"optuna-{number:04}"

    def ask(self) -> None:
        trial = self.study.ask()
        name = self.name(trial.number)
        adapter = {"name": name, "trial": True, **suggest(trial, self.space)}
        order(self.run_dir / "inbox", f"{name}.yaml", json.dumps({"adapters": [adapter]}))
        self.under_way[name] = trial

    def look(self) -> None:
        """Tells the study what is known; asks the job to stop what the study would prune."""
        for name, trial in list(self.under_way.items()):
            folder = self.run_dir / "adapters" / name
            rejected = self.run_dir / "inbox/rejected" / f"{name}.yaml.error"
            over = (folder / "DONE").exists()
            values = evaluations(folder, self.column)
            if rejected.exists():
                sys.exit(f"the job does not take {name}: {rejected.read_text(encoding='utf-8')}")
            for step, value in values:
                if step > self.reported.get(name, 0):
                    trial.report(value, step)
                    self.reported[name] = step
            if (folder / "FAILED").exists() or (over and (not values or math.isnan(values[-1][1]))):
                self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
            elif over and name in self.stopping:
                self.study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            elif over:
                self.study.tell(trial, values[-1][1])
            else:
                if values and name not in self.stopping and trial.should_prune():
                    order(self.run_dir / "inbox", f"{name}.stop", "")
                    self.stopping.add(name)
                continue
            del self.under_way[name]


def is_over(run_dir: Path) -> bool:
    """Whether the job has ended, and nobody will take orders."""
    path = run_dir / "status.json"
    return path.exists() and json.loads(path.read_text(encoding="utf-8"))["state"] in OVER


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("space", type=Path)
    parser.add_argument("--trials", type=int, default=50, help="in the study, those before included")
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--objective", choices=OBJECTIVES, default="eval_loss")
    parser.add_argument("--seed", type=int, default=0, help="of the sampler")
    parser.add_argument("--storage", help="where Optuna keeps the study; default: in memory")
    parser.add_argument("--seconds", type=float, default=1.0, help="between two looks")
    arguments = parser.parse_args()
    space = yaml.safe_load(arguments.space.read_text(encoding="utf-8"))
    if not isinstance(space, dict) or not space:
        sys.exit(f"{arguments.space}: give keys of an adapter with lists or ranges, as in r: [8, 16]")
    column, direction = OBJECTIVES[arguments.objective]
    study = optuna.create_study(direction=direction, storage=arguments.storage,
                                study_name=str(arguments.run_dir), load_if_exists=True,
                                sampler=optuna.samplers.TPESampler(seed=arguments.seed))
    tuner = Tuner(arguments.run_dir, space, study, column)
    while tuner.under_way or len(study.trials) < arguments.trials:
        while len(tuner.under_way) < arguments.at_once and len(study.trials) < arguments.trials:
            tuner.ask()
        time.sleep(arguments.seconds)
        over = is_over(arguments.run_dir)
        tuner.look()
        if over and tuner.under_way:
            sys.exit(f"the job in {arguments.run_dir} has ended with {len(tuner.under_way)} trials under way: "
                     "start it again, with sweep.wait_minutes above 0")
    best = study.best_trial
    print(f"best: {tuner.name(best.number)}, {arguments.objective} {best.value:.6g}, {best.params}")


if __name__ == "__main__":
    main()
