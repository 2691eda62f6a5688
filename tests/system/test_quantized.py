"""Training on quantised bases: as HF and PEFT do on the weights that the codes stand for, in any
layout; stopped and resumed, recomputed, alone and together."""

import array
import json
import re
import shutil
import sys
import unittest

from harness import (GOLDEN, STOPPED, JobTest, adapter_weights, direct, memory_report, read_safetensors, run,
                     shared_layers, step_metrics, tensor_shapes, without_times, write_safetensors)

LIMITS = {"loss": 2e-6, "grad_norm": 1e-5, "weights": 5e-5}
# (tp, pp): lanes cut columns between weights that share a scale.
LAYOUTS = {"llama_nf4": [(1, 1), (1, 2), (2, 2)], "llama_int8": [(1, 2), (2, 1)],
           "llama_e4m3": [(1, 1), (2, 2)], "llama_e4m3_block": [(1, 2)],
           "qwen3_moe_e4m3_block": [(1, 1), (1, 2)]}  # lanes would cut blocks of its experts
MIXTURE = "qwen3_moe_e4m3_block"
READ_AS_BF16 = "gpt_oss_mxfp4"


class Quantized(JobTest):
    def train(self, family, run_dir, tokens=64, ranks=1, adapters=None, arguments=(), code=0,
              keys=None, policy="balanced", **parallel):
        job = self.golden_job(family, run_dir, tokens, adapters, **(keys or {}))
        job["parallel"].update(parallel)
        job["schedule"] = {"costs": "built-in", "policy": policy}
        path = self.write_job(job, f"{run_dir}.yaml")
        return self.succeed(run([path, *arguments], ranks), code)

    def check_family(self, family):
        form = re.sub("^(llama|qwen3_moe)_", "", family)
        self.check_layouts(family, LAYOUTS[family], f"{form} linears, fp32 on cpu")

    def check_layouts(self, family, layouts, text):
        worst = dict.fromkeys(LIMITS, 0.0)
        for tp, pp in layouts:
            run_dir = f"run-{tp}-{pp}"
            process = self.train(family, run_dir, 64 if tp == 1 else 4096, tp * pp,
                                 deployment=[{"tp": tp, "pp": pp}])
            self.assertIn(text, process.stdout)
            errors = self.check_golden(family, run_dir, LIMITS)
            worst = {key: max(worst[key], error) for key, error in errors.items()}
        print(f"{family}: {worst}", file=sys.stderr)

    def test_nf4(self):
        self.check_family("llama_nf4")

    def test_int8(self):
        self.check_family("llama_int8")

    def test_e4m3(self):
        self.check_family("llama_e4m3")

    def test_e4m3_block(self):
        self.check_family("llama_e4m3_block")

    def test_experts_in_e4m3_block(self):
        self.check_family(MIXTURE)

    def test_experts_in_mxfp4(self):
        """They are read as bf16, and computed as those of a dense base."""
        self.check_layouts(READ_AS_BF16, [(1, 1), (1, 3)], "fp32 on cpu")

    def test_alone_stopped_and_recomputed(self):
        """The same bits, with a policy that gives every adapter microbatches of its own."""
        names = ["a_r4_all", "c_r3_qv"]
        keys = {"max_steps": 24}
        for family in (*LAYOUTS, READ_AS_BF16):
            ways = {"whole": [{}], "alone": [{"adapters": names[:1]}],
                    "stopped": [{"arguments": ["--stop-after", "5"], "code": STOPPED}, {}]}
            if family in ("llama_nf4", MIXTURE, READ_AS_BF16):
                ways["again"] = [{"recompute": "layer"}]
            for way, runs in ways.items():
                for options in runs:
                    self.train(family, f"{family}-{way}", keys=keys, policy="1f1b", **options)
                self.assert_same_bits(f"{family}-{way}", f"{family}-whole",
                                      names[:1] if way == "alone" else names)

    def test_shared_layers(self):
        """Four ranks that share layers against one."""
        names = ("one", "two", "three", "four")
        adapters = {name: {"r": 4 * i, "max_steps": 3} for i, name in enumerate(names, 1)}
        weights = self.dir / "demo-nf4.h5"
        self.succeed(direct("import-hf", self.golden_base("demo"), weights, "--quantize", "nf4"))
        for run_dir, ranks in (("one", 1), ("four", 4)):
            job = self.tiny_job(run_dir, adapters, "demo")
            job["model"]["weights"] = str(weights)
            job["schedule"] = {"costs": "built-in"}
            self.succeed(run([self.write_job(job)], ranks))
        self.assertGreater(shared_layers(self.dir / "four"), 0)
        worst = self.compare_losses("four", "one", names, 1e-5)
        print(f"shared layers in nf4: losses {worst:.1e} from those of one rank", file=sys.stderr)

    def test_exports_and_records_say_how_the_base_is_stored(self):
        process = self.train("llama_int8", "run")
        planned, allocated, _ = memory_report(process.stdout)[0]
        self.assertAlmostEqual(allocated / planned, 1.0, delta=0.1)  # of 2 MiB
        adapter = self.dir / "run/adapters/a_r4_all"
        config = json.loads((adapter / "adapter_config.json").read_text())
        self.assertEqual(config["base_model_name_or_path"], str(GOLDEN / "llama_int8/base"))
        header = (adapter / "adapter_model.safetensors").read_bytes()
        size = int.from_bytes(header[:8], "little")
        metadata = json.loads(header[8:8 + size])["__metadata__"]
        self.assertEqual(metadata["base_quantization"], "int8 of bf16")
        provenance = json.loads((self.dir / "run/provenance.json").read_text())
        self.assertEqual(provenance["weights_quantization"], "int8 of bf16")

    def test_import_refuses_with_exit_code_2(self):
        out = self.dir / "no.h5"
        for base, option, texts in (
                ("llama/base", "nf5", ["--quantize: 'nf5' is not known", "nf4, int8, fp8"]),
                ("llama/base", "nf4", ["layers.0.mlp.down_proj.weight",
                                       "layers.3.mlp.down_proj.weight", "not a multiple of 64"]),
                ("qwen3_moe/base", "nf4", ["mlp.experts.0.down_proj.weight", "has rows of 24 weights"]),
                ("llama_int8/base", "nf4", ["is quantised already: int8"])):
            process = direct("import-hf", GOLDEN / base, out, "--quantize", option)
            self.assertEqual(process.returncode, 2, process.stderr)
            for text in texts:
                self.assertIn(text, process.stderr)
            self.assertFalse(out.exists())


class Experts(JobTest):
    """Experts in each format that import-hf writes, beside a base that has the weights that the
    codes stand for: adapters on attention, on experts and on their down_proj learn the same bits."""

    FAMILY = MIXTURE
    FORMS = ("nf4", "int8", "fp8")
    TARGETS = {"a_r4_all": ["q_proj", "v_proj", "gate_proj", "up_proj", "down_proj"],
               "c_r3_qv": ["down_proj"]}
    BACKEND = "cpu"
    RANKS = (1, 2)

    def merge(self, adapter, base, name):
        folder = self.dir / name
        self.succeed(direct("merge", adapter, folder, "--base", base))
        return folder

    def import_folder(self, folder, name, *options):
        weights = self.dir / f"{name}.h5"
        self.succeed(direct("import-hf", folder, weights, *options))
        return weights

    def adapter_that_changes_nothing(self):
        """To merge: that writes the base's effective weights as a folder."""
        init = GOLDEN / self.FAMILY / "adapters/c_r3_qv/init"
        folder = self.dir / "nothing"
        folder.mkdir()
        shutil.copy(init / "adapter_config.json", folder)
        name = "adapter_model.safetensors"
        shapes = tensor_shapes(init / name)
        write_safetensors(folder / name, {
            tensor: ("F32", shapes[tensor], (array.array("f", bytes(4 * len(values)))
                                             if "lora_B" in tensor else values).tobytes())
            for tensor, values in read_safetensors(init / name).items()})
        return folder

    def train(self, weights, run_dir, ranks, arguments=(), code=0, precision="auto"):
        job = self.golden_job(self.FAMILY, run_dir, 64, self.TARGETS)
        job["model"] = {"weights": str(weights), "precision": precision}
        job["run"]["backend"] = self.BACKEND
        job["checkpoint"] = {"every_steps": 2}
        job["schedule"] = {"costs": "built-in"}
        for adapter in job["adapters"]:
            del adapter["init_from"]
            adapter.update(target_modules=self.TARGETS[adapter["name"]], max_steps=4)
        job["datasets"]["attention"] = job["datasets"]["c_r3_qv"]
        job["adapters"].append({**job["adapters"][1], "name": "attention", "dataset": "attention",
                                "target_modules": "all-linear"})
        self.succeed(run([self.write_job(job, f"{run_dir}.yaml"), *arguments], ranks), code)

    def assert_learnt_the_same(self, got, want):
        for name in (*self.TARGETS, "attention"):
            self.assertEqual(adapter_weights(self.dir / got, name), adapter_weights(self.dir / want, name), name)
            lines, wanted = (without_times(step_metrics(self.dir / run_dir, name)) for run_dir in (got, want))
            self.assertTrue(lines)
            self.assertEqual(lines, wanted, name)

    def assert_learnt_as_on_dense(self, got, want):
        self.assert_learnt_the_same(got, want)

    def test_learn_what_they_learn_on_the_effective_weights(self):
        nothing = self.adapter_that_changes_nothing()
        original = self.merge(nothing, self.import_golden(self.FAMILY), "original")
        for form in self.FORMS:
            quantized = self.import_folder(original, form, "--quantize", form)
            dense = self.import_folder(self.merge(nothing, quantized, f"{form}-effective"), f"{form}-dense")
            for ranks in self.RANKS:
                self.train(quantized, f"{form}-{ranks}", ranks)
                self.train(dense, f"{form}-dense-{ranks}", ranks)
                self.assert_learnt_as_on_dense(f"{form}-{ranks}", f"{form}-dense-{ranks}")
                self.train(quantized, f"{form}-stopped-{ranks}", ranks, ["--stop-after", "2"], STOPPED)
                self.train(quantized, f"{form}-stopped-{ranks}", ranks)
                self.assert_learnt_the_same(f"{form}-stopped-{ranks}", f"{form}-{ranks}")
            merged = [self.merge(self.dir / f"{form}-1/adapters/a_r4_all", base, f"{base.stem}-merged")
                      / "model.safetensors" for base in (quantized, dense)]
            self.assertEqual(*(path.read_bytes() for path in merged))


class Latent(Experts):
    """Latent attention; the golden bases have rows too short for nf4."""

    FAMILY = "deepseek_v3"
    FORMS = ("int8", "fp8")
    TARGETS = {"a_r4_all": ["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"], "c_r3_qv": ["kv_b_proj"]}


if __name__ == "__main__":
    unittest.main()
