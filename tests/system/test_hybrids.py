"""Models whose layers have mixers and MLPs of several kinds (gated delta nets, attention, experts) beside all else that
training goes with: streamed, recomputed and quantised layers, uneven stages, losses of pairs, other forms of LoRA,
evaluation, sweeps, merged and exported. Where arithmetic is the same the bits are; elsewhere samples alone in their
microbatches are what samples side by side are compared with."""

import array
import csv
import json
import math
import random
import unittest

from harness import (FULL, GOLDEN, NO_LANES, STOPPED, JobTest, adapter_weights, frobenius, read_metrics, run, step_metrics, write_safetensors,
                     write_samples)

FAMILIES = ("qwen3_5", "qwen3_5_moe", "qwen3_next") if FULL else ("qwen3_5_moe", "qwen3_next")
LIMITS = {"loss": 2e-6, "grad_norm": 1e-5, "weights": 5e-5}
NETS = {"qwen3_5": ["in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"],
        "qwen3_5_moe": ["in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"],
        "qwen3_next": ["in_proj_qkvz", "in_proj_ba", "out_proj"]}
ONE_AT_A_TIME = 41  # tokens of the longest golden sample


def write_pairs(path, count, seed):
    """Pairs of answers to one prompt."""
    draw = random.Random(seed)
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(count):
            prompt = [draw.randrange(7, 200) for _ in range(draw.randint(1, 9))]
            line = {}
            for side in ("chosen", "rejected"):
                answer = [draw.randrange(7, 200) for _ in range(draw.randint(1, 9))]
                line[f"{side}_input_ids"] = prompt + answer
                line[f"{side}_labels"] = [-100] * len(prompt) + answer
            file.write(json.dumps(line) + "\n")
    return str(path)


def write_wide_base(folder):
    """A text model like Qwen3.5's of random weights, whose rows have 64 of them."""
    config = {"model_type": "qwen3_5_text", "vocab_size": 200, "hidden_size": 64, "intermediate_size": 128,
              "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
              "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
              "linear_value_head_dim": 16, "rms_norm_eps": 0.03, "tie_word_embeddings": True}
    draw = random.Random(3)
    tensors = {}

    def add(name, shape, scale=None, centre=0.0):
        scale = scale or 0.6 / shape[-1] ** 0.5
        values = array.array("f", (centre + scale * draw.gauss(0, 1) for _ in range(math.prod(shape))))
        tensors[f"model.{name}"] = ("F32", shape, values.tobytes())

    add("embed_tokens.weight", [200, 64])
    add("norm.weight", [64], 0.2)
    for layer in range(4):
        at = f"layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            add(f"{at}{norm}.weight", [64], 0.2)
        for name, rows, columns in (("gate", 128, 64), ("up", 128, 64), ("down", 64, 128)):
            add(f"{at}mlp.{name}_proj.weight", [rows, columns])
        if layer == 3:
            for name, rows in (("q", 128), ("k", 32), ("v", 32), ("o", 64)):
                add(f"{at}self_attn.{name}_proj.weight", [rows, 64])
            for name in ("q", "k"):
                add(f"{at}self_attn.{name}_norm.weight", [16], 0.2)
            continue
        for name, rows in (("in_proj_qkv", 128), ("in_proj_z", 64), ("in_proj_b", 4), ("in_proj_a", 4), ("out_proj", 64)):
            add(f"{at}linear_attn.{name}.weight", [rows, 64])
        add(f"{at}linear_attn.conv1d.weight", [128, 1, 4])
        add(f"{at}linear_attn.A_log", [4], 0.5, -1.5)
        add(f"{at}linear_attn.dt_bias", [4], 0.2, 1.0)
        add(f"{at}linear_attn.norm.weight", [16], 0.2, 1.0)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", tensors)


class Hybrids(JobTest):
    def train(self, family, run_dir, ranks=1, tokens=64, arguments=(), code=0, job=None, **sections):
        """`sections`: keys of the job's sections, beside what golden_job() has in them."""
        job = job or self.golden_job(family, run_dir, tokens)
        job["run"]["dir"] = str(self.dir / run_dir)
        job["schedule"] = {"costs": "built-in"}
        job["eval"] = {"every_steps": 2}
        for name, dataset in job["datasets"].items():
            dataset.setdefault("eval_path", dataset["path"])
        for section, keys in sections.items():
            job.setdefault(section, {}).update(keys)
        return self.succeed(run([self.write_job(job, f"{run_dir}.yaml"), *arguments], ranks), code)

    def numbers(self, run_dir, name, keys=("step", "loss", "grad_norm", "eval_loss")):
        return [{key: line[key] for key in keys if key in line} for line in read_metrics(self.dir / run_dir, name)]

    def adapters_of(self, run_dir):
        names = sorted(path.name for path in (self.dir / run_dir / "adapters").iterdir())
        self.assertTrue(names)
        return names

    def check_bits(self, run_dir, other):
        for name in self.adapters_of(other):
            self.assertEqual(self.numbers(run_dir, name), self.numbers(other, name), (run_dir, name))
            self.assertEqual(adapter_weights(self.dir / run_dir, name), adapter_weights(self.dir / other, name))

    def check_close(self, run_dir, other, weights=LIMITS["weights"]):
        for name in self.adapters_of(other):
            for a, b in zip(self.numbers(run_dir, name), self.numbers(other, name), strict=True):
                self.assertEqual(a.keys(), b.keys())
                for key, value in a.items():
                    limit = LIMITS["grad_norm" if key == "grad_norm" else "loss"]
                    self.assertAlmostEqual(value, b[key], delta=limit * abs(b[key]), msg=(run_dir, name, key, b))
            mine, others = (adapter_weights(self.dir / place, name) for place in (run_dir, other))
            self.assertEqual(mine.keys(), others.keys())
            for tensor, values in others.items():
                if any(values):
                    self.assertLessEqual(frobenius(mine[tensor], values), weights, (run_dir, tensor))

    def test_streamed_and_recomputed(self):
        for family in FAMILIES:
            with self.subTest(family=family):
                self.train(family, f"{family}-kept", model={"residency": "all"}, parallel={"recompute": "none"})
                self.check_golden(family, f"{family}-kept", LIMITS)
                for i, (residency, recompute) in enumerate((
                        ("all", "layer"), ("all", {"layers": 1}), ("stream", "none"), ({"resident_layers": 1}, "layer"))):
                    run_dir = f"{family}-{i}"
                    self.train(family, run_dir, model={"residency": residency}, parallel={"recompute": recompute})
                    self.check_bits(run_dir, f"{family}-kept")

    def test_offloaded(self):
        for family in FAMILIES:
            with self.subTest(family=family):
                for place, offload in (("kept", "none"), ("host", {"layers": 2})):
                    self.train(family, f"{family}-{place}", parallel={"recompute": "layer", "offload": offload})
                self.check_bits(f"{family}-host", f"{family}-kept")

    def test_uneven_stages_and_shared_bases(self):
        """Stages of delta nets alone beside others; two replicas that
        have the base once between them."""
        for family, ranks in (("qwen3_5", 3), ("qwen3_5_moe", 2)):
            with self.subTest(family=family):
                self.train(family, f"{family}-stages", ranks, parallel={"recompute": {"layers": 1}},
                           model={"residency": {"resident_layers": 1}})
                self.check_golden(family, f"{family}-stages", LIMITS)
                self.train(family, f"{family}-shared", 2, model={"residency": "shared"},
                           parallel={"deployment": [{"count": 2}]})
                self.check_golden(family, f"{family}-shared", LIMITS)

    def check_quantised(self, run_dir, folder, word, near, job_of, lanes=False):
        """Samples alone, in two stages and on two lanes as side by side; near what the base gives as it was."""
        dense, path = self.dir / f"{run_dir}.h5", self.dir / f"{run_dir}-{word}.h5"
        self.succeed(run(["import-hf", folder, dense, "--force"]))
        self.succeed(run(["import-hf", folder, path, "--quantize", word]))
        one = f"{run_dir}-{word}"
        for place, weights, ranks, tokens, residency in (
                (f"{one}-dense", dense, 1, 4096, "all"), (one, path, 1, 4096, "all"),
                (f"{one}-alone", path, 1, ONE_AT_A_TIME, "all"), (f"{one}-stages", path, 2, 64, "stream")):
            self.train("", place, ranks, job=job_of(), parallel={"microbatch_tokens": tokens},
                       model={"weights": str(weights), "residency": residency})
        if lanes:
            self.train("", f"{one}-lanes", 2, job=job_of(), model={"weights": str(path)},
                       parallel={"microbatch_tokens": 64, "deployment": [{"tp": 2}]})
        for place in ("alone", "stages", "lanes")[:3 if lanes else 2]:
            self.check_close(f"{one}-{place}", one)
        for name in self.adapters_of(one):
            losses, wanted = ([line["loss"] for line in step_metrics(self.dir / place, name)]
                              for place in (one, f"{one}-dense"))
            self.assertNotEqual(losses, wanted)
            for loss, value in zip(losses, wanted, strict=True):
                self.assertAlmostEqual(loss, value, delta=near * value)

    def test_quantised(self):
        for family in FAMILIES:
            for word, near in (("int8", 0.02), ("fp8", 0.05)):
                if not FULL and (word == "int8") == (family == "qwen3_next"):
                    continue
                with self.subTest(family=family, word=word):
                    self.check_quantised(family, GOLDEN / family / "base", word, near,
                                         lambda family=family: self.golden_job(family, "run", 64),
                                         family not in NO_LANES)

    def test_quantised_in_blocks(self):
        """nf4, which has 64 weights of a row in a block."""
        write_wide_base(self.dir / "wide")
        adapters = {"all": {"target_modules": "all-linear"}, "nets": {"target_modules": NETS["qwen3_5"]}}

        def job():
            tiny = self.tiny_job("run", adapters, "qwen3_5", max_steps=5)
            for seed, (name, dataset) in enumerate(tiny["datasets"].items()):
                dataset["path"] = write_samples(self.dir / f"wide-{name}.jsonl", 16, seed, 200, 3, 40)
            return tiny

        self.check_quantised("wide", self.dir / "wide", "nf4", 0.1, job)

    def forms_job(self, family, run_dir):
        """Other forms of LoRA on the linears of delta nets."""
        nets = NETS[family]
        keys = {"dora": {"use_dora": True}, "vera": {"peft_type": "vera", "r": 12, "learning_rate": 1e-2},
                "pissa": {"init_lora_weights": "pissa", "target_modules": nets[:2]},
                "olora": {"init_lora_weights": "olora", "target_modules": nets[-1:] + ["o_proj"]},
                "plus": {"loraplus_lr_ratio": 4.0, "use_rslora": True}, "bits": {"optim": "adamw_8bit"},
                "patterns": {"rank_pattern": {nets[0]: 2, nets[-1]: 5}, "alpha_pattern": {nets[-1]: 3}}}
        adapters = {name: {"target_modules": nets + ["q_proj"], **own} for name, own in keys.items()}
        job = self.tiny_job(run_dir, adapters, family, max_steps=4)
        for seed, (name, dataset) in enumerate(job["datasets"].items()):
            dataset["path"] = write_samples(self.dir / f"{family}-{name}.jsonl", 16, seed, 200, 3, 40)
        return job

    def test_forms(self):
        """In any layout, streamed and recomputed, stopped and resumed."""
        for family in FAMILIES:
            with self.subTest(family=family):
                self.train(family, f"{family}-one", job=self.forms_job(family, "one"), parallel={"microbatch_tokens": 4096})
                self.train(family, f"{family}-alone", job=self.forms_job(family, "alone"),
                           parallel={"microbatch_tokens": ONE_AT_A_TIME, "recompute": "layer"})
                self.check_close(f"{family}-alone", f"{family}-one")
                self.train(family, f"{family}-two", 2, job=self.forms_job(family, "two"),
                           checkpoint={"every_steps": 1}, arguments=("--stop-after", "2"), code=STOPPED)
                self.train(family, f"{family}-two", 2, job=self.forms_job(family, "two"), checkpoint={"every_steps": 1})
                self.check_close(f"{family}-two", f"{family}-one")

    def pairs_job(self, family, run_dir):
        losses = {"dpo": {"loss": "dpo", "beta": 0.2}, "orpo": {"loss": "orpo", "beta": 0.2}, "plain": {}}
        adapters = {name: {"target_modules": NETS[family] + ["q_proj", "v_proj"], **own} for name, own in losses.items()}
        job = self.tiny_job(run_dir, adapters, family, max_steps=5)
        pairs = write_pairs(self.dir / "pairs.jsonl", 12, 5)
        job["datasets"] = {"pairs": {"path": pairs}, "plain": {
            "path": write_samples(self.dir / "plain.jsonl", 12, 5, 200)}}
        for adapter in job["adapters"]:
            adapter["dataset"] = "plain" if adapter["name"] == "plain" else "pairs"
        return job

    def test_losses_of_pairs(self):
        for family in FAMILIES:
            with self.subTest(family=family):
                for ranks, tokens, parallel in ((1, 4096, {}), (1, ONE_AT_A_TIME, {}), (2, 64, {}),
                                                (2, 64, {"deployment": [{"count": 2}]})):
                    run_dir = f"{family}-{ranks}-{tokens}-{len(parallel)}"
                    self.train(family, run_dir, ranks, job=self.pairs_job(family, run_dir),
                               parallel={"microbatch_tokens": tokens, **parallel})
                    self.check_close(run_dir, f"{family}-1-4096-0")
                lines = step_metrics(self.dir / f"{family}-1-4096-0", "dpo")
                self.assertGreater(lines[-1]["rewards/margins"], lines[0]["rewards/margins"])

    def test_sweep_with_best_states(self):
        """Trials with their best states, on two workers as on one rank."""
        for family in FAMILIES[:-1]:
            results = []
            for place, ranks in (("one", 1), ("workers", 2)):
                job = self.tiny_job(f"{family}-{place}", {"default": {"dataset": "a", "target_modules": "all-linear"}},
                                    family, num_train_epochs=2)
                job["datasets"] = {"a": {"path": write_samples(self.dir / "a.jsonl", 16, 1, 200),
                                         "eval_path": write_samples(self.dir / "e.jsonl", 6, 2, 200)}}
                job["defaults"].pop("warmup_steps")
                job["sweep"] = {"space": {"r": [2, 4], "learning_rate": [1e-3, 5e-3]}, "reference": "default"}
                if ranks > 1:
                    job["parallel"] = {"microbatch_tokens": 64, "assignment": "each"}
                self.train(family, f"{family}-{place}", ranks, job=job, **{"eval": {"keep_best": True}})
                with open(self.dir / f"{family}-{place}" / "results.csv", encoding="utf-8", newline="") as file:
                    results.append({row["name"]: float(row["eval_loss"]) for row in csv.DictReader(file)})
            self.assertEqual(len(results[0]), 5)
            self.assertEqual(results[0].keys(), results[1].keys())
            for name, loss in results[0].items():
                self.assertAlmostEqual(loss, results[1][name], delta=1e-5 * loss)


if __name__ == "__main__":
    unittest.main()
