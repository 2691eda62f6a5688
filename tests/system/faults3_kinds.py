"""Checks of other examples of the kinds of fault that the READMEs of faults3 name (run_faults3.py)."""

import json
import pathlib
import shutil
import signal

import harness
from fault_checks import Wrong, as_transformers, base, check, first_loss, loratrain, prepare, run_python, struck


def lines(path, *records):
    pathlib.Path(path).write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def copied(folder, name, **changes):
    """A copy of a folder with a config.json or adapter_config.json that has these keys; None takes one out."""
    shutil.rmtree(name, ignore_errors=True)
    shutil.copytree(folder, name)
    config = next(path for path in pathlib.Path(name).glob("*config.json") if path.name != "generation_config.json")
    keys = {**json.loads(config.read_text()), **changes}
    config.write_text(json.dumps({key: value for key, value in keys.items() if value is not None}))
    return name


def merged(**changes):
    """Merging a right adapter whose adapter_config.json is changed so."""
    shutil.rmtree("out", ignore_errors=True)
    return loratrain("merge", copied("merge-pissa/adapter", "kind", **{"init_lora_weights": True, **changes}), "out",
                     "--base", base())


# ---- adapters

@check("merge-pissa, its kind")
def variants():
    merged().accepted()
    for name in ("olora", "corda", "loftq", "lora_ga", "pissa_niter_4"):
        merged(init_lora_weights=name).refused("changes the base weights")
    for key, value in {"layer_replication": [[0, 2], [1, 2]], "use_dora": True, "lora_bias": True, "bias": "all",
                       "modules_to_save": ["lm_head"], "trainable_token_indices": [1], "use_qalora": True,
                       "target_parameters": ["mlp.gate"], "arrow_config": {"a": 1}, "a_new_key": 3}.items():
        merged(**{key: value}).refused(f"{key} is ")


@check("rank-pattern-typo, its kind")
def dead_patterns():
    base()
    for key, value, said in (("alpha_pattern", {"^q_proj": 8}, r"\^q_proj"), ("rank_pattern", {"c_proj": 8}, "c_proj"),
                             ("exclude_modules", ["q_prj"], "q_prj"), ("target_modules", ["q_proj", "o_prj"], "o_prj")):
        loratrain("rank-pattern-typo/job.yaml", "--set", f"adapters.a.{key}={json.dumps(value)}",
                  "--set", "adapters.a.rank_pattern={}" if key != "rank_pattern" else "adapters.a.r=4").refused(said)
    for key, value in (("rank_pattern", {"q_prj": 8}), ("alpha_pattern", {"^q_proj": 8}), ("exclude_modules", ["q_prj"])):
        merged(**{key: value}).accepted().needs(merged(**{key: value}).says(f"{key}.*matches no"), f"{key} is not named")
    shutil.rmtree("started-run", ignore_errors=True)
    adapter = copied("merge-pissa/adapter", "start", init_lora_weights=True, rank_pattern={"q_prj": 8})
    job = {"model": {"weights": base(), "precision": "fp32"}, "run": {"dir": "started-run", "backend": "cpu"},
           "datasets": {"d": {"path": lines("started.jsonl", {"input_ids": [5, 6, 7], "labels": [5, 6, 7]})}},
           "adapters": [{"name": "a", "r": 4, "lora_alpha": 8, "max_steps": 1, "init_from": adapter,
                         "target_modules": ["q_proj", "v_proj", "down_proj"]}]}
    pathlib.Path("started.yaml").write_text(json.dumps(job))
    result = loratrain("started.yaml").accepted()
    result.needs(result.says("rank_pattern.*q_prj.*matches no"), "init_from does not name what matches nothing")


# ---- bases

RENAMED = """
import sys
from safetensors.torch import load_file, save_file
tensors = load_file(sys.argv[1])
save_file({sys.argv[2] + name: tensor for name, tensor in tensors.items()}, sys.argv[1], metadata={"format": "pt"})
"""


@check("prefixed-names, its kind")
def prefixes():
    base()
    want, _ = first_loss("base.h5", "plain")
    for prefix in ("base_model.model.", "model.language_model.", "module.", "_fsdp_wrapped_module."):
        folder = copied("base", "prefixed-kind")
        run_python(RENAMED, f"{folder}/model.safetensors", prefix)
        result = loratrain("import-hf", folder, "prefixed-kind.h5", "--force")
        if result.code == 2:
            result.refused(prefix)
            continue
        result.accepted().needs(first_loss("prefixed-kind.h5", "kind")[0] == want, f"{prefix}: another loss")


@check("phi3-yarn, without factor")
def phi3_without_factor():
    scaling = json.loads(pathlib.Path("phi3-yarn/hf/config.json").read_text())["rope_scaling"]
    as_transformers(copied("phi3-yarn/hf", "phi3-kind", rope_scaling={**{key: scaling[key] for key in scaling
                                                                         if key != "factor"}}))


@check("rope-two-thetas, its kind")
def contradictions():
    linear = {"rope_type": "linear", "factor": 2.0}
    for said, keys in (("theta", {"rope_theta": 5e5}),
                       ("rope_type|type", {"rope_parameters": None, "rope_theta": 1e4, "rope_scaling": {**linear, "type": "dynamic"}}),
                       ("factor", {"rope_parameters": {**linear, "rope_theta": 1e4}, "rope_scaling": {**linear, "factor": 4.0}}),
                       ("original_max_position_embeddings", {
                           "rope_parameters": None, "rope_theta": 1e4, "original_max_position_embeddings": 32, "rope_scaling":
                           {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}})):
        loratrain("import-hf", copied("base", "rope-kind", **keys), "rope-kind.h5", "--force").refused(said)


@check("base-dropout, its kind")
def dropouts():
    for folder, key in (("base", "attention_dropout"), ("phi3-yarn/hf", "resid_pdrop"), ("phi3-yarn/hf", "embd_pdrop")):
        result = loratrain("import-hf", copied(folder, "dropout-kind", **{key: 0.1}), "dropout-kind.h5", "--force").accepted()
        result.needs(result.says(key), f"nothing is said of {key}")


# ---- data

@check("packed-rows, its kind")
def unknown_keys():
    base()
    sample = {"input_ids": list(range(5, 15)), "labels": list(range(5, 15))}
    for key, value in (("segment_ids", [0] * 5 + [1] * 5), ("token_type_ids", [0] * 5 + [1] * 5), ("assistant_masks", [0] * 5 + [1] * 5),
                       ("position_id", list(range(10))), ("lables", [1])):
        file = lines("keys.jsonl", {**sample, key: value})
        result = loratrain("packed-rows/job.yaml", "--set", f"datasets.d.path={pathlib.Path(file).absolute()}", "--dry-run")
        result.refused_or_reported(key)


@check("part-text-null, its kind")
def broken_records():
    for name, text in (("deep-json", b'{"prompt": "a", "completion": ' + b"[" * 100000 + b"]" * 100000 + b"}"),
                       ("latin", '{"prompt": "a\xe9", "completion": "b"}'.encode("latin1")),
                       ("surrogate", b'{"prompt": "a\\ud800", "completion": "b"}'),
                       ("parts", b'{"messages": [{"role": "user", "content": [null]}, {"role": "assistant", "content": "b"}]}')):
        pathlib.Path("broken.jsonl").write_bytes(text + b"\n")
        prepare("broken.jsonl", "--tokenizer", "tok", "--show", "1").refused(r"broken\.jsonl:1")
    import pyarrow
    import pyarrow.parquet
    bytes_of = pyarrow.py_buffer
    texts = pyarrow.StringArray.from_buffers(1, bytes_of(b"\0\0\0\0\2\0\0\0"), bytes_of(b"a\xff"))
    pyarrow.parquet.write_table(pyarrow.table({"prompt": texts, "completion": ["b"]}), "not-utf8.parquet")
    prepare("not-utf8.parquet", "--tokenizer", "tok", "--show", "1").refused("UTF-8")
    pyarrow.parquet.write_table(pyarrow.table({"input_ids": [[1]], "labels": [[1]]}), "tokenised.parquet")
    prepare("tokenised.parquet", "--tokenizer", "tok", "--show", "1").refused("tokenised")


@check("dataset-folder, its kind")
def dataset_pattern():
    shutil.copytree("dataset-folder/disk", "disk-kind")
    prepare("disk-kind/*.arrow", "--tokenizer", "tok", "-o", "disk-kind.jsonl").accepted()
    samples = pathlib.Path("disk-kind.jsonl").read_text()
    shutil.copy("disk-kind/data-00000-of-00001.arrow", "disk-kind/cache-0123456789abcdef.arrow")
    result = prepare("disk-kind/*.arrow", "--tokenizer", "tok", "-o", "disk-kind.jsonl").accepted()
    result.needs(pathlib.Path("disk-kind.jsonl").read_text() == samples, "cache-*.arrow is read too")
    shutil.copytree("dataset-folder/disk", "splits/train")
    pathlib.Path("splits/dataset_dict.json").write_text('{"splits": ["train"]}')
    result = prepare("splits", "--tokenizer", "tok", "--show", "1")
    result.needs(result.code == 0 or result.says("splits/train"), "a folder of splits is not named")


@check("data/dpo_question, their kind")
def prompts():
    pair = {"chosen": "Rome", "rejected": "Paris"}
    for more in ({"query": "Capital?"}, {"instruction": "Capital?"}, {"instruction": "Cap", "input": "Capital?"},
                 {"system": "Capital?", "prompt": "Italy?"}, {"instruction": "Italy?", "history": [["Capital?", "y"]]}):
        for chat in ((), ("--as-chat",)):
            result = prepare(lines("pairs.jsonl", {**pair, **more}), "--tokenizer", "tok", *chat, "--show", "1")
            result.needs("Capital?" in result.text if result.code == 0 else result.says("--as-chat", "prompt"), f"{more} is lost")
    prepare(lines("pairs.jsonl", pair), "--tokenizer", "tok", "--show", "1").refused("--prompt-field")


@check("data/lf_kto_alpaca, its kind")
def labels():
    for yes, no in ((1, 0), ("True", "False"), ("true", "false"), (True, False)):
        for key in ("label", "kto_tag"):
            records = [{"prompt": "p", "completion": "c", key: value} for value in (yes, no)]
            prepare(lines("labels.jsonl", *records), "--tokenizer", "tok", "-o", "labels.out.jsonl").accepted()
            got = [json.loads(line)["label"] for line in pathlib.Path("labels.out.jsonl").read_text().splitlines()]
            if got != [True, False]:
                raise Wrong(f"{key} of {yes}, {no} is {got}")
    one = [{"prompt": f"p{i}", "completion": "c", "label": True} for i in range(8)]
    prepare(lines("labels.jsonl", *one), "--tokenizer", "tok", "-o", "labels.out.jsonl").refused_or_reported("true")


@check("tools-as-text, its kind")
def tools():
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "c"}]
    for value, right in ((None, True), ([], True), (5, False), ("[{", False), ([3], False)):
        result = prepare(lines("tools.jsonl", {"messages": turns, "tools": value}), "--tokenizer", "tok", "--show", "1")
        result.accepted() if right else result.refused("tools")
    call = {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{}"}}]}
    for turn in (call, {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}):
        prepare(lines("tools.jsonl", {"messages": [turns[0], turn]}), "--tokenizer", "tok", "--show", "1").refused("tool|function")


# ---- strikes

@check("strikes: SIGTERM at the start")
def early_term():
    for ranks in (1, 2):
        for delay in (0.05, 0.2):
            code = struck("term", ranks, delay, lambda pids: harness.send(pids[:1], signal.SIGTERM), 60,
                          defaults={"r": 8, "max_steps": 4000})
            if code != harness.STOPPED:
                raise Wrong(f"exit code {code} of {ranks} ranks, {delay} s after their start")
