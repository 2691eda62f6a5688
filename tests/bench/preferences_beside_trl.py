#!/usr/bin/env python3
"""Preferences on a real model: adapters of all losses trained together by loratrain, and TRL's own
trainers beside it. Pairs are GSM8K's answers against answers whose last number is wrong.

  preferences_beside_trl.py --program build/loratrain --model HF_FOLDER --data GSM8K.jsonl --out FOLDER
                            [--steps 200] [--trl-steps 20] [--trl dpo kto] [--device cuda|cpu] [--trained-start]

1. sft, dpo, ipo, cpo, simpo, orpo and kto adapters in one job (--precision, default auto), evaluated on
   what is held out: rewards must come apart.
2. For each of --trl: one adapter in fp32 from the same start on the same batches, by loratrain and by
   TRL: the largest difference of the losses of --trl-steps steps, and tokens/s of both. With
   --trained-start that start is none of a fresh adapter, and the reference, as TRL has it then.
Prints one JSON line for each adapter and each comparison. TRL (PyPI: trl, datasets) is needed for 2 alone."""
from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
WRONG_BY = (-7, -3, -2, -1, 1, 2, 5, 10, 20)
KL_BATCH, BATCH, EVAL = 8, 16, 48
RATE, BETA = 1e-4, 0.1
ADAPTERS = [{"name": "sft", "dataset": "sft"}, {"name": "dpo", "loss": "dpo"},
            {"name": "ipo", "loss": "dpo", "loss_type": "ipo"}, {"name": "cpo", "loss": "cpo"},
            {"name": "simpo", "loss": "simpo", "beta": 2.0}, {"name": "orpo", "loss": "orpo"},
            {"name": "kto", "loss": "kto", "dataset": "examples"}]
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
SKIPPED = 3  # steps of a peer that are not timed: its first ones load and choose kernels


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True, metavar="HF_FOLDER")
    parser.add_argument("--data", type=Path, required=True, metavar="FILE", help="JSONL of question and answer")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--records", type=int, default=1000, help="of --data, at most")
    parser.add_argument("--steps", type=int, default=200, help="of the adapters that train together; 0: not at all")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--trl", nargs="*", default=["dpo", "kto"], choices=["dpo", "kto"])
    parser.add_argument("--trl-steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=BATCH, help="pairs, or examples of kto, of a step beside TRL")
    parser.add_argument("--trained-start", action="store_true", help="beside TRL: B is not 0 at first; ref_adapter: init_from")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    return parser.parse_args()


def call(*command) -> None:
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        raise SystemExit(f"error: exit code {done.returncode}: {' '.join(map(str, command))}\n"
                         f"{done.stdout[-3000:]}{done.stderr[-3000:]}")


def write_lines(path: Path, lines) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


# --- data

def corrupted(records) -> list[dict]:
    """Of each record with a whole number at its end: question, answer, the answer with another number."""
    draw = random.Random(3)
    made = []
    for record in records:
        body, _, last = record["answer"].rpartition("#### ")
        if last.strip().lstrip("-").isdigit():
            wrong = f"{body}#### {int(last) + draw.choice(WRONG_BY)}"
            made.append({"prompt": record["question"], "chosen": record["answer"], "rejected": wrong})
    return made


def without_tail(ids: list[int], labels: list[int]) -> tuple[list[int], list[int]]:
    """Up to the last trained token: TRL trains completions to their end."""
    end = max(i for i, label in enumerate(labels) if label >= 0) + 1
    return ids[:end], labels[:end]


def prepare(arguments) -> None:
    """sft.jsonl, pairs.jsonl and examples.jsonl of tokens; base.h5; start/, an adapter that changes nothing yet."""
    out = arguments.out
    records = [json.loads(line) for line in arguments.data.read_text().splitlines()][:arguments.records]
    pairs = corrupted(records)
    write_lines(out / "pairs_text.jsonl", pairs)
    write_lines(out / "sft_text.jsonl", [{"prompt": p["prompt"], "completion": p["chosen"]} for p in pairs])
    # Every second example is a wrong answer, to another question than the right ones before and behind it.
    write_lines(out / "examples_text.jsonl",
                [{"prompt": p["prompt"], "completion": p["rejected" if i % 2 else "chosen"], "label": i % 2 == 0}
                 for i, p in enumerate(pairs)])
    for name in ("pairs", "sft", "examples"):
        call(sys.executable, SOURCE / "scripts" / "prepare_data.py", out / f"{name}_text.jsonl", "-o", out / f"{name}.jsonl",
             "--tokenizer", arguments.model, "--as-chat", "--max-seq-len", 1024, "--over-length", "drop")
    lines = [json.loads(line) for line in (out / "pairs.jsonl").read_text().splitlines()]
    for line in lines:
        for side in ("chosen", "rejected"):
            keys = f"{side}_input_ids", f"{side}_labels"
            line[keys[0]], line[keys[1]] = without_tail(line[keys[0]], line[keys[1]])
    write_lines(out / "pairs.jsonl", lines)
    call(arguments.program, "import-hf", arguments.model, out / "base.h5", "--force")


def write_start(arguments) -> Path:
    """An adapter of PEFT for both programs to start from, which changes nothing yet but for --trained-start."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM
    torch.manual_seed(11)
    config = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, target_modules=LINEARS, task_type="CAUSAL_LM")
    model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32)
    model = get_peft_model(model, config)
    for name, parameter in model.named_parameters():
        if arguments.trained_start and "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.02)
    model.save_pretrained(arguments.out / "start")
    return arguments.out / "start"


# --- loratrain

def run_job(arguments, name: str, job: dict) -> Path:
    out = arguments.out
    job = {"model": {"weights": str(out / "base.h5"), **job.pop("model")},
           "run": {"dir": str(out / name), "backend": arguments.device}, **job}
    (out / f"{name}.yaml").write_text(json.dumps(job))
    subprocess.run(["rm", "-rf", out / name], check=True)
    call("mpirun", "-np", 1, arguments.program, out / f"{name}.yaml")
    return out / name


def metrics_of(run: Path, adapter: str) -> list[dict]:
    return [json.loads(line) for line in (run / "adapters" / adapter / "metrics.jsonl").read_text().splitlines()]


def train_together(arguments) -> None:
    dataset = {name: {"path": str(arguments.out / f"{name}.jsonl"), "eval_split": min(EVAL, arguments.records // 4)}
               for name in ("sft", "pairs", "examples")}
    dataset["examples"]["kl_batch_size"] = KL_BATCH
    run = run_job(arguments, "together", {
        "model": {"precision": arguments.precision}, "datasets": dataset,
        "defaults": {"dataset": "pairs", "r": 16, "learning_rate": RATE, "global_batch_size": BATCH,
                     "max_steps": arguments.steps},
        "eval": {"every_steps": max(1, arguments.steps // 5)}, "adapters": ADAPTERS})
    for adapter in ADAPTERS:
        rows = metrics_of(run, adapter["name"])
        steps = [row for row in rows if "loss" in row]
        line = {"together": adapter["name"], "steps": len(steps), "loss": [steps[0]["loss"], steps[-1]["loss"]]}
        for key in ("eval_loss", "eval_rewards/accuracies", "eval_rewards/margins", "eval_kl"):
            values = [round(row[key], 4) for row in rows if row.get(key) is not None]
            line |= {key: values} if values else {}
        print(json.dumps(line), flush=True)


def train_alone(arguments, kind: str, start: Path) -> tuple[list[dict], float | None]:
    """Its steps; tokens/s."""
    data = "pairs" if kind == "dpo" else "examples"
    dataset = {"path": str(arguments.out / f"{data}.jsonl"), "shuffle": False}
    if kind == "kto":
        dataset["kl_batch_size"] = arguments.batch
    run = run_job(arguments, f"alone_{kind}", {
        "model": {"precision": "fp32"}, "datasets": {data: dataset},
        "adapters": [{"name": kind, "loss": kind, "dataset": data, "beta": BETA, "r": 16, "lora_alpha": 32,
                      "init_from": str(start), "learning_rate": RATE, "lr_scheduler_type": "constant", "warmup_steps": 0,
                      "weight_decay": 0.0, "max_grad_norm": 1.0, "global_batch_size": arguments.batch,
                      "max_steps": arguments.trl_steps,
                      **({"ref_adapter": "init_from"} if arguments.trained_start else {})}]})
    steps = [row for row in metrics_of(run, kind) if "loss" in row]
    rates = [(after["tokens"], after["elapsed_seconds"] - before["elapsed_seconds"])
             for before, after in zip(steps[SKIPPED:], steps[SKIPPED + 1:])]
    return steps, rate(rates)


def rate(timed: list[tuple[int, float]]) -> float | None:
    """Tokens/s of (tokens, seconds); None where too few steps are timed."""
    return round(sum(tokens for tokens, _ in timed) / sum(seconds for _, seconds in timed), 1) if timed else None


# --- TRL

def parts(ids: list[int], labels: list[int]) -> tuple[list[int], list[int]]:
    prompt = next(i for i, label in enumerate(labels) if label >= 0)
    return ids[:prompt], ids[prompt:]


def rows_for_trl(arguments, kind: str) -> list[dict]:
    count = arguments.batch * arguments.trl_steps
    name = "pairs" if kind == "dpo" else "examples"
    lines = [json.loads(line) for line in (arguments.out / f"{name}.jsonl").read_text().splitlines()][:count]
    if kind == "dpo":
        rows = []
        for line in lines:
            prompt, chosen = parts(line["chosen_input_ids"], line["chosen_labels"])
            _, rejected = parts(line["rejected_input_ids"], line["rejected_labels"])
            rows.append({"prompt_ids": prompt, "chosen_ids": chosen, "rejected_ids": rejected})
        return rows
    rows = [dict(zip(("prompt_ids", "completion_ids"), parts(line["input_ids"], line["labels"])), label=line["label"])
            for line in lines]
    for i, row in enumerate(rows):
        first = i - i % arguments.batch
        row["KL_completion_ids"] = rows[i - 1 if i > first else first + arguments.batch - 1]["completion_ids"]
    return rows


def trl_trainer(arguments, kind: str, start: Path):
    import torch
    import trl
    from datasets import Dataset
    from datasets.table import InMemoryTable
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer
    config_class, trainer_class = {"dpo": (trl.DPOConfig, trl.DPOTrainer), "kto": (trl.KTOConfig, trl.KTOTrainer)}[kind]

    class Tokenised(trainer_class):
        def _prepare_dataset(self, dataset, *_, **__):
            return dataset

    base = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32)
    model = PeftModel.from_pretrained(base, start, is_trainable=True)
    config = config_class(
        output_dir=str(arguments.out / f"trl_{kind}"), per_device_train_batch_size=arguments.batch, learning_rate=RATE,
        lr_scheduler_type="constant", max_steps=arguments.trl_steps, logging_steps=1, report_to=[],
        use_cpu=arguments.device == "cpu", bf16=False, beta=BETA, train_sampling_strategy="sequential",
        gradient_checkpointing=False, max_length=None, weight_decay=0.0, max_grad_norm=1.0, optim="adamw_torch",
        disable_tqdm=True, save_strategy="no")
    rows = rows_for_trl(arguments, kind)
    columns = InMemoryTable.from_pydict({key: [row[key] for row in rows] for key in rows[0]})
    trainer = Tokenised(model=model, args=config, train_dataset=Dataset(columns, fingerprint=kind),
                        processing_class=AutoTokenizer.from_pretrained(arguments.model))
    if "ref" in trainer.model.peft_config and not arguments.trained_start:  # a copy of the start, which is the base
        trainer.model.delete_adapter("ref")
    return trainer


def train_by_trl(arguments, kind: str, start: Path) -> tuple[list[dict], list[float]]:
    """Its log of each step; the seconds of each but the first ones."""
    from transformers import TrainerCallback
    times: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_, **__):
            if arguments.device == "cuda":
                import torch
                torch.cuda.synchronize()
            times.append(time.perf_counter())

    trainer = trl_trainer(arguments, kind, start)
    trainer.add_callback(Clock())
    trainer.train()
    logs = [line for line in trainer.state.log_history if "loss" in line]
    return logs, [after - before for before, after in zip(times[SKIPPED:], times[SKIPPED + 1:])]


def compare(arguments, kind: str, start: Path) -> None:
    import trl
    own, own_rate = train_alone(arguments, kind, start)
    peer, seconds = train_by_trl(arguments, kind, start)
    tokens = [step["tokens"] for step in own][SKIPPED + 1:]
    keys = [key for key in ("loss", "grad_norm", "rewards/chosen", "rewards/rejected", "kl")
            if key in own[0] and key in peer[0]]
    worst = {key: max(abs(a[key] - b[key]) for a, b in zip(own, peer)) for key in keys}
    print(json.dumps({"beside_trl": kind, "trl": trl.__version__, "trained_start": arguments.trained_start, "steps": [len(own), len(peer)], "batch": arguments.batch,
                      "largest_difference": worst, "loss": [own[0]["loss"], own[-1]["loss"]],
                      "trl_loss": [peer[0]["loss"], peer[-1]["loss"]], "tokens_per_second": own_rate,
                      "trl_tokens_per_second": rate(list(zip(tokens, seconds))),
                      "trl_seconds_per_step": round(statistics.median(seconds), 4) if seconds else None}), flush=True)


def main() -> None:
    arguments = parse_arguments()
    for name in ("program", "model", "data", "out"):
        setattr(arguments, name, getattr(arguments, name).resolve())
    arguments.out.mkdir(parents=True, exist_ok=True)
    prepare(arguments)
    if arguments.steps > 0:
        train_together(arguments)
    if arguments.trl:
        start = write_start(arguments)
        for kind in arguments.trl:
            compare(arguments, kind, start)


if __name__ == "__main__":
    main()
