#!/usr/bin/env python3
"""What vLLM and llama.cpp themselves say to exported adapters, beside loratrain check-export.

  scripts/test_python.sh tests/system/loader_peers.py --vllm FOLDER --llama-cpp FOLDER
                         [--llama-cpp-python FOLDER] [--family NAME...]

FOLDER of vLLM: its wheel, unzipped; its lora/peft_helper.py, lora/utils.py and lora/lora_model.py run
as they are, what they import of the rest of vLLM (GPU code) is a placeholder. The modules that its
model takes are the family's linears, and embed_tokens and lm_head where its model class has
embedding_modules. FOLDER of llama.cpp: its sources (of llama-cpp-python's source package,
vendor/llama.cpp), whose convert_lora_to_gguf.py runs as it is; it writes scales as llama.cpp will apply
them, which are compared with those that the adapter was trained with. FOLDER of llama-cpp-python: where pip
--target installed it; base and adapter are loaded, and logits compared with PEFT's (1e-4); not where those
of the base alone differ from transformers', which some of the golden bases' do (windows, steps of layers
without rotation and scales that llama.cpp has for the published models alone).

LORATRAIN_BIN: the program. Trains the golden adapters of every family that test_peft_export.py has,
prints a line for each and loader, and ends with 1 where a result is not what the loader does."""
from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import json
import math
import re
import subprocess
import sys
import types
from pathlib import Path
from unittest import mock

SOURCE = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(SOURCE / "tests/system"), str(SOURCE / "tests/python")]

from harness import GOLDEN, JobTest, run  # noqa: E402
from llama_cpp_logits import BASE_REFUSED  # noqa: E402
from test_peft_export import ADAPTERS  # noqa: E402

RUN_AS_THEY_ARE = ("vllm.lora.peft_helper", "vllm.lora.lora_model", "vllm.lora.lora_weights",
                   "vllm.lora.utils", "vllm.model_executor.models.utils")
MOST_RANKS = 512
LOGITS = 1e-4
MODEL_FILES = {"smollm3": "transformers/base", "seed_oss": "transformers/base", "olmo2": "transformers/base",
               "olmo3": "transformers/base", "qwen2_window": "qwen2", "qwen3_yarn": "qwen3",
               "gemma3_text": "gemma3", "gemma3": "gemma3_mm", "qwen2_5_vl": "qwen2_5_vl", "qwen3_vl": "qwen3_vl", "qwen3_5_moe": "qwen3_5", "ministral3": "mistral",
               "phi3_long": "phi3", "phi3_window": "phi3", "mistral_window": "mistral", "hunyuan_v1_dense": "hunyuan_v1",
               **dict.fromkeys(("ernie4_5", "ernie4_5_bias"), "llama")}  # whose class it extends


class Placeholders(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules of vLLM that are not run: whatever is asked of them is there and does nothing."""

    def __init__(self, folder):
        self.folder = folder

    def find_spec(self, name, path=None, target=None):
        if not name.startswith("vllm"):
            return None
        if name in RUN_AS_THEY_ARE:
            file = self.folder / (name.replace(".", "/") + ".py")
            return importlib.util.spec_from_file_location(name, file)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = self.attribute(spec.name)
        return module

    @staticmethod
    def attribute(module):
        def attribute(name):
            if name.startswith("__"):
                raise AttributeError(name)
            if name == "PIN_MEMORY":
                return False
            return mock.MagicMock(name=f"{module}.{name}")
        return attribute

    def exec_module(self, module):
        pass


def vllm_modules(folder, family):
    """Names that vLLM's model of the family takes LoRA on."""
    file = folder / "vllm/model_executor/models" / (MODEL_FILES.get(family, family) + ".py")
    text = file.read_text() if file.exists() else ""
    names = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "qkv_proj",
             "gate_up_proj", "out_proj"}
    names |= set(re.findall(r"in_proj_\w+", text))  # of gated delta nets
    config = json.loads((GOLDEN / family / "base" / "config.json").read_text())
    for expert in range(config.get("num_experts") or config.get("num_local_experts") or 0):
        names |= {f"experts.{expert}.{linear}_proj" for linear in ("gate", "up", "down")}
    embedding = re.search(r"embedding_modules = \{(.*?)\}", text, re.S)
    if embedding:
        names |= set(re.findall(r'"(\w+)":', embedding.group(1)))
    return names


def vllm_result(folder, family, adapter):
    from vllm.lora.lora_model import LoRAModel
    from vllm.lora.lora_weights import PackedLoRALayerWeights
    from vllm.lora.peft_helper import PEFTHelper
    try:
        helper = PEFTHelper.from_local_dir(str(adapter), None)
        helper.validate_legal(types.SimpleNamespace(max_lora_rank=MOST_RANKS))
        model = LoRAModel.from_local_checkpoint(str(adapter), vllm_modules(folder, family), helper,
                                                lora_model_id=1, device="cpu")
        for block, parts in experts_of(model).items():
            PackedLoRALayerWeights.pack_moe(parts, block)
    except (ValueError, RuntimeError, AssertionError, KeyError) as error:
        return f"{type(error).__name__}: {error}"
    config = json.loads((adapter / "adapter_config.json").read_text())
    for name, lora in model.loras.items():
        rank = lora.lora_a.shape[0]
        wanted = scale_of(config, name, rank)
        if not math.isclose(lora.scaling, wanted, rel_tol=1e-6):
            return f"{name} has scale {lora.scaling}, trained with {wanted}"
    return "" if model.loras else "no module has LoRA"


def experts_of(model):
    """Of each layer gate, down and up of its experts in turn, as vLLM packs them; none where one has no LoRA."""
    blocks = {}
    for name in model.loras:
        found = re.match(r"(.*\.experts)\.(\d+)\.", name)
        if found:
            blocks[found[1]] = max(blocks.get(found[1], 0), int(found[2]) + 1)
    return {block: [model.loras.get(f"{block}.{expert}.{linear}_proj") for expert in range(count)
                    for linear in ("gate", "down", "up")] for block, count in blocks.items()}


def pattern_value(patterns, name, otherwise):
    for pattern, value in (patterns or {}).items():
        if re.match(rf"(.*\.)?({pattern})$", name):
            return value
    return otherwise


def scale_of(config, name, rank):
    alpha = pattern_value(config.get("alpha_pattern"), name, config["lora_alpha"])
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def llama_cpp_result(folder, packages, family, adapter):
    out = adapter / "adapter.gguf"
    process = subprocess.run(
        [sys.executable, folder / "convert_lora_to_gguf.py", adapter, "--base", GOLDEN / family / "base",
         "--outfile", out, "--outtype", "f32"], capture_output=True, text=True, check=False,
        env={"PYTHONPATH": f"{folder / 'gguf-py'}:{folder}", "PATH": "/usr/bin:/bin", "HF_HUB_OFFLINE": "1"})
    if process.returncode != 0:
        message = process.stderr.strip().rpartition("\n")[2]
        if "tokenizer" in message:  # which the golden bases do not have
            raise NotCompared("the base: " + message)
        return message
    sys.path.insert(0, str(folder / "gguf-py"))
    import gguf
    reader = gguf.GGUFReader(out)
    alpha = float(reader.fields["adapter.lora.alpha"].contents())
    ranks = [int(tensor.shape[0]) for tensor in reader.tensors if tensor.name.endswith("lora_b")]
    config = json.loads((adapter / "adapter_config.json").read_text())
    if config.get("use_dora") or config.get("peft_type") != "LORA":
        return "what is beside lora_A and lora_B is left out"
    stacked = {(re.sub(r"\.experts\.\d+\.", ".experts.", name), rank) for name, rank in hf_ranks(adapter)}
    trained = sorted(scale_of(config, name, rank) for name, rank in stacked)
    applied = sorted(alpha / rank for rank in ranks)
    if len(trained) != len(applied):
        return f"{len(applied)} tensors where the adapter has {len(trained)}"
    if not all(math.isclose(a, b, rel_tol=1e-6) for a, b in zip(trained, applied)):
        return f"scales {applied[0]} to {applied[-1]}, trained with {trained[0]} to {trained[-1]}"
    return loader_result(folder, packages, family, adapter, out) if packages else ""


class NotCompared(Exception):
    """What llama.cpp does not do with the base itself, whatever the adapter."""


def loader_result(folder, packages, family, adapter, converted):
    base = adapter.parent / "base.gguf"
    script = Path(__file__).with_name("llama_cpp_logits.py")
    hf = GOLDEN / family / "base"
    if not base.exists():
        process = subprocess.run([sys.executable, script, "convert", folder, hf, base],
                                 capture_output=True, text=True, check=False)
        if process.returncode != 0:
            raise NotCompared("the base: " + process.stderr.strip().rpartition("\n")[2])
    process = subprocess.run([sys.executable, script, "compare", packages, base, converted, hf,
                              GOLDEN / family / "adapters" / adapter.name],
                             capture_output=True, text=True, check=False)
    if process.returncode == BASE_REFUSED:
        raise NotCompared("the loader refuses the base")
    if process.returncode != 0:
        return process.stderr.strip().rpartition("\n")[2]
    difference, of_base = map(float, process.stdout.split())
    if of_base >= LOGITS:
        raise NotCompared(f"logits of the base differ from transformers' by {of_base:.1e}")
    return "" if difference < LOGITS else f"logits differ by {difference:.1e}"


def hf_ranks(adapter):
    from safetensors import safe_open
    with safe_open(adapter / "adapter_model.safetensors", framework="pt") as file:
        for name in file.keys():
            module = name.removeprefix("base_model.model.")
            if name.endswith(".lora_A.weight"):
                yield module.removesuffix(".lora_A.weight"), file.get_slice(name).get_shape()[0]
            if name.endswith(".lora_embedding_A"):
                yield module.removesuffix(".lora_embedding_A"), file.get_slice(name).get_shape()[0]


def own_results(base, adapter):
    """Loader -> whether check-export says that it loads."""
    process = run(["check-export", adapter, "--base", base])
    return {line.partition(":")[0]: line.endswith(": loads it")
            for line in process.stdout.splitlines() if re.match(r"^(PEFT|vLLM|SGLang|llama\.cpp): ", line)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", type=Path)
    parser.add_argument("--llama-cpp", type=Path)
    parser.add_argument("--llama-cpp-python", type=Path)
    parser.add_argument("--family", nargs="+", default=list(ADAPTERS))
    arguments = parser.parse_args()
    peers = {}
    if arguments.vllm:
        sys.meta_path.insert(0, Placeholders(arguments.vllm))
        peers["vLLM"] = lambda family, adapter: vllm_result(arguments.vllm, family, adapter)
    if arguments.llama_cpp:
        peers["llama.cpp"] = lambda family, adapter: llama_cpp_result(
            arguments.llama_cpp, arguments.llama_cpp_python, family, adapter)
    trainer = JobTest()
    trainer.setUp()
    different = 0
    for family in arguments.family:
        run_dir = f"run-{family}"
        base = trainer.import_golden(family)
        trainer.succeed(run([trainer.write_job(trainer.golden_job(family, run_dir, 64, ADAPTERS[family]))]))
        for name in ADAPTERS[family]:
            adapter = trainer.dir / run_dir / "adapters" / name
            said = own_results(base, adapter)
            for loader, ask in peers.items():
                try:
                    obstacle = ask(family, adapter)
                except NotCompared as reason:
                    print(f"??  {family} {name}: {loader} not compared: {reason}", flush=True)
                    continue
                same = said[loader] == (obstacle == "")
                different += not same
                print(f"{'   ' if same else '!! '}{family} {name}: {loader} "
                      f"{obstacle or 'loads it'}{'' if same else '; check-export says otherwise'}", flush=True)
    trainer.doCleanups()
    print(f"{different} results differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
