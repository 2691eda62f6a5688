"""Merged models in few bits as transformers loads them with bitsandbytes and compressed-tensors
(merged_forms_peer.py).

Skipped where the tests' Python (scripts/test_python.sh --make) has not all of these."""

import json
import pathlib
import shutil
import subprocess
import unittest

from harness import GOLDEN, SOURCE, JobTest, run

PYTHON = SOURCE / "scripts/test_python.sh"
PEER = pathlib.Path(__file__).resolve().parent / "merged_forms_peer.py"


def setUpModule():
    process = subprocess.run([PYTHON, "-c", "import peft, bitsandbytes, compressed_tensors"], capture_output=True,
                             text=True, check=False)
    if process.returncode != 0:
        raise unittest.SkipTest(process.stderr.strip().rpartition("\n")[2])


class MergedForms(JobTest):
    def peer(self, *words):
        process = self.succeed(subprocess.run([PYTHON, PEER, *words], capture_output=True, text=True, check=False))
        return json.loads(process.stdout.splitlines()[-1]) if process.stdout.strip() else {}

    def merge(self, adapter, base, form):
        self.succeed(run(["merge", adapter, self.dir / form, "--base", base, "--quantize", form]))
        return self.dir / form

    def test_linears(self):
        """The weights are those that the libraries quantise to, but for some that lie between two numbers, where the last
        bit of a sum decides. Logits are those of these weights; int8 of bitsandbytes quantises activations, too."""
        for family in ("llama", "phi3"):
            self.peer("make", self.dir, family)
            base = self.dir / "base.h5"
            self.succeed(run(["import-hf", self.dir / "base", base, "--force"]))
            limits = {"nf4": 1e-5, "int8": 0.1, "fp8": 1e-5}
            for form in limits:
                shutil.rmtree(self.dir / form, ignore_errors=True)
                self.merge(self.dir / "adapter", base, form)
            for form, found in self.peer("compare", self.dir, *limits).items():
                limit = limits[form]
                self.assertLess(found["unlike"], 1e-4, (family, form))
                self.assertLess(found["logits"], limit, (family, form))
                self.assertEqual(len(found["shares"]), {"llama": 14, "phi3": 8}[family])
                self.assertLess(max(found["shares"].values()), 2e-3, (family, form))

    def test_experts(self):
        """Experts that were read from MXFP4 are written as they were."""
        base = self.dir / "base.h5"
        golden = GOLDEN / "gpt_oss_mxfp4"
        self.succeed(run(["import-hf", golden / "base", base]))
        merged = self.merge(golden / "adapters/a_r4_all/final", base, "mxfp4")
        self.succeed(run(["merge", golden / "adapters/a_r4_all/final", self.dir / "whole", "--base", base]))
        found = self.peer("same", golden / "base", merged)
        for name, difference in found["weights"].items():
            if "_proj.weight" not in name:
                self.assertEqual(difference, 0.0, name)
        self.assertGreater(found["weights"]["q_proj.weight"], 0.0)
        found = self.peer("same", self.dir / "whole", merged)
        self.assertEqual(set(found["weights"].values()), {0.0})
        self.assertEqual(found["logits"], 0.0)

    def test_small_changes(self):
        """A base in nf4 loses them in nf4, and the program says so; int8 keeps them."""
        golden = GOLDEN / "llama_nf4"
        base = self.dir / "base.h5"
        self.succeed(run(["import-hf", golden / "base", base]))
        adapter = self.dir / "small"
        shutil.copytree(golden / "adapters/a_r4_all/final", adapter)
        config = json.loads((adapter / "adapter_config.json").read_text())
        (adapter / "adapter_config.json").write_text(json.dumps(config | {"lora_alpha": 0.01 * config["lora_alpha"]}))
        for form, lost in (("nf4", True), ("int8", False)):
            process = self.succeed(run(["merge", adapter, self.dir / form, "--base", base, "--quantize", form]))
            self.assertIn("share: least, mean, most   cosine  rounding\n  q_proj ", process.stdout)
            self.assertEqual("most of what the adapter learned is rounded away" in process.stderr, lost, process.stderr)


if __name__ == "__main__":
    unittest.main()
