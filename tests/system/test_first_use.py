"""What a new user meets: warnings of what a job will hardly want, and answers to usual mistakes."""

import json
import os
import shutil
import subprocess
import sys
import unittest
from unittest import mock

from harness import BIN, GOLDEN, SOURCE, STOPPED, JobTest, direct, run, write_samples

UNUSABLE_GPU = os.environ.get("LORATRAIN_UNUSABLE_GPU", "")


def with_cuda():
    return "CUDA ON" in subprocess.run([BIN, "--version"], capture_output=True, text=True, check=True).stdout


class FirstUse(JobTest):
    def job(self, run_dir="run", **sections):
        """A tiny job of one adapter, with further keys in its sections."""
        job = self.tiny_job(run_dir, {"one": {"max_steps": 6}})
        for name, keys in sections.items():
            job[name] = {**job.get(name, {}), **keys}
        return job

    def dry_run(self, job, *options):
        """What it prints, warnings first."""
        process = self.succeed(direct(self.write_job(job), "--dry-run", *options))
        return process.stderr + process.stdout

    def refused(self, job, *words):
        process = self.succeed(direct(self.write_job(job), "--dry-run"), 2)
        for word in words:
            self.assertIn(word, process.stdout + process.stderr)

    def test_a_plain_job_has_no_warnings(self):
        self.assertNotIn("warning", self.dry_run(self.job()).lower())

    @unittest.skipUnless(UNUSABLE_GPU and with_cuda(), "needs a program with CUDA, and ctest")
    def test_gpu_that_another_program_has_taken(self):
        """The job does not go on to train on CPUs."""
        with mock.patch.dict(os.environ, LD_PRELOAD=UNUSABLE_GPU):
            for backend in ("auto", "cuda"):
                process = self.succeed(run([self.write_job(self.job(run={"backend": backend}))], 2), 1)
                self.assertRegex(process.stderr, r"error: rank 0 on host \S+ cannot use its GPU: CUDA-capable "
                                 r"device\(s\) is/are busy or unavailable \(cudaErrorDevicesUnavailable\)")
                self.assertIn("nvidia-smi shows what else uses it", process.stderr)
                self.assertFalse((self.dir / "run").exists())
            self.dry_run(self.job(run={"backend": "cpu"}))
            bench = self.succeed(direct("bench", "--backend", "cuda", "--steps", "1"), 1)
            self.assertIn("cannot use its GPU: CUDA-capable", bench.stderr)

    def test_evaluations_without_data(self):
        text = self.dry_run(self.job(eval={"every_steps": 2}))
        self.assertIn("no dataset has data to evaluate on: give one an eval_path", text)
        held_out = self.job(eval={"every_steps": 2, "split": 0.2})
        self.assertNotIn("to evaluate on", self.dry_run(held_out))

    def test_warmup_as_long_as_the_training(self):
        text = self.dry_run(self.job(defaults={"warmup_steps": 6}))
        self.assertIn("warmup_steps take the whole training of one (6 of 6)", text)
        self.assertNotIn("warmup", self.dry_run(self.job(defaults={"warmup_steps": 0.5})))

    def test_batches_larger_than_the_dataset(self):
        lines = [json.dumps({"input_ids": [1, 2, 3 + i]}) + "\n" for i in range(5)]
        (self.dir / "few.jsonl").write_text("".join(lines))
        job = self.job(datasets={"a": {"path": str(self.dir / "few.jsonl")}}, defaults={"global_batch_size": 6})
        text = self.dry_run(job)
        self.assertIn("global_batch_size is larger than the dataset of one (6 of 5 samples): each step trains all "
                      "of it once, and is an epoch", text)
        job["defaults"]["global_batch_size"] = 5
        self.assertNotIn("global_batch_size is larger", self.dry_run(job))

    def test_batches_without_a_label(self):
        samples = [{"input_ids": [1, 2, 3], "labels": [-100, 2, 3]}, {"input_ids": [4, 5, 6], "labels": [-100] * 3}]
        (self.dir / "mixed.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in samples))
        job = self.job(datasets={"a": {"path": str(self.dir / "mixed.jsonl"), "shuffle": False}},
                       defaults={"global_batch_size": 1})
        text = self.dry_run(job)
        self.assertIn("batches without any label to train on: one (3 of 6); each counts as an optimizer step of "
                      "loss 0", text)
        job["defaults"]["global_batch_size"] = 2
        self.assertNotIn("batches without", self.dry_run(job))

    def test_rungs_in_the_warmup(self):
        job = self.job(defaults={"max_steps": 9, "warmup_steps": 0.1, "dataset": "a"}, eval={"split": 0.2})
        job.pop("adapters")
        job["sweep"] = {"space": {"learning_rate": [1e-3, 1e-2, 1e-1]}, "scheduler": "halving"}
        text = self.dry_run(job)
        self.assertIn("the first rung of 3 trials lies in the warm-up, where trials are alike, and is moved behind it: ",
                      text)
        self.assertIn("(from step 1 to 2 of 9)", text)
        job["defaults"]["warmup_steps"] = 0
        self.assertNotIn("warm-up", self.dry_run(job))

    def test_keys_of_other_losses_in_defaults(self):
        for key in ("label_smoothing", "z_loss", "label_smoothing_factor"):
            text = self.dry_run(self.job(defaults={key: 0.1}))
            self.assertEqual(key == "label_smoothing",
                             f"defaults.{key} is 0.1, but no adapter uses it: it is a key of " in text, text)

    def test_ranks_that_are_not_the_workers(self):
        self.refused(self.job(parallel={"assignment": "each", "deployment": [{"pp": 2, "count": 2}]}),
                     "1 rank cannot be split into 2 workers of 2", "start 4 ranks, or change deployment")

    def test_patterns_behind_others(self):
        job = self.job()
        job["adapters"] = [{"name": "one", "dataset": "a", "max_steps": 2,
                            "rank_pattern": {"q_proj": 2, "layers.0.self_attn.q_proj": 3}}]
        self.assertIn("adapters.one.rank_pattern: 'layers.0.self_attn.q_proj' comes after patterns that match all",
                      self.dry_run(job))
        job["adapters"][0]["rank_pattern"] = {"layers.0.self_attn.q_proj": 3, "q_proj": 2}
        self.assertNotIn("comes after patterns", self.dry_run(job))

    def test_dropout_of_the_base(self):
        folder = self.dir / "hf"
        shutil.copytree(GOLDEN / "seed_oss/base", folder)
        config = json.loads((folder / "config.json").read_text())
        for key in ("attention_dropout", "residual_dropout"):
            config.pop(key)
        (folder / "config.json").write_text(json.dumps(config))
        imported = self.succeed(direct("import-hf", str(folder), str(self.dir / "seed.h5")))
        note = "the base has attention_dropout 0.1 (the family's default) and residual_dropout 0.1 (the family's default)"
        self.assertIn(note, imported.stderr)
        for name in "abc":
            write_samples(self.dir / f"{name}.jsonl", 10, 1, vocabulary=200)
        self.assertIn(note, self.dry_run(self.job(model={"weights": str(self.dir / "seed.h5")})))

    def test_bytes_for_a_model_with_another_tokenizer(self):
        text = self.dir / "text.jsonl"
        text.write_text(json.dumps({"prompt": "a", "completion": "b"}) + "\n")
        job = self.job(datasets={"a": {"path": str(text), "tokenizer": "bytes"}})
        self.assertNotIn("tokenizer", self.dry_run(job))
        job["model"] = {"synthetic": "tinyllama-1.1b"}
        self.assertIn("datasets.a: tokenizer: bytes makes each byte a token, but the base model's 32000 tokens",
                      self.dry_run(job, "--device", "h200", "--ranks", "1"))

    def test_shape_of_a_config_alone(self):
        job = self.job()
        on_gpu = ("--device", "h200", "--ranks", "1")
        whole = self.dry_run(job, *on_gpu)
        job["model"] = {"config": str(GOLDEN / "llama/base")}
        self.assertEqual(self.dry_run(job, *on_gpu).splitlines()[:2], whole.splitlines()[:2], "the same shape")
        process = direct(self.write_job(job))
        self.assertEqual(process.returncode, 2, process.stderr)
        self.assertIn("model.config: is ", process.stderr)
        self.assertIn("which has no weights to train", process.stderr)
        job["model"] = {"config": str(self.dir)}
        self.refused(job, "config.json", "")

    def test_tokens_of_another_tokenizer(self):
        """Token files and bases both tell which tokenizer.json they are of."""
        folders = {}
        for name, vocabulary in (("same", {"a": 0, "</s>": 1}), ("other", {"a": 1, "</s>": 0})):
            folders[name] = self.dir / name
            shutil.copytree(GOLDEN / "llama/base", folders[name])
            (folders[name] / "tokenizer.json").write_text(json.dumps(
                {"version": "1.0", "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "</s>"}}))
        weights, text, tokens = self.dir / "named.h5", self.dir / "text.jsonl", self.dir / "tokens.h5"
        self.succeed(direct("import-hf", folders["same"], weights))
        text.write_text(json.dumps({"text": "a"}) + "\n")
        job = self.job(model={"weights": str(weights)}, datasets={"a": {"path": str(tokens)}})
        for name in folders:
            script = [sys.executable, SOURCE / "scripts/prepare_data.py", text, "-o", tokens, "--tokenizer",
                      folders[name], "--eos-token", "</s>"]
            process = subprocess.run(script, text=True, capture_output=True, check=False)
            if "needs the Python package" in process.stderr:
                self.skipTest(process.stderr)
            self.succeed(process)
            note = "datasets.a: " + str(tokens) + " was made with another tokenizer.json (xxh64:"
            if name == "same":
                self.assertNotIn("tokenizer.json", self.dry_run(job))
            else:
                self.assertIn(note, self.dry_run(job))
            tokens.unlink()

    def test_samples_longer_than_the_positions(self):
        folder = self.dir / "short"
        shutil.copytree(GOLDEN / "llama/base", folder)
        config = json.loads((folder / "config.json").read_text())
        config["max_position_embeddings"] = 20
        (folder / "config.json").write_text(json.dumps(config))
        weights = self.dir / "short.h5"
        self.succeed(direct("import-hf", folder, weights))
        job = self.job(model={"weights": str(weights)})
        text = self.dry_run(job)
        self.assertRegex(text, r"datasets.a: \d+ of 23 samples are longer than the 20 positions")
        job["datasets"]["a"].update(max_seq_len=20, over_length="truncate")
        self.assertNotIn("datasets.a:", self.dry_run(job))

    def test_samples_that_train_on_every_token(self):
        path = self.dir / "plain.jsonl"
        path.write_text('{"input_ids": [1, 2, 3]}\n' * 5 +
                        '{"input_ids": [1, 2, 3], "labels": [-100, 2, 3]}\n')
        text = self.dry_run(self.job(datasets={"a": {"path": str(path)}}))
        self.assertEqual(text.count("datasets.a: 5 of 6 samples train on every token"), 1, text)

    def test_a_longer_cosine_jumps(self):
        job = self.job()
        self.succeed(run([self.write_job(job)]))
        job["adapters"][0]["max_steps"] = 12
        text = self.succeed(run([self.write_job(job)])).stderr
        self.assertIn("adapter one has 12 steps now, in place of 6: its learning rate jumps from ", text)
        again = self.job("constant", defaults={"lr_scheduler_type": "constant"})
        self.succeed(run([self.write_job(again)]))
        again["adapters"][0]["max_steps"] = 12
        self.assertNotIn("jumps", self.succeed(run([self.write_job(again)])).stderr)

    def test_hugging_face_files_in_place_of_weights(self):
        folder = GOLDEN / "llama/base"
        hint = f"loratrain import-hf {folder} {folder}.h5"
        self.refused(self.job(model={"weights": str(folder)}), "is a folder", hint)
        self.refused(self.job(model={"weights": str(folder / "model.safetensors")}),
                     "is a shard of Hugging Face weights", hint)
        self.refused(self.job(model={"weights": "meta-llama/Llama-3.2-1B"}), "does not exist",
                     "loratrain import-hf HF_DIR base.h5", "hf download meta-llama/Llama-3.2-1B --local-dir Llama-3.2-1B")

    def test_names_on_a_hub_are_to_be_downloaded(self):
        job = self.job()
        job["adapters"][0]["init_from"] = "org/adapter"
        hint = "download it first: hf download org/adapter"
        self.refused(job, hint)
        base = self.import_golden("llama")
        for command in (("import-hf", "org/adapter", self.dir / "b.h5"), ("merge", "org/adapter", self.dir / "m", "--base", base),
                        ("check-export", "org/adapter", "--base", base), ("check-export", GOLDEN / "llama/adapters/a_r4_all/final", "--base", "org/adapter")):
            self.assertIn(hint, self.succeed(direct(*command), 2).stderr, command)
        self.assertEqual(sorted(self.dir.glob("[bm]*")), [self.dir / "b.jsonl"])

    def test_paths_count_from_the_job_file(self):
        samples = write_samples(self.dir / "here.jsonl", 5, 1)
        text = self.dry_run(self.job(), "--verbose", "--set", "datasets.a.path=here.jsonl")
        self.assertIn("a: 5 samples", text, samples)

    def test_keys_of_others(self):
        harmless = {"bias": "none", "init_lora_weights": True, "use_dora": False, "max_steps": -1,
                    "num_train_epochs": 1, "r": "4", "optim": "adamw_torch", "warmup_steps": 0.1}
        self.dry_run(self.job(defaults=harmless))
        self.refused(self.job(defaults={"per_device_train_batch_size": 2, "lora_bias": True,
                                        "save_steps": 10, "max_seq_length": 5}),
                     "did you mean 'global_batch_size'?", "LoRA layers have no biases",
                     "here it is checkpoint.every_steps", "here it is datasets.NAME.max_seq_len")

    def test_a_rank_above_a_matrix_is_a_warning(self):
        text = self.dry_run(self.job(defaults={"r": 30}))
        self.assertIn("r is larger than the smaller side of a target of one (30, k_proj [16, 64])", text)
        self.assertNotIn("smaller side", self.dry_run(self.job(
            defaults={"r": 30, "rank_pattern": {"[kv]_proj": 16}})))

    def test_a_run_of_the_batch_script_goes_on_under_mpirun(self):
        """slurm/cpu.sbatch sets the backend, which the job leaves to auto; on CPUs that is the same."""
        cpu = ("--set", "run.backend=cpu")
        if with_cuda():
            self.skipTest("auto may be a GPU here")
        for first, then in ((cpu, ()), ((), cpu)):
            job = self.write_job(self.job(f"run{len(first)}", checkpoint={"every_steps": 2}))
            self.succeed(run([job, *first, "--stop-after", "2"]), STOPPED)
            self.assertIn("job changed: run.backend", self.succeed(run([job, *then])).stdout)

    def test_keys_are_printed(self):
        text = self.succeed(direct("--keys", "--markdown")).stdout
        self.assertIn(text.strip(), (SOURCE / "jobs/keys.md").read_text())

    def test_the_name_of_the_base_reaches_exports(self):
        weights = self.dir / "named.h5"
        self.succeed(direct("import-hf", GOLDEN / "llama/base", weights, "--base-model-name", "org/m"))
        self.succeed(run([self.write_job(self.job(model={"weights": str(weights)}))]))
        config = json.loads((self.dir / "run/adapters/one/adapter_config.json").read_text())
        self.assertEqual(config["base_model_name_or_path"], "org/m")


if __name__ == "__main__":
    unittest.main()
