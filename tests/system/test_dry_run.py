"""--dry-run: plans for machines that are not there, predicts, and draws what it predicts."""

import json
import re
import sys
import unittest
import xml.etree.ElementTree

from harness import SOURCE, JobTest, direct, run, write_samples

sys.path.insert(0, str(SOURCE / "scripts"))
import paper_tables

ADAPTERS = ("short", "medium", "long", "longer")


class DryRun(JobTest):
    def job_for(self, model):
        datasets = {}
        for name, longest in (("small", 600), ("large", 3000)):
            path = self.dir / f"{name}.jsonl"
            write_samples(path, 160, 3, shortest=100, longest=longest)
            datasets[name] = {"path": str(path), "max_seq_len": 4096}
        return {"model": {"synthetic": model}, "run": {"dir": str(self.dir / "run")},
                "parallel": {"deployment": "pipeline"}, "datasets": datasets,
                "defaults": {"r": 16, "global_batch_size": 8, "max_steps": 64},
                "adapters": [{"name": name, "dataset": "large" if "long" in name else "small"}
                             for name in ADAPTERS]}

    def preview(self, model, *options):
        return direct(self.write_job(self.job_for(model)), "--dry-run", "--verbose", *options)

    def number(self, pattern, text):
        found = re.search(pattern, text)
        self.assertTrue(found, f"{pattern} in:\n{text}")
        return float(found.group(1))

    def check_text(self, text):
        self.assertIn("costs built in for h200", text)
        self.assertGreater(self.number(r"speed +(\d+) tokens/s", text), 0)
        self.assertRegex(text, r"whole job +\d.* tokens in 64 rounds \(\d+ simulated, the others")
        idle = re.search(r"idle +([\d.]+)% of all ranks' time; by stage (.*)", text)
        stages = [float(share.rstrip("%")) for share in idle.group(2).split(", ")]
        self.assertEqual(len(stages), 4)
        self.assertAlmostEqual(float(idle.group(1)), sum(stages) / 4, delta=0.11)
        self.assertTrue(all(0 <= share < 100 for share in stages))
        self.assertLess(self.number(r"planned in +([\d.]+) s", text), 5)
        self.assertIn("of capacity", text)

    def check_comparison(self, text):
        idle = self.number(r"idle +([\d.]+)% of all ranks' time", text)
        self.assertEqual("what keeps ranks busier" in text, idle >= 15, text)
        self.assertIn("Task-Fused", text)
        self.assertIn("ways to cut a replica", text)
        for policy in ("sequential", "1f1b", "mlora", "balanced"):
            self.assertGreater(self.number(rf"(?m)^  {policy} +(\d+) ", text), 0)

    def check_trace(self, path):
        """Every rank computes its microbatches one after the other; returns the spans of rank 0."""
        trace = json.loads(path.read_text())
        self.assertEqual(trace["otherData"]["times"], "simulated")
        spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
        kinds = [sorted(event["name"] for event in spans
                        if event["pid"] == rank and event["cat"] in ("forward", "backward"))
                 for rank in range(4)]
        self.assertGreater(len(kinds[0]), 50)
        self.assertEqual(kinds[1:], [kinds[0]] * 3)
        for rank in range(4):
            end = 0
            for event in (event for event in spans if event["pid"] == rank):
                self.assertGreaterEqual(event["ts"], end - 0.01)
                end = event["ts"] + event["dur"]
        text = json.dumps(spans)
        for name in ADAPTERS:
            self.assertIn(name, text)

    def check_picture(self, path):
        svg = xml.etree.ElementTree.fromstring(path.read_text())
        space = "{http://www.w3.org/2000/svg}"
        self.assertEqual(svg.tag, space + "svg")
        texts = [element.text for element in svg.iter(space + "text")]
        for text in ("rank 0", "rank 3", "idle", *ADAPTERS):
            self.assertIn(text, texts)
        self.assertGreater(len(list(svg.iter(space + "g"))), 100)

    def test_llama_8b_on_four_gpus_that_are_not_here(self):
        process = self.succeed(self.preview("llama-3.1-8b", "--ranks", 4, "--device", "h200"))
        self.check_text(process.stdout)
        for compared in ("Task-Fused", "busier", "1f1b", "compared in"):
            self.assertNotIn(compared, process.stdout)
        self.assertEqual(sorted(path.name for path in (self.dir / "run").rglob("*")),
                         ["dry_run", "timeline.svg", "trace.json"])
        self.check_trace(self.dir / "run/dry_run/trace.json")
        self.check_picture(self.dir / "run/dry_run/timeline.svg")

    def test_compared_with_other_ways(self):
        process = self.succeed(self.preview("llama-3.1-8b", "--ranks", 4, "--device", "h200",
                                            "--compare"))
        self.check_text(process.stdout)
        self.check_comparison(process.stdout)

    def test_llama_70b_takes_most_of_four_gpus(self):
        out = self.dir / "pictures"
        process = self.succeed(self.preview("llama-3-70b", "--ranks", 4, "--device", "h200",
                                            "--out", out))
        self.check_text(process.stdout)
        self.check_trace(out / "trace.json")
        self.check_picture(out / "timeline.svg")
        self.assertFalse((self.dir / "run").exists())
        shares = [float(share) for share in re.findall(r"iB +([\d.]+)%$", process.stdout, re.M)]
        self.assertEqual(len(shares), 4)
        self.assertGreater(max(shares), 50)
        self.assertLessEqual(max(shares), 100)

    def test_what_cannot_fit_is_refused_with_a_way_out(self):
        streamed = self.succeed(self.preview("llama-3-70b", "--device", "h100", "--out", self.dir / "s"))
        self.assertRegex(streamed.stdout, r"streamed +rank 0: \d+ of 80 layers, 1.6 GiB each, from .* "
                                          r"of pinned host memory; \d+% of their transfers")
        resident = ("--set", "model.residency=all", "--device", "h100")
        process = self.preview("llama-3-70b", *resident)
        self.assertEqual(process.returncode, 2)
        self.assertRegex(process.stdout, r"\Afits +not as the job says, but with the change below on 1 x h100:")
        self.assertIn("\nmodel: {residency: auto}\n", process.stdout)
        message = process.stderr
        self.assertRegex(message, r"rank 0 needs .* but has 7\d\.\d GiB, [\d.]+ GiB too little")
        enough = int(re.search(r"pipeline stages .*, (\d+) would fit", message).group(1))
        self.assertIn(enough, range(2, 6))
        fewer = self.preview("llama-3-70b", "--ranks", enough - 1, *resident)
        self.assertEqual(fewer.returncode, 2)
        self.succeed(self.preview("llama-3-70b", "--ranks", enough, *resident,
                                  "--out", self.dir / "enough"))
        self.assertFalse((self.dir / "run").exists())

    def answer(self, job, *options):
        """What a dry run says of a job without --verbose."""
        return self.succeed(direct(self.write_job(job), "--dry-run", "--device", "h200", *options)).stdout

    def test_answers_in_four_lines(self):
        text = self.answer(self.job_for("llama-3.1-8b"), "--ranks", 4)
        starts = [line.split()[0] for line in text.splitlines() if not line.startswith(" ")]
        self.assertEqual(starts[:2] + starts[-2:-1], ["fits", "time", "certainty"])
        self.assertRegex(text, r"\Afits +yes, on 4 x h200 as one pipeline: fullest rank [\d.]+ of 13\d\.\d GiB\n")
        self.assertRegex(text, r"\ntime +.* training, [\d.]+ GPU-hours, about [\d.]+ kWh \(700 W a GPU\)\n")
        self.assertRegex(text, r"\ncertainty +costs built in for h200; whole runs were within 6%")
        self.assertLessEqual(max(map(len, text.splitlines()[:-1])), 80)

    def settings_of(self, yaml):
        """"parallel: {a: 1, b: [2, 3]}" as options."""
        options = []
        for section, keys in re.findall(r"(?m)^(\w+): \{(.*)\}$", yaml):
            for key, value in re.findall(r"(\w+): (\[.*?\]|[^,]+)(?:, |$)", keys):
                options += ["--set", f"{section}.{key}={value}"]
        return options

    def test_a_proposed_change_gains_what_it_says(self):
        job = self.job_for("llama-3.1-8b")
        job["parallel"]["microbatch_tokens"] = 3000
        job["schedule"] = {"policy": "1f1b"}
        slow = self.answer(job, "--ranks", 4)
        gain = self.number(r"change +put this into the job file; then it is ([\d.]+) x as fast:\n", slow)
        self.assertGreater(gain, 1.03)
        yaml = re.search(r"fast:\n((?:\w+: \{.*\}\n)+)", slow)[1]
        self.assertIn("schedule: {policy: balanced}\n", yaml)
        fast = self.answer(job, "--ranks", 4, *self.settings_of(yaml))
        self.assertIn("nothing to change in the job file", fast)
        hours = [self.number(r"time +.* ([\d.]+) GPU-hours", text) for text in (slow, fast)]
        self.assertAlmostEqual(hours[0] / hours[1], gain, delta=0.02 * gain)

    def test_draws_only_with_a_device_or_a_place(self):
        path = self.write_job(self.tiny_job("run", {"one": {}}, max_steps=2))
        self.succeed(direct(path, "--dry-run"))
        self.assertFalse((self.dir / "run").exists())
        self.succeed(direct(path, "--dry-run", "--out", self.dir / "here"))
        self.assertFalse((self.dir / "run").exists())
        self.assertEqual(sorted(file.name for file in (self.dir / "here").iterdir()),
                         ["timeline.svg", "trace.json"])

    def test_files_of_a_run_are_left_alone(self):
        self.succeed(run([self.write_job(self.tiny_job("run", {"one": {}}, max_steps=2))]))
        folder = self.dir / "run"
        kept = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        self.assertIn(folder / "preview/trace.json", kept)
        device = ("--dry-run", "--device", "h200")
        self.succeed(direct(self.dir / "job.yaml", *device))
        for out in (folder, folder / "preview", f"{folder}/preview/"):
            process = direct(self.dir / "job.yaml", *device, "--out", out)
            self.assertEqual(process.returncode, 2)
            self.assertEqual(process.stderr.count("error: "), 1, process.stderr)
            self.assertIn(f"--out: {out} is where a run keeps its timeline", process.stderr)
        self.assertEqual({path: path.read_bytes() for path in folder.rglob("*") if path.is_file()
                          and path.parent.name != "dry_run"}, kept)
        self.assertTrue((folder / "dry_run/timeline.svg").exists())

    def test_faster_devices_are_predicted_faster(self):
        speeds = [self.number(r"speed +(\d+) tokens/s", self.succeed(self.preview(
            "tinyllama-1.1b", "--ranks", 2, "--device", device)).stdout)
            for device in ("h200", "a100", "a6000", "a40", "l4", "cpu")]
        self.assertEqual(speeds, sorted(speeds, reverse=True))
        self.assertGreater(speeds[-2], 50 * speeds[-1])

    def speed_on_hosts(self, of_host, *settings):
        options = [word for setting in settings for word in ("--set", setting)]
        process = self.succeed(self.preview("tinyllama-1.1b", "--device", "h100", "--ranks", 8,
                                            "--ranks-per-node", of_host, *options))
        return self.number(r"speed +(\d+) tokens/s", process.stdout), process.stdout + process.stderr

    def test_more_hosts_are_slower(self):
        """Eight GPUs of one host and of eight; lanes mind most."""
        for parallel, times in (("pipeline", 1.0), ("[{tp: 8}]", 1.3)):
            setting = f"parallel.deployment={parallel}"
            near, text = self.speed_on_hosts(8, setting)
            self.assertNotIn("messages ", text)
            apart, text = self.speed_on_hosts(1, setting)
            self.assertGreater(near, times * apart, parallel)
            self.assertEqual("exchange sums in every layer, here over the network" in text, "tp" in parallel, text)
        self.assertIn("between 8 hosts 40.00 GB/s, 30 us, built in; cluster.between_hosts says otherwise", text)
        given, text = self.speed_on_hosts(1, setting, "cluster.between_hosts.gigabytes_per_second=1")
        self.assertIn("between 8 hosts 1.00 GB/s, 30 us, as cluster.between_hosts says", text)
        self.assertLess(given, apart)

    def test_what_is_left_open_is_chosen_where_that_gains(self):
        """One pipeline elsewhere: on CPU ranks nobody knows."""
        job = self.job_for("tinyllama-1.1b")
        del job["parallel"], job["adapters"][1:]
        path = self.write_job(job)

        def speed(*options):
            text = self.succeed(direct(path, "--dry-run", "--verbose", "--ranks", 4, *options)).stdout
            return self.number(r"speed +(\d+) tokens/s", text), text
        joint = ("--device", "a40", "--set", "parallel.assignment=joint")
        pipeline, text = speed(*joint, "--set", "parallel.deployment=pipeline")
        self.assertNotIn("chosen ", text)
        chosen, text = speed(*joint)
        gain = self.number(r"chosen +parallel.deployment: \[.*\], ([\d.]+) x as fast as one pipeline", text)
        self.assertGreaterEqual(gain, 1.03)
        self.assertAlmostEqual(chosen / pipeline, gain, delta=0.02)
        self.assertNotIn("chosen ", speed("--device", "cpu")[1])

    def test_devices_that_nobody_measured_are_estimates(self):
        for device in ("h100", "l40s"):
            text = self.succeed(self.preview("tinyllama-1.1b", "--device", device)).stdout
            self.assertIn(f"costs built in for {device}", text)
            self.assertEqual(f"built in for {device}, an estimate" in text, device == "l40s")

    def test_fp8_is_refused_before_hopper(self):
        job = self.job_for("tinyllama-1.1b")
        job["model"]["precision"] = "fp8"
        path = self.write_job(job)
        self.succeed(direct(path, "--dry-run", "--device", "h100"))
        process = direct(path, "--dry-run", "--device", "a100")
        self.assertEqual(process.returncode, 2)
        self.assertIn("fp8 needs a Hopper GPU, as h100 or h200, not 'a100'",
                      process.stderr)

    def test_unknown_device(self):
        process = self.preview("tinyllama-1.1b", "--device", "b200")
        self.assertEqual(process.returncode, 2)
        self.assertIn("--device: 'b200' is not known", process.stderr)
        self.assertIn("h200, h100, a100, a100-40, l40s, a6000, a40, a10, l4, cpu", process.stderr)
        process = run([self.write_job(self.job_for("tinyllama-1.1b")), "--device", "h200"], 2)
        self.assertEqual(process.returncode, 2)
        self.assertIn("--device: only goes with --dry-run", process.stderr)

    def test_a_table_of_several_numbers_of_ranks(self):
        process = self.succeed(self.preview("llama-3.1-8b", "--ranks", "1,2,4", "--device", "h200"))
        rows = re.findall(r"(?m)^ +(\d+) +(\[.*\]) +(\d+) +([\d.]+) +([\d.]+) +([\d.]+)%$",
                          process.stdout)
        self.assertEqual([row[0] for row in rows], ["1", "2", "4"])
        alone = self.succeed(self.preview("llama-3.1-8b", "--ranks", 4, "--device", "h200")).stdout
        self.assertIn(f"speed       {rows[2][2]} tokens/s\n", alone)
        self.assertEqual(rows[0][3:], (rows[0][3], rows[0][3], "100.0"))
        for ranks, _, speed, hours, all_hours, efficiency in rows:
            self.assertAlmostEqual(int(ranks) * float(hours), float(all_hours), delta=0.03)
            self.assertAlmostEqual(float(efficiency) / 100,
                                   int(speed) / int(ranks) / int(rows[0][2]), delta=0.002)
        self.assertEqual(list((self.dir / "run").rglob("*.svg")),
                         [self.dir / "run/dry_run/timeline.svg"])  # of the one that is alone

    def test_ranks_on_which_it_does_not_fit_are_named(self):
        text = self.succeed(self.preview("llama-3-70b", "--ranks", "1,4", "--device", "h100", "--set",
                                         "model.residency=all")).stdout
        self.assertRegex(text, r"(?m)^ +1 +- +does not fit +- +- +-$")
        self.assertRegex(text, r"(?m)^on 1 rank: rank 0 needs .* too little$")
        self.assertRegex(text, r"(?m)^ +4 +\[\{tp: 1, pp: 4\}\] +\d+ ")

    def test_more_ranks_than_layers_get_replicas(self):
        job = self.job_for("tinyllama-1.1b")
        options = ("--dry-run", "--verbose", "--ranks", 24, "--device", "h200")
        self.assertIn("24 stages, but the model has 22 layers",
                      direct(self.write_job(job), *options).stderr)
        del job["parallel"]
        text = self.succeed(direct(self.write_job(job), *options)).stdout
        self.assertRegex(text, r"(?m)^replica 1 +tp \d+, pp \d+ on rank")

    def test_many_adapters_take_a_line_for_each_dataset(self):
        job = self.job_for("tinyllama-1.1b")
        job["adapters"] = [{"name": f"a{i}", "dataset": "large" if i % 3 else "small",
                            "r": 8 + 8 * (i % 4), "max_steps": 64 + i} for i in range(101)]
        text = self.succeed(direct(self.write_job(job), "--dry-run", "--verbose", "--device", "h200")).stdout
        self.assertNotIn("a57", text)
        self.assertRegex(text, r"(?m)^ *34 adapters +small +8-32 +160 +8 +20 +64-163 ")
        self.assertRegex(text, r"(?m)^ *67 adapters +large +8-32 +160 +8 +20 +65-164 ")
        self.assertLess(len(text.splitlines()), 50)


FEWER_TRIALS = "sweep.space.learning_rate=[2.0e-4]"


class JobsOfPapers(JobTest):
    """Of a small model, on few ranks: that they can be read, and the script reads what is printed."""

    def setUp(self):
        super().setUp()
        paper_tables.write_data(self.dir / "runs/papers")
        (self.dir / "jobs/papers").mkdir(parents=True)
        for path in paper_tables.JOBS.glob("*.yaml"):
            (self.dir / "jobs/papers" / path.name).write_text(path.read_text())

    def text(self, job, *options):
        return self.succeed(direct(self.dir / f"jobs/papers/{job}.yaml", "--dry-run", "--verbose",
                                   "--device", "a6000", "--set", "model.synthetic=tinyllama-1.1b", *options)).stdout

    def figures(self, text):
        """Dry runs of the script, all of which have come to this."""
        runs = paper_tables.DryRuns("none")
        runs.text = lambda run: text
        return runs

    def test_all_can_be_read(self):
        for path in sorted(paper_tables.JOBS.glob("*.yaml")):
            with self.subTest(path.name):
                ranks = "2" if "scaling" not in path.name else "1,2"
                options = ("--set", FEWER_TRIALS) if path.stem == "plora" else ()
                runs = self.figures(self.text(path.stem, "--ranks", ranks, *options))
                speed = runs.speed(None) if ranks == "2" else runs.speed_on(None, 2)
                self.assertGreater(speed, 100)

    def test_comparisons_are_read(self):
        runs = self.figures(self.text("lobra_7b", "--ranks", 2, "--compare"))
        for way in ("Task-Fused", "LobRA-Sequential", "length-based", "balanced"):
            self.assertGreater(runs.rank_seconds(None, way), 0)
        runs = self.figures(self.text("plora", "--ranks", 2, "--compare", "--set", FEWER_TRIALS))
        self.assertGreater(runs.gain(None, "best plan, refilled"), 1)
        self.assertLess(runs.gain(None, "eager PEFT, each trial alone"), 1)


if __name__ == "__main__":
    unittest.main()
