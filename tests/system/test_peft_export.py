"""Exported adapters give the same logits in Hugging Face PEFT (scripts/check_peft_export.py).

Skipped where the tests' Python (scripts/test_python.sh --make) has no torch and peft."""

import json
import os
import subprocess
import unittest

from harness import GOLDEN, GOLDEN_LAYERS, SOURCE, JobTest, run

PYTHON = SOURCE / "scripts/test_python.sh"
ADAPTERS = {"llama": ["a_r4_all", "f_patterns", "f_regex_plus", "f_dora", "f_dora_plus", "f_pissa",
                      "f_olora", "f_vera", "f_vera_fresh", "f_head", "f_embed"],
            "qwen2": ["b_r8_attn", "f_dora", "f_pissa", "f_vera", "f_head", "f_embed"],
            "qwen3": ["c_r3_qv"], "mistral": ["a_r4_all"], "smollm3": ["a_r4_all"],
            "granite": ["a_r4_all", "f_embed"], "seed_oss": ["a_r4_all"], "qwen2_window": ["a_r4_all"],
            "qwen3_yarn": ["a_r4_all"], "olmo2": ["a_r4_all"], "olmo3": ["a_r4_all"],
            "gemma2": ["a_r4_all"], "gemma3_text": ["a_r4_all"], "ministral3": ["a_r4_all"],
            "gemma3": ["a_r4_all"], "glm4": ["a_r4_all"], "phi3": ["a_r4_all", "f_dora_fused"],
            "phi3_window": ["b_r8_attn"]}


def setUpModule():
    process = subprocess.run([PYTHON, "-c", "import torch, peft, transformers"], capture_output=True,
                             text=True, check=False)
    if process.returncode != 0:
        raise unittest.SkipTest(process.stderr.strip().rpartition("\n")[2])


# Runs the script for every line of the input, its arguments; torch and peft are read only once.
CHECK_ALL = ("import json, sys; sys.path.insert(0, sys.argv[1]); import check_peft_export\n"
             "for line in sys.stdin:\n"
             "    sys.argv[1:] = json.loads(line)\n"
             "    print('exit code', check_peft_export.main(), flush=True)")


class PeftExport(JobTest):
    def test_logits_of_every_family(self):
        lines = []
        for family, names in ADAPTERS.items():
            run_dir = f"run-{family}"
            self.succeed(run([self.write_job(self.golden_job(family, run_dir, 64, names))]))
            for name in names:
                golden = GOLDEN / family / "adapters" / name
                lines.append(json.dumps(list(map(str, (
                    GOLDEN / family / "base", self.dir / run_dir / "adapters" / name,
                    golden / "eval_logits.safetensors", "--samples", golden / "data.jsonl")))))
        process = self.succeed(subprocess.run(
            [PYTHON, "-c", CHECK_ALL, SOURCE / "scripts"], input="\n".join(lines),
            capture_output=True, text=True, check=False))
        checks = process.stdout.split("exit code ")
        self.assertEqual([text[0] for text in checks[1:]], ["0"] * len(lines), process.stdout)
        for line, text in zip(lines, checks):
            with self.subTest(adapter=line):
                self.assertEqual(text.count("sample"), 3, text)

    def test_plain_scaling(self):
        """The same logits without use_rslora and patterns."""
        for name in ("b_r8_attn", "f_patterns", "f_dora"):
            job = self.golden_job("llama", f"run-{name}", 64, [name])
            job["export"] = {"scaling": "plain"}
            self.succeed(run([self.write_job(job)]))
            folder = self.dir / f"run-{name}" / "adapters" / name
            with open(folder / "adapter_config.json", encoding="utf-8") as file:
                config = json.load(file)
            self.assertEqual([config[key] for key in ("use_rslora", "rank_pattern", "alpha_pattern")],
                             [False, {}, {}])
            golden = GOLDEN / "llama" / "adapters" / name
            process = self.succeed(subprocess.run(
                [PYTHON, SOURCE / "scripts/check_peft_export.py", GOLDEN / "llama" / "base", folder,
                 golden / "eval_logits.safetensors", "--samples", golden / "data.jsonl"],
                capture_output=True, text=True, check=False))
            self.assertEqual(process.stdout.count("sample"), 3, process.stdout)

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
