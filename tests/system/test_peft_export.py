"""Exported adapters give the same logits in Hugging Face PEFT (scripts/check_peft_export.py).

Skipped where the tests' Python (scripts/test_python.sh --make) has no torch and peft."""

import json
import os
import shutil
import struct
import subprocess
import unittest

from harness import GOLDEN, GOLDEN_FORMS, GOLDEN_LAYERS, QUANTIZED, SOURCE, JobTest, frobenius, read_safetensors, run

PYTHON = SOURCE / "scripts/test_python.sh"
# The plain adapter of a family, where it is not a_r4_all.
PLAIN_ONES = {"qwen2": "b_r8_attn", "qwen3": "c_r3_qv", "phi3_window": "b_r8_attn", "qwen3_moe_dense": "b_r8_attn",
              "glm4_moe": "b_r8_attn"}
TOKENS = ("llama", "qwen2", "granite", "gemma2")
ADAPTERS = {family: [PLAIN_ONES.get(family, "a_r4_all"), *GOLDEN_FORMS.get(family, ()), *(["t_tokens"] if family in TOKENS else [])]
            for family in GOLDEN_LAYERS if family not in QUANTIZED}
PLAIN = {"llama": ["b_r8_attn", "f_patterns", "f_dora", "f_dora_plus", "f_olora", "f_head", "f_embed"],
         "qwen2": ["f_embed"], "granite": ["f_head"], "gemma2": ["f_embed"], "gemma3_text": ["f_embed"],
         "gemma3": ["f_embed"], "qwen3_moe": ["f_experts_down"], "qwen3_moe_dense": ["f_experts"]}


def setUpModule():
    process = subprocess.run([PYTHON, "-c", "import torch, peft, transformers"], capture_output=True,
                             text=True, check=False)
    if process.returncode != 0:
        raise unittest.SkipTest(process.stderr.strip().rpartition("\n")[2])


def read_bf16(path):
    """Name -> list of floats of a BF16 safetensors file."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "BF16", (name, entry)
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        halves = struct.unpack(f"<{(end - begin) // 2}H", data[begin:end])
        tensors[name] = struct.unpack(f"<{len(halves)}f", struct.pack(f"<{len(halves)}I", *(half << 16 for half in halves)))
    return tensors


# Runs the script for every line of the input, its arguments; torch and peft are read only once.
CHECK_ALL = ("import json, sys; sys.path.insert(0, sys.argv[1]); import check_peft_export\n"
             "for line in sys.stdin:\n"
             "    sys.argv[1:] = json.loads(line)\n"
             "    print('exit code', check_peft_export.main(), flush=True)")


# For each folder the largest difference of its logits from those of a golden adapter, over the largest logit.
MERGED_LOGITS = '''
import json, sys, torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
for folder, golden in zip(sys.argv[1::2], sys.argv[2::2]):
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float64)
    model.config._experts_implementation = "eager"  # the others have no float64
    wanted = load_file(golden + "/eval_logits.safetensors")
    worst = 0.0
    for i, line in zip(range(3), open(golden + "/data.jsonl")):
        ids = torch.tensor([json.loads(line)["input_ids"]])
        with torch.no_grad():
            logits = model(input_ids=ids).logits[0]
        want = wanted[f"sample{i}"].double()
        worst = max(worst, ((logits - want).abs().max() / want.abs().max()).item())
    print(folder, worst)
'''


# What PEFT writes after the prompts of a file of generations, a line of tokens each.
TEXTS = '''
import json, sys; sys.path.insert(0, sys.argv[1])
import torch, transformers
from pathlib import Path
from check_peft_export import load
model = load(Path(sys.argv[2]), Path(sys.argv[3]), torch.float32)
model.generation_config = transformers.GenerationConfig()
for line in open(sys.argv[4]):
    ids = torch.tensor([json.loads(line)["prompt"]])
    out = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=int(sys.argv[5]),
                         eos_token_id=[int(i) for i in sys.argv[6:]], pad_token_id=0, use_cache=True)
    print(json.dumps(out[0, ids.shape[1]:].tolist()))
'''


class PeftExport(JobTest):
    def check_logits(self, folders):
        """Exported adapters in PEFT beside golden logits; `folders`: (family, adapter, folder) each."""
        lines = []
        for family, name, folder in folders:
            golden = GOLDEN / family / "adapters" / name
            lines.append(json.dumps(list(map(str, (
                GOLDEN / family / "base", folder, golden / "eval_logits.safetensors", "--samples",
                golden / "data.jsonl")))))
        process = self.succeed(subprocess.run(
            [PYTHON, "-c", CHECK_ALL, SOURCE / "scripts"], input="\n".join(lines),
            capture_output=True, text=True, check=False))
        checks = process.stdout.split("exit code ")
        self.assertEqual([text[0] for text in checks[1:]], ["0"] * len(lines), process.stdout)
        for line, text in zip(lines, checks):
            with self.subTest(adapter=line):
                self.assertEqual(text.count("sample"), 3, text)

    def test_logits_of_every_family(self):
        folders = []
        for family, names in ADAPTERS.items():
            run_dir = f"run-{family}"
            self.succeed(run([self.write_job(self.golden_job(family, run_dir, 64, names))]))
            folders += [(family, name, self.dir / run_dir / "adapters" / name) for name in names]
        self.check_logits(folders)

    def test_plain_scaling(self):
        """The same logits without use_rslora and patterns, of whatever has a scaling."""
        folders = []
        for family, names in PLAIN.items():
            job = self.golden_job(family, f"run-{family}", 64, names)
            job["export"] = {"scaling": "plain"}
            self.succeed(run([self.write_job(job)]))
            for name in names:
                folder = self.dir / f"run-{family}" / "adapters" / name
                with open(folder / "adapter_config.json", encoding="utf-8") as file:
                    config = json.load(file)
                self.assertEqual(
                    [config[key] for key in ("use_rslora", "rank_pattern", "alpha_pattern")],
                    [False, {}, {}])
                folders.append((family, name, folder))
        self.check_logits(folders)

    def test_texts_of_delta_nets(self):
        """Those of eval.generate are what the exported adapter writes in PEFT, with the cache of transformers."""
        path = self.dir / "prompts.jsonl"
        with open(path, "w", encoding="utf-8") as file:
            for length in (1, 3, 40, 63, 64, 65, 130):
                ids = [7 + (length * length + 13 * i) % 190 for i in range(length)]
                file.write(json.dumps({"input_ids": [*ids, 9], "labels": [-100] * length + [9]}) + "\n")
        for family in ("qwen3_5", "qwen3_next"):
            name = ADAPTERS[family][0]
            job = self.golden_job(family, f"run-{family}", 256, [name])
            job["datasets"][name]["eval_path"] = str(path)
            job["eval"] = {"generate": {"samples": 7, "max_new_tokens": 20, "stop_tokens": [17]}}
            self.succeed(run([self.write_job(job)]))
            folder = self.dir / f"run-{family}/adapters" / name
            process = self.succeed(subprocess.run(
                [PYTHON, "-c", TEXTS, SOURCE / "scripts", GOLDEN / family / "base", folder,
                 folder / "generations.jsonl", "20", "2", "17"], capture_output=True, text=True, check=False))
            written = [json.loads(line)["generated"] for line in open(folder / "generations.jsonl", encoding="utf-8")]
            self.assertEqual(len(written), 7)
            self.assertEqual([json.loads(line) for line in process.stdout.splitlines()[-7:]], written, family)

    def test_every_key_of_peft_is_known(self):
        """Of the newest LoraConfig that is installed: what a new one means is to be decided."""
        folder = self.dir / "adapter"
        shutil.copytree(GOLDEN / "llama/adapters/a_r4_all/final", folder)
        code = ("import dataclasses; from peft import LoraConfig, VeraConfig; "
                "print(*(f.name for c in (LoraConfig, VeraConfig) for f in dataclasses.fields(c)))")
        names = self.succeed(subprocess.run([PYTHON, "-c", code], capture_output=True, text=True,
                                            check=False)).stdout.split()
        self.assertIn("init_lora_weights", names)
        path = folder / "adapter_config.json"
        config = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps({**{name: {"set": 1} for name in [*names, "no_such_key"]}, **{
            key: config[key] for key in ("peft_type", "r", "lora_alpha", "target_modules")}}))
        self.succeed(run(["import-hf", GOLDEN / "llama/base", self.dir / "base.h5"]))
        process = self.succeed(run(["check-export", folder, "--base", self.dir / "base.h5"]))
        unknown = [line.split()[0] for line in (process.stdout + process.stderr).splitlines()
                   if "is not a key of PEFT" in line]
        self.assertEqual(set(unknown), {"no_such_key"})

    def test_bf16_beside_the_tokenizer(self):
        """export.dtype, what is copied of the base's folder, and that the run continues from it."""
        base = self.dir / "base"
        shutil.copytree(GOLDEN / "llama" / "base", base)
        for name in ("tokenizer.json", "chat_template.jinja", "notes.txt"):
            (base / name).write_text(name, encoding="utf-8")
        job = self.golden_job("llama", "run", 64, ["b_r8_attn"])
        job["model"]["base_model_name_or_path"] = str(base)
        job["export"] = {"dtype": "bf16"}
        self.succeed(run([self.write_job(job)]))
        folder = self.dir / "run/adapters/b_r8_attn"
        self.assertEqual((folder / "chat_template.jinja").read_text(encoding="utf-8"), "chat_template.jinja")
        self.assertTrue((folder / "tokenizer.json").exists())
        self.assertFalse((folder / "notes.txt").exists())
        exported = read_bf16(folder / "adapter_model.safetensors")
        final = read_safetensors(GOLDEN / "llama/adapters/b_r8_attn/final/adapter_model.safetensors")
        self.assertEqual(exported.keys(), final.keys())
        for name, values in final.items():
            self.assertLess(frobenius(exported[name], values), 0.004, name)
        self.assertNotIn("damaged", self.succeed(run([self.write_job(job)])).stderr)
        job["run"]["dir"] = str(self.dir / "bare")
        job["export"] = {"tokenizer": False}
        self.succeed(run([self.write_job(job)]))
        self.assertFalse((self.dir / "bare/adapters/b_r8_attn/tokenizer.json").exists())

    def test_merged_folder(self):
        """transformers computes with it as PEFT with the adapter."""
        folders = []
        for family, name in (("phi3", "a_r4_all"), ("apertus", "b_r8_attn"), ("llama", "f_head"), ("qwen3_next", "a_r4_all"),
                             ("gpt_oss", "a_r4_all"), ("granitemoe", "a_r4_all"), ("deepseek_v3", "a_r4_all"),
                             ("glm4_moe_lite", "a_r4_all")):
            golden = GOLDEN / family / "adapters" / name
            self.succeed(run(["import-hf", GOLDEN / family / "base", self.dir / f"{family}.h5"]))
            merged = self.dir / f"merged-{family}"
            self.succeed(run(["merge", golden / "final", merged, "--base", self.dir / f"{family}.h5"]))
            folders += [merged, golden]
        process = self.succeed(subprocess.run(
            [PYTHON, "-c", MERGED_LOGITS, *folders], capture_output=True, text=True, check=False))
        worst = [line.rpartition(" ") for line in process.stdout.splitlines() if line.startswith(str(self.dir))]
        self.assertEqual(len(worst), len(folders) // 2, process.stdout)
        for folder, _, difference in worst:
            self.assertLess(float(difference), 1e-4, folder)

    def test_loads_by_itself(self):
        """As README.md has it: the adapter knows its base."""
        self.succeed(run([self.write_job(self.golden_job("llama", "run", 64, ADAPTERS["llama"][:1],
                                                         max_steps=1))]))
        code = ("import sys; from peft import AutoPeftModelForCausalLM; "
                "model = AutoPeftModelForCausalLM.from_pretrained(sys.argv[1]); "
                "print(model.peft_config['default'].r, model.config.num_hidden_layers)")
        process = self.succeed(subprocess.run(
            [PYTHON, "-c", code, self.dir / "run/adapters" / ADAPTERS["llama"][0]], text=True,
            capture_output=True, check=False, env={**os.environ, "HF_HUB_OFFLINE": "1"}))
        self.assertEqual(process.stdout.split()[-2:], ["4", str(GOLDEN_LAYERS["llama"])])


if __name__ == "__main__":
    unittest.main()
