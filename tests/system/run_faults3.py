#!/usr/bin/env python3
"""Runs the commands of a folder of faults, each with a README of what is wrong and what would be right, and prints
for each `right` or `wrong: why`, and how many are right. Exit code 1 where any is wrong.

  scripts/test_python.sh tests/system/run_faults3.py [FOLDER] [NAME...]

FOLDER: by default shared/faults3 in the nearest folder above the repository that has it; NAME: some of the checks.
It works on a copy. The program is LORATRAIN_BIN, as for the other system tests. Needs the Python of the tests:
what transformers and PEFT come to is computed here. Not a test of ctest, as the folder is no part of the repository."""

import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import harness
from fault_checks import (IDS, NO_TRACEBACK, Result, Wrong, as_transformers, base, check, first_loss, loratrain, main, prepare,
                          run_python, small_job, steps, struck, transformers_loss)
from harness import SOURCE

# ---- merging

def merged(folder):
    shutil.rmtree("out", ignore_errors=True)
    return loratrain("merge", f"{folder}/adapter", "out", "--base", base())


def refuses_merge(folder, *patterns):
    merged(folder).refused(*patterns)
    if os.path.exists("out"):
        raise Wrong("refused, but 'out' is there")


@check("merge-alora")
def merge_alora():
    refuses_merge("merge-alora", "alora|activat|invocation")
    result = loratrain("check-export", "merge-alora/adapter", "--base", base())
    result.needs(not result.says("SGLang: loads it"), "check-export says that a program without activated LoRA loads it")


@check("merge-pissa")
def merge_pissa():
    refuses_merge("merge-pissa", "pissa")
    result = loratrain("check-export", "merge-pissa/adapter", "--base", base())
    result.needs(not result.says(r"SGLang: loads it", r"llama\.cpp: loads it"), "check-export says that all load it")


@check("merge-nan")
def merge_nan():
    refuses_merge("merge-nan", "nan|finite")


MERGED = """
import json, sys, torch, peft, transformers
from safetensors.torch import load_file
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float64)
want = peft.PeftModel.from_pretrained(model, sys.argv[2], autocast_adapter_dtype=False).double().merge_and_unload().state_dict()
got = load_file(sys.argv[3])
print(max((got[name].double() - want[name]).abs().max().item() for name in got if name in want), len(got))
"""


def merges_as_peft(folder):
    merged(folder).accepted()
    if not list(pathlib.Path("out").glob("*.safetensors")):
        raise Wrong("no weights in 'out'")
    worst, count = run_python(MERGED, "base", f"{folder}/adapter", str(next(pathlib.Path("out").glob("*.safetensors")))).split()
    if int(count) < 10 or float(worst) > 1e-5:
        raise Wrong(f"merged weights differ from PEFT's by {worst}")


@check("merge-alpha-order")
def merge_alpha_order():
    merges_as_peft("merge-alpha-order")


@check("merge-lm-head-of-peft")
def merge_lm_head():
    merges_as_peft("merge-lm-head-of-peft")


# ---- bases

@check("base-dropout")
def base_dropout():
    result = loratrain("import-hf", "base-dropout/hf", "dropout.h5").accepted()
    if not result.says("dropout"):
        _, result = first_loss("dropout.h5")
    result.needs(result.says("dropout"), "nothing is said of the base's dropout")


@check("gemma3-attention-cap")
def gemma3_attention_cap():
    as_transformers("gemma3-attention-cap/hf")


@check("gemma3-short-config")
def gemma3_short_config():
    result = loratrain("import-hf", "gemma3-short-config/hf", "short.h5")
    result.needs(not result.says("vocab_size' is missing", "num_attention_heads' is missing"),
               "keys are missed that transformers fills in")


@check("mistral3-no-tie-key")
def mistral3_no_tie_key():
    loratrain("import-hf", "mistral3-no-tie-key/hf", "mistral3.h5").accepted()
    folder = pathlib.Path("mistral3-untied")
    shutil.copytree("mistral3-no-tie-key/hf", folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    loratrain("import-hf", folder, "mistral3-untied.h5").accepted()
    if first_loss("mistral3.h5")[0] != first_loss("mistral3-untied.h5")[0]:
        raise Wrong("the stored head is not used")


@check("phi3-yarn")
def phi3_yarn():
    as_transformers("phi3-yarn/hf")


PLAIN_NAMES = """
import re, sys
from safetensors.torch import load_file, save_file
plain = {re.sub(r"^.*?(?=model\\.(embed_tokens|layers|norm)\\b|lm_head\\b)", "", name): tensor
         for name, tensor in load_file(sys.argv[1]).items()}
save_file(plain, sys.argv[1], metadata={"format": "pt"})
"""


@check("prefixed-names")
def prefixed_names():
    result = loratrain("import-hf", "prefixed-names/hf", "prefixed.h5")
    if result.code == 0:  # read as if the names were plain, which transformers does not
        run_python(PLAIN_NAMES, "prefixed-names/hf/model.safetensors")
        got, want = first_loss("prefixed.h5")[0], transformers_loss("prefixed-names/hf")
        return result.needs(abs(got / want - 1) < 1e-5, f"loss {got:.6f}, with plain names {want:.6f}")
    result.refused(r"_orig_mod|base_model\.model|language_model|in front|prefix|begin")
    return result.needs(not result.says("more problems"), "a flood of messages beside it")


@check("rope-two-thetas")
def rope_two_thetas():
    result = loratrain("import-hf", "rope-two-thetas/hf", "thetas.h5")
    if result.code == 0:
        return as_transformers("rope-two-thetas/hf")
    return result.refused("theta")


@check("granite-head")
def granite_head():
    made = subprocess.run([sys.executable, "-W", "ignore", "make.py", "made"], cwd="granite-head", text=True,
                          capture_output=True, timeout=300, check=False)
    loss, norm = map(float, re.search(r"loss (\S+) grad norm (\S+)", made.stdout).groups())
    loratrain("import-hf", "granite-head/made/base", "granite-head/made/base.h5").accepted()
    loratrain("granite-head/made/job.yaml").accepted()
    got = steps("granite-head/made/run")[0]
    if abs(got["loss"] / loss - 1) > 1e-5 or abs(got["grad_norm"] / norm - 1) > 1e-4:
        raise Wrong(f"loss {got['loss']:.6f}, gradient norm {got['grad_norm']:.6f}; PEFT has {loss:.6f}, {norm:.6f}")


# ---- jobs

def packed(file, key):
    base()
    shutil.rmtree("packed-rows/run", ignore_errors=True)
    result = loratrain("packed-rows/job.yaml", "--set", f"datasets.d.path={file}")
    if result.code == 2:
        return result.refused(key)
    result.accepted()
    apart = []
    for line in pathlib.Path("packed-rows", file).read_text().splitlines():
        row = json.loads(line)
        for part in (slice(0, 10), slice(10, None)):
            apart.append({"input_ids": row["input_ids"][part], "labels": row["labels"][part]})
    want, _ = first_loss("base.h5", "apart", data=apart)
    got = steps("packed-rows/run")[0]["loss"]
    return result.needs(abs(got / want - 1) < 1e-5, f"loss {got:.6f}, of the documents apart {want:.6f}")


@check("packed-rows")
def packed_rows():
    packed("data.jsonl", "position_ids")


@check("packed-rows, seq_lengths")
def packed_rows_seq_lengths():
    packed("seq-lengths.jsonl", "seq_lengths")


@check("rank-pattern-typo")
def rank_pattern_typo():
    base()
    loratrain("rank-pattern-typo/job.yaml").refused("q_prj")


@check("data/34_shifted_labels")
def shifted_labels():
    job = {"model": {"weights": str(demo())}, "run": {"dir": "shifted"},
           "datasets": {"d": {"path": "short.jsonl"}}, "adapters": [{"name": "a", "r": 4, "max_steps": 1}]}
    sample = json.loads(pathlib.Path("data/34_shifted_labels.jsonl").read_text())
    small = {key: [value % 250 if value >= 0 else value for value in values] for key, values in sample.items()}
    pathlib.Path("short.jsonl").write_text(8 * (json.dumps(small) + "\n"))
    pathlib.Path("shifted.yaml").write_text(json.dumps(job))
    loratrain("shifted.yaml", "--dry-run").refused_or_reported("shift")


def demo():
    if not os.path.exists("demo.h5"):
        loratrain("import-hf", SOURCE / "inputs/demo_base", "demo.h5").accepted()
    return pathlib.Path("demo.h5").absolute()


@check("data/27b_rung_in_warmup_demo")
def rung_in_warmup():
    tasks = SOURCE / "inputs/demo_tasks/add"
    result = loratrain("data/27b_rung_in_warmup_demo.yaml", *[word for setting in (
        f"model.weights={demo()}", f"run.dir={pathlib.Path('rungs').absolute()}", f"datasets.add.path={tasks}/train.jsonl",
        f"datasets.add.eval_path={tasks}/eval.jsonl") for word in ("--set", setting)])
    result.refused_or_reported(r"rung.*warm-?up", r"warm-?up.*rung")


# ---- data

def shown(result):
    """Per sample the text, marks included."""
    return re.split(r"^--- .*$", result.text, flags=re.MULTILINE)[1:]


def trained(text):
    return "|".join(re.findall(r"\[\[(.*?)\]\]", text, re.DOTALL))


@check("assistants-in-a-row")
def assistants_in_a_row():
    result = prepare("assistants-in-a-row/x.jsonl", "--tokenizer", "assistants-in-a-row/tok", "--show", "9").accepted()
    for text in shown(result):
        result.needs("assistant" not in trained(text), "a header is trained")
    last = trained(shown(result)[-1])
    result.needs("c" in last, "the last turn is not trained")
    result.needs(len(shown(result)) < 2 or "b<" not in last, "the turn before is trained again in the last sample")


def begins(name, tokenizer):
    out = pathlib.Path(f"{name}.out.jsonl")
    result = prepare(f"{name}/x.jsonl", "--tokenizer", f"{name}/{tokenizer}", "-o", out)
    return result, json.loads(out.read_text().splitlines()[0])["input_ids"] if result.code == 0 else []


@check("bos-flag")
def bos_flag():
    result, ids = begins("bos-flag", "tok")
    result.accepted().needs(ids[0] != 0, "begins with BOS, of which transformers gives none")


@check("double-bos")
def double_bos():
    result, ids = begins("double-bos", "tok")
    result.accepted().needs(ids[:2] != [0, 0] or result.says("bos"), "two BOS without a word")


@check("content-not-text")
def content_not_text():
    lines = pathlib.Path("content-not-text/x.jsonl").read_text().splitlines()
    for number, line in enumerate(lines, 1):
        pathlib.Path("content.jsonl").write_text(line + "\n")
        result = prepare("content.jsonl", "--tokenizer", "tok", "--show", "9")
        if number == len(lines) and result.code == 0:
            result.needs("[[It is sunny." in result.text, "output_text is not joined")
        else:
            result.refused(r"content\.jsonl:1")


@check("dataset-folder")
def dataset_folder():
    result = prepare("dataset-folder/disk", "--tokenizer", "tok", "--show", "1")
    if result.code != 0:
        result.refused(r"save_to_disk|\.arrow")
        return
    out = pathlib.Path("disk.jsonl")
    prepare("dataset-folder/disk", "--tokenizer", "tok", "-o", out).accepted()
    samples = len(out.read_text().splitlines())
    shutil.copy("dataset-folder/disk/data-00000-of-00001.arrow", "dataset-folder/disk/cache-0123456789abcdef.arrow")
    result = prepare("dataset-folder/disk", "--tokenizer", "tok", "-o", out).accepted()
    result.needs(len(out.read_text().splitlines()) == samples, "cache-*.arrow is read too")


@check("generation-marks")
def generation_marks():
    result = prepare("generation-marks/x.jsonl", "--tokenizer", "generation-marks/tok", "--show", "1").accepted()
    if trained(result.text).count("It is sunny.") != 1:
        result.needs("generation %}" in prepare("--help").text or result.says("generation"), "the marks are passed by")


@check("long-number")
def long_number():
    prepare("long-number/x.jsonl", "--tokenizer", "bytes", "--show", "1").refused(r"x\.jsonl:1")


@check("null-tool-calls")
def null_tool_calls():
    prepare("null-tool-calls/x.jsonl", "--tokenizer", "null-tool-calls/tok", "--show", "1").accepted()


@check("part-text-null")
def part_text_null():
    prepare("part-text-null/x.jsonl", "--tokenizer", "tok", "--show", "1").refused(r"x\.jsonl:1")


@check("reasoning-names")
def reasoning_names():
    for tokenizer in ("tok", "tok-thinking"):
        result = prepare("reasoning-names/x.jsonl", "--tokenizer", f"reasoning-names/{tokenizer}", "--show", "3")
        if result.code == 2:
            result.refused("reasoning|thinking")
        else:
            result.accepted().needs(result.text.count("hm") == 3, f"{tokenizer}: thoughts are left out")


@check("system-column")
def system_column():
    for name, *more in (("alpaca",), ("messages",), ("preference", "--as-chat")):
        result = prepare(f"system-column/{name}.jsonl", "--tokenizer", "tok", *more, "--show", "1")
        if result.code == 2:
            result.refused("system")
            continue
        result.accepted().needs("You are terse." in result.text, f"{name}: system is left out")
        if name == "alpaca":
            result.needs("1+1" in result.text, f"{name}: history is left out")


@check("tool-arguments-text")
def tool_arguments_text():
    result = prepare("tool-arguments-text/x.jsonl", "--tokenizer", "tool-arguments-text/tok", "--show", "1")
    result.accepted().needs('"arguments": {"city": "Paris"}' in result.text or result.says("warning.*arguments"),
                          "arguments are encoded twice")


@check("tools-as-text")
def tools_as_text():
    result = prepare("tools-as-text/text.jsonl", "--tokenizer", "tok", "--show", "1").accepted()
    result.needs('{"type": "function"' in result.text and '"["' not in result.text, "tools are no objects")
    prepare("tools-as-text/dict.jsonl", "--tokenizer", "tok", "--show", "1").refused("tools")
    result = prepare("tools-as-text/json-column.parquet", "--tokenizer", "tok", "--show", "1")
    if result.code == 2:
        result.refused("tools")
    else:
        result.accepted().needs('"{' not in result.text, "a tool is a quoted text")


def keeps_prompt(file, *words):
    result = prepare(f"data/{file}", "--tokenizer", "tok", "--show", "1")
    if result.code == 2:
        result.refused("prompt|question|instruction|system|history")
        return
    for word in words:
        result.accepted().needs(word in result.text, f"{word!r} is lost")


@check("data/23_tools_dropped_by_template")
def tools_dropped():
    prepare("data/23_tools_dropped_by_template.jsonl", "--tokenizer", "tok", "--show", "1").refused("tool")


@check("data/24_tool_args_string")
def tool_args_string():
    result = prepare("data/24_tool_args_string.jsonl", "--tokenizer", "tok", "--chat-template", "data/qwen.jinja", "--show", "1")
    result.accepted().needs('\\"city' not in result.text or result.says("warning.*arguments"), "arguments are encoded twice")


@check("data/26_dpo_lf_alpaca")
def dpo_lf_alpaca():
    keeps_prompt("26_dpo_lf_alpaca.json", "Natalia sold clips to 48 of her friends")


@check("data/35_trl_sft_conversational")
def trl_sft_conversational():
    for file, answer in (("35_trl_sft_conversational", "It is blue."), ("pc_conv", "b")):
        result = prepare(f"data/{file}.jsonl", "--tokenizer", "tok", "--show", "1").accepted()
        result.needs(trained(result.text).startswith(answer), "the completion is not what is trained")


@check("data/37_dev, 38_blank_answer")
def odd_messages():
    for file in ("37_dev", "38_blank_answer"):
        result = prepare(f"data/{file}.jsonl", "--tokenizer", "tok", "--show", "1")
        result.needs(result.code in (0, 2) and NO_TRACEBACK not in result.text, file)


@check("data/alpaca_sys_hist")
def alpaca_sys_hist():
    keeps_prompt("alpaca_sys_hist.jsonl", "You are a tutor", "x", "y")


@check("data/dpo_question, orca_dpo, lf_dpo_alpaca")
def preferences():
    keeps_prompt("dpo_question.jsonl", "Capital of Italy?")
    keeps_prompt("lf_dpo_alpaca.jsonl", "Capital of Italy?")
    keeps_prompt("orca_dpo.jsonl", "Capital of Italy?", "Be brief")


@check("data/lf_kto_alpaca, kto_sorted")
def kto():
    out = pathlib.Path("kto.jsonl")
    prepare("data/lf_kto_alpaca.jsonl", "--tokenizer", "tok", "-o", out).accepted()
    labels = [json.loads(line).get("label") for line in out.read_text().splitlines()]
    if labels != [True, False]:
        raise Wrong(f"kto_tag is not the label: {labels}")
    prepare("data/kto_sorted.jsonl", "--tokenizer", "tok", "-o", out).refused_or_reported("sort|order|mix|shuffle|neighbour")


# ---- planning

@check("planner")
def planner():
    """By hand, in microbatches of 5632: 6,757 tokens/s; half a percent for other costs since."""
    result = loratrain("planner/inv.yaml", "--dry-run", "--verbose", "--ranks", "4", "--device", "h100", timeout=600).accepted()
    speeds = [float(word.replace(",", "")) for word in re.findall(r"balanced\s.*?([\d,.]+) tokens/s", result.text)]
    speeds += [float(word.replace(",", "")) for word in re.findall(r"([\d,]+(?:\.\d+)?) tokens/s", result.text)]
    result.needs(speeds, "no tokens/s is printed")
    result.needs(speeds[0] > 6720, f"{speeds[0]:.0f} tokens/s, by hand 6757")


# ---- strikes

@check("strikes: generate-2e62")
def generate_too_many():
    job = small_job("texts", eval={"generate": {"samples": 4, "max_new_tokens": 2 ** 62}})
    loratrain(job).refused("max_new_tokens")


def lower_latest(name, files, **sections):
    job = small_job(name, checkpoint={"every_steps": 5, "every_minutes": 0}, **sections)
    for _ in range(2):
        result = Result(harness.run([job], 2)).accepted()
        latest = sorted(pathlib.Path(name).glob(files))
        if not latest:
            raise Wrong(f"no {files}")
        for path in latest:
            path.write_text("3\n")
    result.needs(not result.says("restart never"), "blocked")


@check("strikes: LATEST below all checkpoints")
def latest_joint():
    lower_latest("latest", "ckpt/LATEST")


@check("strikes: LATEST below all checkpoints, workers")
def latest_workers():
    lower_latest("latest-workers", "ckpt/start-*/LATEST", parallel={"assignment": "each"},
                 adapters=[{"name": name} for name in "abcd"])


@check("strikes: SIGUSR1 at the start")
def early_stop():
    for ranks, whom in ((1, None), (2, None), (2, "mpirun")):
        for delay in (0.03, 0.09, 0.15, 0.21, 0.3):
            code = struck("early", ranks, delay, lambda pids: harness.send(pids[:1], signal.SIGUSR1), 60, whom,
                          defaults={"r": 8, "max_steps": 4000})
            if code != harness.STOPPED:
                raise Wrong(f"exit code {code} of {ranks} ranks, {delay} s after their start, sent to {whom or 'a rank'}")


@check("strikes: SIGSTOP at the start")
def early_halt():
    for delay, rank in ((0.02, 1), (0.1, 0), (0.2, 1), (0.35, 1)):
        code = struck("halted", 2, delay, lambda pids, rank=rank: harness.send(pids[rank:rank + 1], signal.SIGSTOP), 75,
                      defaults={"r": 8, "max_steps": 4000}, run={"peer_timeout": 6})
        if code is None:
            raise Wrong(f"hangs: rank {rank} was stopped {delay} s after its start")
        if code == 0 or math.isnan(code):
            raise Wrong(f"exit code {code}")


if __name__ == "__main__":
    import faults3_kinds  # noqa: F401  siblings of the faults that the READMEs name
    sys.exit(main(sys.argv[1:]))
