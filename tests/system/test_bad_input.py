"""Bad input ends with exit code 2, one clear message, and nothing left behind."""

import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import unittest
import unittest.mock

from harness import (BIN, GOLDEN, STOPPED, JobTest, mpirun_command, read_safetensors,
                     run)


class BadInputTest(JobTest):
    def setUp(self):
        super().setUp()
        self.job = self.tiny_job("run", {"one": {}, "two": {"r": 2}})
        self.before = self.files()

    def files(self):
        return sorted(str(path) for path in self.dir.rglob("*") if path.name != "job.yaml")

    def refused(self, arguments, *words, ranks=1):
        """Exit code 2; the message comes once and holds every word; no new files."""
        process = run(arguments, ranks)
        self.assertEqual(process.returncode, 2, process.stdout + process.stderr)
        message = process.stderr.split("-----")[0]  # mpirun's own remarks follow
        self.assertEqual(message.count("error: "), 1, message)
        for word in words:
            self.assertEqual(self.count(word, message), 1, f"{word!r} in:\n{message}")
        self.assertLess(len(message.splitlines()), 12, message)
        self.assertNotIn("check failed", message)
        self.assertEqual(process.stdout, "")
        self.assertEqual(self.files(), self.before)
        return message

    def count(self, word, message):
        """The folder's random name counts for no word: it may hold any short one."""
        hidden = [text.replace(str(self.dir), "FOLDER") for text in (message, word)]
        return hidden[0].count(hidden[1])

    def refused_job(self, *words, ranks=1, options=()):
        return self.refused([self.write_job(self.job), *options], *words, ranks=ranks)


class JobFile(BadInputTest):
    def test_misspelt_key(self):
        self.job["defaults"]["learning_rat"] = 1
        self.refused_job("job.yaml:", "learning_rat'", "learning_rate", ranks=2)

    def test_unknown_section(self):
        self.job["trainer"] = {}
        self.refused_job("job.yaml:", "trainer")

    def test_several_problems_at_once(self):
        self.job["adapters"][0]["r"] = "eight"
        self.job["adapters"][1]["r"] = 0
        self.job["run"]["backend"] = "gpu"
        self.refused_job("eight", "adapters.two", "gpu", ranks=2)

    def test_wrong_type_in_override(self):
        self.refused_job("--set defaults.global_batch_size: 'lots'", "global_batch_size",
                         options=["--set", "defaults.global_batch_size=lots"])

    def test_duplicate_adapter_name(self):
        self.job["adapters"][1]["name"] = "one"
        self.refused_job("'one' is used twice", "already given at")

    def test_unknown_target(self):
        self.job["adapters"][0]["target_modules"] = ["q_proj", "k_porj"]
        self.refused_job("'k_porj'", "did you mean 'k_proj'?", ranks=2)

    def test_not_yaml(self):
        path = self.dir / "job.yaml"
        path.write_text("model: {weights: base.h5\nrun: [")
        self.refused([path], "job.yaml:")

    def test_more_than_one_document(self):
        path = self.write_job(self.job)
        for end in (",", ", {}", "--- {}"):
            with self.subTest(end=end):
                path.write_text(json.dumps(self.job) + "\n" + end)
                self.refused([path], "job.yaml:2:", ranks=2)
        self.refused_job("--set run: there is more", options=["--set", "run={dir: x},"])

    def test_pipe_and_device(self):
        os.mkfifo(self.dir / "pipe.yaml")
        self.before = self.files()
        for path in (self.dir / "pipe.yaml", "/dev/zero"):
            with self.subTest(path=path):
                self.refused([path], "is not a regular file", ranks=2)

    def test_run_directory_that_is_the_root(self):
        self.job["run"]["dir"] = "/"
        self.refused_job("run.dir: is the root")

    def test_control_characters_are_not_passed_on(self):
        self.job.update({"\x1b[2J": 1, "\x1e\x1f": 1})
        message = self.refused_job("unknown key '\\x1b[2J'", "unknown key '\\x1e\\x1f'", ranks=2)
        self.assertNotIn("\x1b", message)

    def test_nul_characters_do_not_cut_the_message(self):
        self.job["adapters"][0]["dataset"] = "nul\0after"
        self.refused_job("adapters.one.dataset: 'nul\\x00after'", "a NUL character in 'nul\\x00after'")

    def test_json_with_characters_in_two_escapes(self):
        """As json.dumps writes those beyond U+FFFF."""
        self.job["run"]["dir"] = str(self.dir / "run \U0001f600")
        self.job["defaults"]["max_steps"] = 1
        path = self.write_job(self.job)
        self.assertIn("\\ud83d\\ude00", path.read_text())
        self.succeed(run([path]))
        self.assertTrue((self.dir / "run \U0001f600/adapters/one/DONE").exists())

    def test_numbers_that_overflow(self):
        self.job["datasets"]["a"]["eval_split"] = 4
        self.job["eval"] = {"generate": {"samples": 2, "max_new_tokens": 2 ** 62}}
        self.job["defaults"]["r"] = 2 ** 31 - 1
        self.job["datasets"]["a"]["max_seq_len"] = 2 ** 63
        self.refused_job("eval.generate.max_new_tokens: 4611686018427387904 is out of range", "up to 1000000\n",
                         "defaults.r: 2147483647 is out of range", "datasets.a.max_seq_len: 9223372036854775808")

    def test_too_many_threads(self):
        with unittest.mock.patch.dict(os.environ, OMP_NUM_THREADS="1000000"):
            self.refused_job("OMP_NUM_THREADS", "'1000000' threads", ranks=2)

    def test_missing_job_file(self):
        self.refused([self.dir / "none.yaml"], "none.yaml", ranks=2)

    def test_missing_files(self):
        self.job["model"]["weights"] = str(self.dir / "none.h5")
        self.job["datasets"]["a"]["path"] = str(self.dir / "none.jsonl")
        message = self.refused_job(f": model.weights: {self.dir}/none.h5: cannot be read",
                                   f": datasets.a.path: {self.dir}/none.jsonl: cannot be read", ranks=2)
        lines = (self.dir / "job.yaml").read_text().splitlines()
        for key, name in (("model.weights", "none.h5"), ("datasets.a.path", "none.jsonl")):
            line = int(re.search(rf"job.yaml:(\d+): {key}", message).group(1))
            self.assertIn(name, lines[line - 1])

    def test_missing_eval_and_init_from(self):
        self.job["datasets"]["a"]["eval_path"] = str(self.dir / "none.jsonl")
        self.job["adapters"][0]["init_from"] = str(self.dir / "adapter")
        self.refused_job(f"datasets.a.eval_path: {self.dir}/none.jsonl: ",
                         f"adapters.one.init_from: {self.dir}/adapter: is not a directory")

    def test_folders_without_what_is_read(self):
        (self.dir / "empty").mkdir()
        self.before = self.files()
        self.job["adapters"][0]["init_from"] = str(self.dir / "empty")
        self.refused_job("adapters.one.init_from: ", "has no adapter_config.json and no adapter_model.safetensors")
        base = GOLDEN / "llama/base.h5"
        for arguments, missing in (
                (["merge", self.dir / "empty", self.dir / "out", "--base", base], "adapter_config.json and no"),
                (["check-export", self.dir / "empty", "--base", base], "adapter_config.json and no"),
                (["import-hf", self.dir / "empty", self.dir / "out.h5"], "config.json\n    give the folder of a Hugg")):
            with self.subTest(arguments=arguments[0]):
                self.refused(arguments, f"{self.dir}/empty: has no {missing}")

    def test_run_directory_that_is_a_file(self):
        (self.dir / "taken").write_text("x")
        self.before = self.files()
        for name in ("taken", "taken/below"):
            self.job["run"]["dir"] = str(self.dir / name)
            messages = [self.refused_job(f"{self.dir}/taken is not a directory", options=options)
                        for options in ((), ["--dry-run"], ["--dry-run", "--ranks", "1,2"])]
            self.assertEqual(len(set(messages)), 1, messages)
            self.assertIn(": run.dir: ", messages[0])


class CommandLine(BadInputTest):
    def test_bad_usage(self):
        for arguments, words in (
                ([], ["no job file"]),
                (["--dry-rum"], ["--dry-rum", "did you mean --dry-run"]),
                (["a.yaml", "b.yaml"], ["b.yaml"]),
                (["a.yaml", "--ranks", "2"], ["--ranks"]),
                (["a.yaml", "--stop-after", "0"], ["--stop-after"]),
                (["a.yaml", "--stop-after", "soon"], ["soon"]),
                (["import-hf", "dir"], ["needs 2 arguments"]),
                (["import-hf", "dir", "out.h5", "--dtype", "fp8"], ["'fp8'"]),
                (["bench", "--heads", "7"], ["--heads"]),
                (["bench", "--backend", "cpu", "--adapters", "2000", "--rank", "1024", "--hidden", "1024", "--heads", "16"],
                 ["2000 do not fit in memory at once"]),
                (["bnech"], ["did you mean bench"]),
                (["trian"], ["unknown command 'trian'", "to train, write loratrain JOB.yaml"]),
                (["elephant"], ["unknown command 'elephant', and no file has this name"])):
            with self.subTest(arguments=arguments):
                process = subprocess.run([BIN, *arguments], text=True, capture_output=True,
                                         env=mpirun_command([])[1], check=False, timeout=60)
                self.assertEqual(process.returncode, 2, process.stderr)
                self.assertEqual(process.stderr.count("error: "), 1, process.stderr)
                for word in words:
                    self.assertIn(word, process.stderr)

    def test_once_on_two_ranks(self):
        self.refused(["--dry-rum"], "did you mean --dry-run", ranks=2)

    def test_more_stages_than_layers(self):
        self.refused_job("5 stages", "4 layers", ranks=5)

    def test_more_ranks_than_stages(self):
        self.job["parallel"]["pipeline_stages"] = 2
        self.refused_job("1 of 3 ranks", ranks=3)

    def test_more_stages_than_ranks(self):
        self.job["parallel"]["pipeline_stages"] = 4
        self.refused_job("only 2 ranks", ranks=2)


class Surroundings(BadInputTest):
    """What is wrong is neither in the job nor in its files."""

    def test_cache_with_a_name_that_is_too_long(self):
        path = "/tmp/" + "y" * 5000 + "/costs.json"
        with unittest.mock.patch.dict(os.environ, LORATRAIN_COST_CACHE=path):
            process = self.succeed(run([self.write_job(self.job)]), 2)
        self.assertRegex(process.stderr, r"error: /tmp/y+\.\.\.y+/\w+\.json \(\d+ characters\): File name too long\n")
        self.assertIn("give a shorter path", process.stderr)
        self.assertLess(len(process.stderr.split("-----")[0]), 400)

    def test_working_directory_that_was_removed(self):
        self.write_job(self.job)
        gone = self.dir / "gone"
        gone.mkdir()
        script = 'cd "$1" && rmdir "$1" && shift && exec "$@"'
        for job, word in (("job.yaml", "job.yaml: cannot open the job file"),
                          (self.dir / "job.yaml", "the working directory has been removed; change to another one")):
            gone.mkdir(exist_ok=True)
            process = subprocess.run(["sh", "-c", script, "sh", gone, BIN, job], text=True, capture_output=True,
                                     timeout=60, env=mpirun_command([])[1], check=False)
            self.assertEqual(process.returncode, 2, process.stderr)
            self.assertEqual(process.stderr.count("error: "), 1)
            self.assertNotIn("filesystem error", process.stderr)
            self.assertIn(word, process.stderr)


class Data(BadInputTest):
    def samples(self, *lines):
        path = self.dir / "a.jsonl"
        path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n"
                                for line in lines))

    def test_empty(self):
        self.samples()
        self.refused_job("a.jsonl", ranks=2)

    def test_token_outside_the_vocabulary(self):
        self.samples({"input_ids": [1, 2, 3]}, {"input_ids": [1, 320, 3]})
        self.refused_job("a.jsonl:2: token 1 is 320", "outside the vocabulary of 320", "a.jsonl:2: label",
                         ranks=2)

    def test_labels_longer_than_ids(self):
        self.samples({"input_ids": [1, 2, 3], "labels": [1, 2, 3, 4]})
        self.refused_job("a.jsonl:1", "labels", ranks=2)

    def test_not_json(self):
        self.samples({"input_ids": [1, 2, 3]}, "{\"input_ids\": [1, 2\n")
        self.refused_job("a.jsonl:2")

    def test_longer_than_max_seq_len(self):
        self.job["datasets"]["a"]["max_seq_len"] = 10
        self.samples({"input_ids": [1] * 10}, {"input_ids": [1] * 11})
        self.refused_job("a.jsonl:2", "11 tokens", "over_length", ranks=2)

    def test_longer_than_a_microbatch(self):
        self.samples({"input_ids": [1] * 65})
        self.refused_job("datasets.a.path", "microbatch_tokens 64", "microbatch_tokens: 65",
                         ranks=2)

    def test_all_dropped(self):
        self.job["datasets"]["a"].update(max_seq_len=3, over_length="drop")
        self.refused_job("a.jsonl", "dropped")

    def test_pipe(self):
        path = self.dir / "a.jsonl"
        path.unlink()
        os.mkfifo(path)
        self.refused_job("a.jsonl", "not a regular file")

    def test_deep_nesting(self):
        self.samples({"input_ids": [1, 2, 3]}, '{"input_ids": [1, ' + "[" * 100000 + "\n")
        self.refused_job("a.jsonl:2", "nested more than 100 levels deep", ranks=2)

    def test_mask_without_labels(self):
        self.samples({"input_ids": [1, 2, 3], "completion_mask": [0, 1, 1]})
        self.refused_job("a.jsonl:1", "'completion_mask'", "write labels")

    def test_nothing_to_learn(self):
        self.samples({"input_ids": [1, 2, 3], "labels": [-100] * 3})
        self.refused_job("a.jsonl", "no sample has a target")


class Files(BadInputTest):
    def test_truncated_weights(self):
        path = pathlib.Path(self.job["model"]["weights"])
        path.write_bytes(path.read_bytes()[:100000])
        self.refused_job("llama.h5", ranks=2)

    def test_weights_that_are_something_else(self):
        pathlib.Path(self.job["model"]["weights"]).write_text("not HDF5")
        self.refused_job("llama.h5")

    def test_corrupt_weights(self):
        """A byte flipped in the middle of a tensor is noticed where the tensor is read."""
        path = pathlib.Path(self.job["model"]["weights"])
        good = path.read_bytes()
        at = good.index((GOLDEN / "llama/base/model.safetensors").read_bytes()[-40000:-39960])
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x55]) + good[at + 1:])
        process = run([self.write_job(self.job)], 2)
        self.assertEqual(process.returncode, 2, process.stdout + process.stderr)
        self.assertEqual(process.stderr.count("error: "), 1)
        self.assertIn("llama.h5:model.", process.stderr)

    def test_weights_that_are_not_those_of_their_checksums(self):
        """Compared before training, once per file and change of it: two tensors whose chunks are
        exchanged are good for HDF5."""
        path = pathlib.Path(self.job["model"]["weights"])
        job = self.write_job(self.job)
        first = self.succeed(run([job, "--stop-after", 1], 2), STOPPED)
        self.assertEqual(first.stdout.count(f"compared the values of {path} with their"), 1)
        again = self.succeed(run([job, "--stop-after", 2], 2), STOPPED)
        self.assertNotIn("compared", again.stdout)
        tensors = read_safetensors(GOLDEN / "llama/base/model.safetensors")
        good = path.read_bytes()
        swapped = bytearray(good)
        names = [f"model.layers.{layer}.input_layernorm.weight" for layer in (0, 1)]
        a, b = (tensors[name].tobytes() for name in names)
        length = len(a) + 4  # HDF5's checksum follows
        at, other = good.index(a), good.index(b)
        swapped[at:at + length] = good[other:other + length]
        swapped[other:other + length] = good[at:at + length]
        path.write_bytes(swapped)
        self.before = self.files()
        self.refused([job], f"llama.h5:{names[0]}: its values have checksum",
                     f"llama.h5:{names[1]}: its values have checksum", ranks=2)
        path.write_bytes(good)
        last = self.succeed(run([job], 2))
        self.assertEqual(last.stdout.count("compared the values"), 1)

    def test_weights_with_a_chunk_that_the_index_lost(self):
        path = pathlib.Path(self.job["model"]["weights"])
        good = path.read_bytes()
        at = good.index(b"TREE\x01") + 6  # how many chunks the first tensor has
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1:])
        self.refused_job("llama.h5:model.", "index has 0 of its 1 chunks", ranks=2)

    def init_from_copy(self):
        """The weights file of a copied adapter from which the first adapter starts."""
        adapter = self.dir / "init"
        shutil.copytree(GOLDEN / "llama/adapters/a_r4_all/init", adapter)
        self.before = self.files()
        facts = json.loads((GOLDEN / "llama/golden.json").read_text())["adapters"]["a_r4_all"]
        self.job["adapters"][0].update(
            init_from=str(adapter), r=facts["r"], lora_alpha=facts["lora_alpha"],
            use_rslora=facts["use_rslora"], target_modules=facts["target_modules"])
        return adapter / "adapter_model.safetensors"

    def test_init_from_truncated(self):
        path = self.init_from_copy()
        path.write_bytes(path.read_bytes()[:3000])
        self.refused_job("adapter_model.safetensors", ranks=2)

    def test_init_from_with_a_nan(self):
        path = self.init_from_copy()
        path.write_bytes(path.read_bytes()[:-4] + struct.pack("<f", float("nan")))
        self.refused_job("adapter_model.safetensors:base_model.", "is nan", ranks=2)

    def test_init_from_of_another_model(self):
        facts = json.loads((GOLDEN / "qwen3/golden.json").read_text())["adapters"]["a_r4_all"]
        self.job["adapters"][0].update(
            init_from=str(GOLDEN / "qwen3/adapters/a_r4_all/init"), r=facts["r"],
            lora_alpha=facts["lora_alpha"], use_rslora=facts["use_rslora"],
            target_modules=facts["target_modules"])
        process = run([self.write_job(self.job)], 2)
        self.assertEqual(process.returncode, 2, process.stdout + process.stderr)
        self.assertEqual(process.stderr.count("error: "), 1)
        self.assertIn("lora_A", process.stderr)
        self.assertEqual(self.files(), self.before)


class RunDirectories(BadInputTest):
    def test_below_a_regular_file(self):
        (self.dir / "file").write_text("")
        self.before = self.files()
        self.job["run"]["dir"] = str(self.dir / "file/run")
        self.refused_job("file/run", "cannot be created", ranks=2)

    def test_of_another_job(self):
        self.succeed(run([self.write_job(self.job), "--stop-after", 1]), STOPPED)
        self.before = self.files()
        self.job["adapters"][1]["r"] = 3
        self.refused_job("adapters.two.r: 2 -> 3", "another job", ranks=2)

    def test_with_a_damaged_record_of_its_job(self):
        self.succeed(run([self.write_job(self.job), "--stop-after", 1]), STOPPED)
        self.before = self.files()
        for text in ("model: {wei", "", "- a\n"):
            (self.dir / "run/resolved.yaml").write_text(text)
            self.refused_job("run/resolved.yaml: is damaged", "remove the file")
        (self.dir / "run/resolved.yaml").unlink()
        self.succeed(run([self.write_job(self.job)]))

    def test_with_odd_records(self):
        """They are begun anew, with a warning."""
        deep = "[" * 100000 + "]" * 100000
        odd = {"provenance.json": ("{\"starts\": \"x\"}", "[1]", "{\"starts\": [[1]]}", deep),
               "memory.json": ("[1]", deep), "status.json": ("[]", deep), "plan.yaml": ("x: [", "[")}
        self.job["defaults"]["max_steps"] = 9
        self.succeed(run([self.write_job(self.job), "--stop-after", 1]), STOPPED)
        for i in range(max(map(len, odd.values()))):
            for name, texts in odd.items():
                (self.dir / "run" / name).write_text(texts[i % len(texts)])
            page = self.succeed(run(["report", self.dir / "run"]))
            for name in ("memory.json", "status.json", "plan.yaml"):
                self.assertRegex(page.stderr, f"the page leaves out .*{name}: cannot be read")
            process = self.succeed(run([self.dir / "job.yaml", "--stop-after", 2 + i]), STOPPED)
            self.assertIn("warning: ", process.stderr)
            starts = json.loads((self.dir / "run/provenance.json").read_text())["starts"]
            self.assertEqual(starts[-1]["reason"][:7], "stopped")

    def test_status_that_names_no_adapter(self):
        self.succeed(run([self.write_job(self.job), "--stop-after", 1]), STOPPED)
        path = self.dir / "run/status.json"
        path.write_text(path.read_text().replace("\"two\"", "\"../../evil\\u001b[2J\""))
        self.before = self.files()
        for arguments in (["stop", self.dir / "run", "../../evil\x1b[2J"], ["status", self.dir / "run"]):
            message = self.refused(arguments, "cannot be the name of an adapter")
            self.assertNotIn("\x1b", message)


class Import(BadInputTest):
    def setUp(self):
        super().setUp()
        self.hf = self.dir / "hf"
        shutil.copytree(self.golden_base("llama"), self.hf)
        self.before = self.files()

    def refused_import(self, *words):
        self.refused(["import-hf", self.hf, self.dir / "new.h5"], *words)

    def change(self, **keys):
        path = self.hf / "config.json"
        config = json.loads(path.read_text())
        config.update(keys)
        path.write_text(json.dumps(config))

    def test_truncated_safetensors(self):
        path = self.hf / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-100])
        self.refused_import("model.safetensors", "truncated")

    def test_not_a_number(self):
        path = self.hf / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-4] + struct.pack("<f", float("nan")))
        self.refused_import("model.safetensors:", "is nan")

    def test_corrupt_header(self):
        path = self.hf / "model.safetensors"
        data = bytearray(path.read_bytes())
        data[8:20] = b"x" * 12
        path.write_bytes(data)
        self.refused_import("model.safetensors")

    def test_other_architecture(self):
        self.change(model_type="gpt2", architectures=["GPT2LMHeadModel"])
        self.refused_import("gpt2")

    def test_shapes_that_differ_from_the_config(self):
        self.change(vocab_size=321)
        self.refused_import("model.embed_tokens.weight", "lm_head.weight")

    def test_unknown_rope(self):
        self.change(rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0})
        self.refused_import("dynamic")

    def test_rotary_settings_that_contradict_each_other(self):
        yarn = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0}
        self.change(rope_parameters=yarn, rope_scaling={**yarn, "rope_theta": 1e6})
        self.refused_import("rope_parameters and rope_scaling contradict each other: rope_theta is 10000 and 1e+06")

    def test_target_exists(self):
        target = pathlib.Path(self.job["model"]["weights"])
        good = target.read_bytes()
        self.refused(["import-hf", self.hf, target], "--force", ranks=2)
        self.assertEqual(target.read_bytes(), good)

    def test_failed_replacement_keeps_the_old_file(self):
        target = pathlib.Path(self.job["model"]["weights"])
        good = target.read_bytes()
        (self.hf / "model.safetensors").write_bytes(b"")
        self.refused(["import-hf", self.hf, target, "--force"], "model.safetensors")
        self.assertEqual(target.read_bytes(), good)

    def test_unwritable_target(self):
        (self.dir / "file").write_text("")
        self.before = self.files()
        self.refused(["import-hf", self.hf, self.dir / "file/new.h5"], f"{self.dir}/file")


if __name__ == "__main__":
    unittest.main()
