"""The quickstart job, shortened, and the commands a new user tries first."""

import json
import struct
import unittest

from harness import SOURCE, JobTest, direct, read_metrics, run

ADAPTERS = {"add-r16": 16, "sort-r8": 8, "units-r4": 4, "json-r32": 32}


class QuickstartTest(JobTest):
    def setUp(self):
        super().setUp()
        self.weights = self.dir / "base.h5"
        self.succeed(direct("import-hf", SOURCE / "inputs/demo_base", self.weights))
        self.run_dir = self.dir / "run"
        self.job = [SOURCE / "jobs/quickstart.yaml"]
        for setting in (f"model.weights={self.weights}", f"run.dir={self.run_dir}",
                        "defaults.max_steps=4", "defaults.warmup_steps=1",
                        "eval.every_steps=0",
                        *(f"datasets.{name}.eval_path=''" for name in ("sort", "units", "json"))):
            self.job += ["--set", setting]

    def read_json(self, name):
        return json.loads((self.run_dir / name).read_text())


class Quickstart(QuickstartTest):
    def test_run_directory(self):
        process = self.succeed(run(self.job, ranks=2))
        for name in ("resolved.yaml", "plan.yaml", "provenance.json", "loratrain.log",
                     "ckpt/4/manifest.json"):
            self.assertGreater((self.run_dir / name).stat().st_size, 0, name)
        self.assertEqual((self.run_dir / "ckpt/LATEST").read_text(), "4\n")
        self.assertIn("learning_rate", (self.run_dir / "resolved.yaml").read_text())
        self.check_provenance()
        self.check_log(process.stdout)
        for name, rank in ADAPTERS.items():
            with self.subTest(adapter=name):
                self.check_adapter(name, rank)
        left = [path for path in self.run_dir.rglob("*") if ".tmp" in path.name]
        self.assertEqual(left, [])

    def check_provenance(self):
        provenance = self.read_json("provenance.json")
        self.assertEqual(set(provenance["seeds"]), set(ADAPTERS))
        self.assertEqual(set(provenance["data_checksums"]), {"add", "sort", "units", "json"})
        (start,) = provenance["starts"]
        for key in ("started", "ended", "command", "version", "git", "build", "backend",
                    "directory"):
            self.assertTrue(start[key], key)
        for name in ("MPI", "HDF5", "CPU GEMM", "yaml-cpp", "Boost"):
            self.assertRegex(start["libraries"][name], r"\d\.\d", name)
        self.assertEqual([line.split(":")[0] for line in start["devices"]], ["rank 0", "rank 1"])
        self.assertIn("quickstart.yaml", start["command"])
        self.assertEqual(start["reason"], "done")
        self.assertEqual(len(start["hosts"]), 2)

        version = self.succeed(run(["--version"])).stdout
        for name, number in start["libraries"].items():
            self.assertIn(f"  {name} {number}\n", version)
        for text in (start["version"], start["git"], start["build"]):
            self.assertIn(text, version)

    def check_log(self, stdout):
        log = (self.run_dir / "loratrain.log").read_text()
        self.assertEqual(stdout, log)
        for step in range(1, 5):
            self.assertEqual(log.count(f" round {step}/4  loss"), 1)
        self.assertIn("tokens/s", log)
        table = log[log.index("  adapter"):]
        for name in ADAPTERS:
            self.assertIn(f"{name} ", table)

    def check_adapter(self, name, rank):
        directory = self.run_dir / "adapters" / name
        self.assertEqual((directory / "DONE").read_text(), "4 steps\n")
        config = json.loads((directory / "adapter_config.json").read_text())
        self.assertEqual(config["peft_type"], "LORA")
        self.assertEqual(config["r"], rank)
        data = (directory / "adapter_model.safetensors").read_bytes()
        header = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
        header.pop("__metadata__")
        self.assertTrue(all(key.startswith("base_model.model.model.layers.") for key in header))
        self.assertTrue(all(rank in entry["shape"] for entry in header.values()))
        lines = read_metrics(self.run_dir, name)
        steps = [line for line in lines if "loss" in line]
        self.assertEqual([line["step"] for line in steps], [1, 2, 3, 4])
        for line in steps:
            for key in ("epoch", "grad_norm", "learning_rate", "target_tokens", "tokens",
                        "tokens_per_second", "elapsed_seconds"):
                self.assertGreaterEqual(line[key], 0, key)
        evaluated = [line["step"] for line in lines if "eval_loss" in line]
        self.assertEqual(evaluated, [0, 4] if name == "add-r16" else [])

    def test_dry_run_leaves_nothing(self):
        before = sorted(self.dir.rglob("*"))
        for ranks, options, stages in ((1, [], 1), (2, [], 2), (1, ["--ranks", 4], 4)):
            process = self.succeed(run([*self.job, "--dry-run", "--verbose", *options], ranks))
            for name in ADAPTERS:
                self.assertIn(name, process.stdout)
            self.assertIn("add: 1200 samples", process.stdout)
            self.assertIn("add (eval): 96 samples", process.stdout)
            self.assertIn("a rank; microbatch_tokens that fit: ", process.stdout)
            rows = [line.split() for line in process.stdout.splitlines() if "iB" in line]
            numbers = [row[0] for row in rows if row[0] not in ("fits", "memory")]
            self.assertEqual(numbers, [str(s) for s in range(stages)])
            self.assertEqual(sorted(self.dir.rglob("*")), before)


class FirstCommands(JobTest):
    def test_help_is_short(self):
        for option in ("--help", "-h"):
            lines = self.succeed(direct(option)).stdout.splitlines()
            self.assertLessEqual(len(lines), 64)
            self.assertLessEqual(max(map(len, lines)), 80)
            self.assertTrue(any("--stop-after" in line for line in lines))
        self.assertEqual(run(["--help"], ranks=2).stdout.count("Usage:"), 1)

    def test_version(self):
        process = self.succeed(direct("--version"))
        self.assertRegex(process.stdout, r"^loratrain \d+\.\d+\.\d+ \(([0-9a-f]+\+?|unknown)\)")

    def test_import_twice(self):
        command = ["import-hf", SOURCE / "inputs/demo_base", self.dir / "base.h5"]
        self.succeed(direct(*command))
        first = (self.dir / "base.h5").read_bytes()
        process = self.succeed(direct(*command), 2)
        self.assertIn("--force", process.stderr)
        self.assertEqual((self.dir / "base.h5").read_bytes(), first)
        self.succeed(direct(*command, "--force"))
        self.assertEqual([path.name for path in self.dir.iterdir()], ["base.h5"])


class Bench(JobTest):
    TINY = ["bench", "--steps", 2, "--hidden", 32, "--intermediate", 64, "--layers", 2, "--heads",
            2, "--vocab", 100, "--adapters", 2, "--rank", 4, "--samples", 2, "--sample-tokens", 16]

    def test_table(self):
        text = self.succeed(run(self.TINY, 2)).stdout
        for word in ("useful rate", "share of GEMM rate", "LoRA off", "memory", "idle share"):
            self.assertEqual(text.count(word), 1, text)
        self.assertNotIn("fastest step", text)
        self.assertNotIn("MFU", text)

    def test_json(self):
        result = self.result_of(1)
        self.assertEqual(result["adapters"], 2)
        self.assertEqual(result["tokens_per_step"], 2 * 2 * 16)
        for key in ("seconds_per_step", "tokens_per_second", "gflops_per_rank",
                    "share_of_gemm_rate", "planned_bytes", "allocated_bytes", "peak_bytes",
                    "fastest_step_seconds", "lora_off_seconds_per_step"):
            self.assertGreater(result[key], 0, key)
        self.assertIsNone(result["mfu"])
        self.assertAlmostEqual(result["memory_error"],
                               result["peak_bytes"] / result["planned_bytes"] - 1)
        (profile,) = result["profile_of_ranks"]
        self.assertNotIn("wait_receive", profile["ops"])
        self.assertEqual(profile["ops"]["attention"]["calls"], 2 * result["profile_steps"])

    def test_adapters_one_after_another_count_all_their_tokens(self):
        result = self.result_of(2, "--policy", "1f1b")
        self.assertEqual(result["tokens_per_step"], 2 * 2 * 16)
        self.assertEqual(result["policy"], "1f1b")

    def test_prediction(self):
        result = self.result_of(2, "--predict")
        self.assertGreater(result["predicted_seconds"], 0)
        self.assertGreater(result["window_seconds"], 0)
        self.assertAlmostEqual(result["prediction_error"],
                               result["predicted_seconds"] / result["window_seconds"] - 1)
        self.assertIn("measured on cpu", result["costs"]["source"])

    def test_quick_leaves_out_all_but_the_window(self):
        result = self.result_of(2, "--predict", "--quick")
        self.assertGreater(result["tokens_per_second"], 0)
        self.assertGreater(result["predicted_seconds"], 0)
        self.assertEqual(len(result["idle_share_of_ranks"]), 2)
        for share in result["idle_share_of_ranks"]:
            self.assertGreaterEqual(share, 0)
            self.assertLess(share, 1)
        for key in ("lora_overhead", "lora_off_seconds_per_step", "share_of_gemm_rate"):
            self.assertIsNone(result[key], key)
        self.assertNotIn("profile_of_ranks", result)
        text = self.succeed(run([*self.TINY, "--quick"], 1)).stdout
        self.assertNotIn("LoRA off", text)
        self.assertEqual(text.count("memory"), 1, text)

    def test_random_lengths(self):
        result = self.result_of(2, "--lengths", "mix")
        self.assertLess(result["tokens_per_step"], 2 * 2 * 16 + 1)
        self.assertGreater(result["tokens_per_step"], 2 * 2 * 4)

    def test_profile_of_two_ranks_accounts_for_all_time(self):
        result = self.result_of(2)
        self.assertIsNone(result["fastest_step_seconds"])
        profiles = result["profile_of_ranks"]
        self.assertEqual(len(profiles), 2)
        for profile in profiles:
            self.assertAlmostEqual(sum(profile["parts"].values()), result["profile_seconds"])
            self.assertGreaterEqual(profile["idle_share"], 0)
            self.assertGreater(profile["ops"]["gemm"]["seconds"], 0)
            self.assertGreater(profile["ops"]["wait_receive"]["calls"], 0)
        self.assertNotIn("cross_entropy", profiles[0]["ops"])
        self.assertIn("cross_entropy", profiles[1]["ops"])

    def result_of(self, ranks, *options):
        process = self.succeed(run([*self.TINY, "--json", *options], ranks))
        (line,) = [line for line in process.stdout.splitlines() if line.startswith("{")]
        return json.loads(line)

    def test_more_ranks_than_layers(self):
        process = run(self.TINY, 3)
        self.assertEqual(process.returncode, 2, process.stderr)
        self.assertEqual(process.stderr.count("error: "), 1, process.stderr)


if __name__ == "__main__":
    unittest.main()
