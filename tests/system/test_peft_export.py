"""Exported adapters give the same logits in Hugging Face PEFT (scripts/check_peft_export.py).

Skipped where the tests' Python (scripts/test_python.sh --make) has no torch and peft."""

import os
import subprocess
import unittest

from harness import GOLDEN, GOLDEN_LAYERS, SOURCE, EachFamily, JobTest, run

PYTHON = SOURCE / "scripts/test_python.sh"
ADAPTERS = {"llama": "a_r4_all", "qwen2": "b_r8_attn", "qwen3": "c_r3_qv", "mistral": "a_r4_all"}


def setUpModule():
    process = subprocess.run([PYTHON, "-c", "import torch, peft, transformers"], capture_output=True,
                             text=True, check=False)
    if process.returncode != 0:
        raise unittest.SkipTest(process.stderr.strip().rpartition("\n")[2])


class PeftExport(EachFamily, JobTest):
    def check_family(self, family):
        name = ADAPTERS[family]
        golden = GOLDEN / family / "adapters" / name
        self.succeed(run([self.write_job(self.golden_job(family, "run", 64, [name]))]))
        process = self.succeed(subprocess.run(
            [PYTHON, SOURCE / "scripts/check_peft_export.py", GOLDEN / family / "base",
             self.dir / "run/adapters" / name, golden / "eval_logits.safetensors", "--samples",
             golden / "data.jsonl"], capture_output=True, text=True, check=False))
        self.assertEqual(process.stdout.count("sample"), 3, process.stdout)

    def test_loads_by_itself(self):
        """As README.md has it: the adapter knows its base."""
        self.succeed(run([self.write_job(self.golden_job("llama", "run", 64, [ADAPTERS["llama"]],
                                                         max_steps=1))]))
        code = ("import sys; from peft import AutoPeftModelForCausalLM; "
                "model = AutoPeftModelForCausalLM.from_pretrained(sys.argv[1]); "
                "print(model.peft_config['default'].r, model.config.num_hidden_layers)")
        process = self.succeed(subprocess.run(
            [PYTHON, "-c", code, self.dir / "run/adapters" / ADAPTERS["llama"]], text=True,
            capture_output=True, check=False, env={**os.environ, "HF_HUB_OFFLINE": "1"}))
        self.assertEqual(process.stdout.split()[-2:], ["4", str(GOLDEN_LAYERS["llama"])])


if __name__ == "__main__":
    unittest.main()
