"""Watching a run: status.json and `status`, results.csv, event files, the report page."""

import csv
import html.parser
import json
import os
import shutil
import signal
import struct
import threading
import time
import unittest

from harness import STOPPED, JobTest, direct, read_metrics, run, start, step_metrics

VOID = {"meta", "line", "circle", "rect", "path", "br"}
FIXED64, BYTES, FIXED32 = 1, 2, 5


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


def tf_records(data):
    """Payloads of a TFRecord file; every length and checksum is checked."""
    at = 0
    while at < len(data):
        length, crc = struct.unpack_from("<QI", data, at)
        assert masked(data[at:at + 8]) == crc, "checksum of a length"
        payload = data[at + 12:at + 12 + length]
        assert masked(payload) == struct.unpack_from("<I", data, at + 12 + length)[0], "payload"
        yield payload
        at += 16 + length


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7f) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(message):
    """(number, value) of a protobuf message's fields; bytes for length-delimited ones."""
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        wire = key & 7
        if wire == FIXED64:
            value, at = struct.unpack_from("<d", message, at)[0], at + 8
        elif wire == FIXED32:
            value, at = struct.unpack_from("<f", message, at)[0], at + 4
        elif wire == BYTES:
            length, at = varint(message, at)
            value, at = message[at:at + length], at + length
        else:
            value, at = varint(message, at)
        yield key >> 3, value


def read_events(path):
    """Tag -> list of (step, value), and the wall times, of an event file."""
    scalars, times = {}, []
    for number, payload in enumerate(tf_records(path.read_bytes())):
        event = dict(fields(payload))
        times.append(event[1])
        if number == 0:
            assert event[3] == b"brain.Event:2", event
            continue
        for _, value in fields(event[5]):
            entry = dict(fields(value))
            scalars.setdefault(entry[1].decode(), []).append((event.get(2, 0), entry[2]))
    return scalars, times


def as_float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


class PageCheck(html.parser.HTMLParser):
    """Balanced tags, and nothing that would load something or run."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.text, self.faults = [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag in {"script", "link", "iframe", "object", "embed", "img", "base", "form"}:
            self.faults.append(f"<{tag}>")
        for name, value in attributes:
            if name in {"src", "href"} or name.startswith("on") or "url(" in (value or ""):
                self.faults.append(f"{tag} {name}={value}")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> closes nothing")

    def handle_data(self, data):
        self.text.append(data)


class Watching(JobTest):
    ADAPTERS = {"one": {}, "two": {"r": 8, "max_steps": 4}}

    def setUp(self):
        super().setUp()
        job = self.tiny_job("run", self.ADAPTERS, max_steps=6)
        job["schedule"] = {"policy": "mlora"}  # a block is one round: it stops at any step
        job["datasets"]["a"]["eval_path"] = job["datasets"]["b"]["path"]
        job["eval"] = {"every_steps": 2}
        job["logging"] = {"tensorboard": True}
        job["checkpoint"] = {"every_steps": 2}
        self.run_dir = self.dir / "run"
        self.job = job

    def train(self, *options, code=0, ranks=2):
        return self.succeed(run([self.write_job(self.job), *options], ranks), code)

    def page(self, *others):
        out = self.dir / "page.html"
        self.succeed(direct("report", self.run_dir, *others, "--out", out))
        check = PageCheck()
        text = out.read_text()
        check.feed(text)
        check.close()
        self.assertEqual(check.faults, [])
        self.assertEqual(check.open, [])
        self.assertNotIn("@import", text)
        return check, text

    def status(self):
        return json.loads((self.run_dir / "status.json").read_text())


class StopAndContinue(Watching):
    def test_all_records(self):
        self.assertRegex(self.train("--stop-after", 3, code=STOPPED).stdout, r"one +INTERRUPTED +3 ")
        self.assertEqual(self.status()["state"], "stopped")
        self.assertEqual(self.status()["reason"], "--stop-after 3 reached")
        text = self.succeed(direct("status", self.run_dir)).stdout
        self.assertRegex(text, r"run: stopped [\d-]+ [\d:]+: --stop-after 3 reached "
                               r"\(the same command continues\)\n")
        self.assertRegex(text, r"one +INTERRUPTED +3/6")
        stopped, _ = self.page()
        self.assertIn("stopped", stopped.text)
        self.assertIn("INTERRUPTED", stopped.text)
        self.assertNotIn("RUNNING", stopped.text)
        with open(self.run_dir / "results.csv", newline="", encoding="utf-8") as file:
            self.assertEqual({row["status"] for row in csv.DictReader(file)}, {"INTERRUPTED"})
        self.assertEqual([s for s, _ in self.events("one")["train/loss"]], [1, 2, 3])

        self.train()
        self.assertEqual(self.status()["state"], "done")
        self.check_events()
        self.check_results()
        text = self.succeed(direct("status", self.run_dir)).stdout
        self.assertRegex(text, r"run: done \d{4}-")
        self.assertRegex(text, r"two +DONE +4/4")
        self.check_page()

    def events(self, adapter):
        (path,) = (self.run_dir / "tensorboard" / adapter).iterdir()
        self.assertRegex(path.name, r"^events\.out\.tfevents\.\d{10}\.\S+\.\d+$")
        scalars, times = read_events(path)
        self.assertEqual(times, sorted(times))
        self.assertLess(abs(times[-1] - time.time()), 120)
        return scalars

    def check_events(self):
        for adapter in self.ADAPTERS:
            scalars = self.events(adapter)
            metrics = step_metrics(self.run_dir, adapter)
            for key in ("loss", "grad_norm", "learning_rate", "epoch"):
                wanted = [(line["step"], as_float32(line[key])) for line in metrics]
                self.assertEqual(scalars["train/" + key], wanted)
        evaluated = [(line["step"], as_float32(line["eval_loss"]))
                     for line in read_metrics(self.run_dir, "one") if "eval_loss" in line]
        self.assertEqual([step for step, _ in evaluated], [0, 2, 4, 6])
        self.assertEqual(self.events("one")["eval/loss"], evaluated)

    def check_results(self):
        with open(self.run_dir / "results.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([row["name"] for row in rows], ["one", "two"])
        for row in rows:
            metrics = step_metrics(self.run_dir, row["name"])
            losses = [line["loss"] for line in metrics]
            self.assertEqual(row["status"], "DONE")
            self.assertEqual(int(row["steps"]), len(losses))
            last = losses[-10:]
            self.assertAlmostEqual(float(row["train_loss"]), sum(last) / len(last), delta=1e-12)
            self.assertEqual(float(row["best_train_loss"]), min(losses))
            self.assertEqual(int(row["tokens"]), sum(line["tokens"] for line in metrics))
            self.assertTrue((self.run_dir / row["path"] / "adapter_model.safetensors").exists())
        evaluated = [line["eval_loss"] for line in read_metrics(self.run_dir, "one")
                     if "eval_loss" in line]
        self.assertEqual([float(rows[0][key]) for key in
                          ("eval_loss_first", "eval_loss", "eval_loss_best")],
                         [evaluated[0], evaluated[-1], min(evaluated)])
        self.assertEqual(rows[1]["eval_loss"], "")

    def check_page(self):
        check, text = self.page()
        self.assertGreaterEqual(check.tags.count("svg"), 5)
        for word in ("done", "one", "two", "Training loss", "Eval loss", "Learning rate",
                     "Throughput", "Timeline of the first steps", "Simulated, the first",
                     "rank 1", "backward 0", "Memory per rank", "Provenance"):
            self.assertTrue(any(word in part for part in check.text), word)
        self.assertRegex(text, r"planned [\d.]+ \w+, allocated [\d.]+ \w+")
        self.check_samples(text)
        stops = [part for part in check.text if part.startswith("stopped: ")]
        self.assertTrue(all(part.endswith("; the same command continues") for part in stops), stops)
        self.assertEqual(len(stops), 2)
        trace = self.run_dir / "preview/trace.json"
        (self.run_dir / "trace.json").write_text(trace.read_text())
        self.assertIn("Measured, the first", self.page()[1])
        trace.unlink()
        (self.run_dir / "trace.json").unlink()
        self.assertNotIn("Timeline", self.page()[1])
        self.succeed(direct("report", self.run_dir))
        self.assertGreater((self.run_dir / "report.html").stat().st_size, 10000)
        self.check_comparison()

    @staticmethod
    def first_samples(samples):
        """Of each start: `seconds` count from another time there. Both are given in tenths."""
        started = [sample["time"] - sample["seconds"] for sample in samples]
        return [sample for i, sample in enumerate(samples) if i == 0 or started[i] - started[i - 1] > 0.25]

    def check_samples(self, text):
        """Of both ranks and both starts, one each as training begins and as it ends."""
        memory = json.loads((self.run_dir / "memory.json").read_text())
        for rank in (0, 1):
            lines = (self.run_dir / f"devices/rank-{rank}.jsonl").read_text().splitlines()
            samples = [json.loads(line) for line in lines]
            self.assertGreaterEqual(len(samples), 4)
            self.assertEqual([sample["seconds"] for sample in self.first_samples(samples)], [0, 0])
            times = [sample["time"] for sample in samples]
            self.assertEqual(times, sorted(times))
            self.assertLess(abs(times[-1] - time.time()), 120)
            for sample in samples:
                self.assertEqual(sample["rank"], rank)
                self.assertGreater(sample["resident_bytes"], 1 << 20)
                self.assertGreater(sample["allocated_bytes"], 0)
            self.assertLessEqual(samples[-1]["allocated_bytes"], memory[rank]["allocated"])
            self.assertNotIn("watts", samples[-1])
        self.assertIn("Memory that the backend has allocated", text)
        self.assertIn("Resident memory on the host", text)
        self.assertNotIn("GPU power", text)
        shutil.move(self.run_dir / "devices", self.dir / "devices")
        self.assertNotIn("Memory and devices over time", self.page()[1])
        shutil.move(self.dir / "devices", self.run_dir / "devices")

    def check_comparison(self):
        """With a copy of itself, whose curves are the same."""
        other = self.dir / "other"
        shutil.copytree(self.run_dir, other)
        check, _ = self.page(other)
        self.assertEqual(check.tags.count("svg"), 5)  # losses and norms of both, evaluations of one
        self.assertEqual(sum(part.strip() == str(other) for part in check.text), 2 + 1)
        process = self.succeed(direct("report", *[other] * 9), 2)
        self.assertIn("compares at most 8 runs, got 9", process.stderr)


class OtherStates(Watching):
    def test_running_then_killed(self):
        for adapter in self.job["adapters"]:
            adapter["max_steps"] = 100000
        process = start([self.write_job(self.job)])
        reader = threading.Thread(target=process.stdout.read)  # a full pipe holds up the run
        reader.start()
        self.addCleanup(process.stdout.close)
        self.addCleanup(reader.join)
        self.addCleanup(process.kill)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            path = self.run_dir / "status.json"
            if path.exists() and self.status()["round"] > 0:
                break
            time.sleep(0.1)
        status = self.status()
        self.assertGreater(status["round"], 0)
        self.assertIn("running, last heartbeat", direct("status", self.run_dir).stdout)
        self.page()
        os.kill(status["pid"], signal.SIGKILL)
        process.wait(timeout=60)
        text = self.succeed(direct("status", self.run_dir)).stdout
        self.assertIn("interrupted: process ", text)
        check, _ = self.page()
        self.assertIn("interrupted", check.text)
        self.assertIn("INTERRUPTED", check.text)
        self.assertNotIn("RUNNING", check.text)
        self.check_interrupted_word(status)
        status["host"] = "elsewhere"
        status["updated"] -= 723
        (self.run_dir / "status.json").write_text(json.dumps(status))
        self.assertRegex(direct("status", self.run_dir).stdout, "no heartbeat for 12 min")

    def check_interrupted_word(self, status):
        """That of status and report stands in the comparison and in results.csv too."""
        other = self.dir / "other"
        shutil.copytree(self.run_dir, other)
        self.succeed(direct("report", self.run_dir))
        with open(self.run_dir / "results.csv", newline="", encoding="utf-8") as file:
            self.assertEqual({row["status"] for row in csv.DictReader(file)}, {"INTERRUPTED"})
        check, _ = self.page(other)
        self.assertEqual(check.text.count("interrupted"), 2)
        self.assertEqual(check.text.count("INTERRUPTED"), 2 * len(status["adapters"]))
        self.assertFalse({"running", "RUNNING", "vanished"} & set(check.text))
        shutil.rmtree(other)

    def test_hostile_names_are_only_text(self):
        dataset = "<script>alert(1)</script>'\"&"
        self.job["datasets"][dataset] = self.job["datasets"].pop("a")
        self.job["adapters"] = [{"name": f"n{i}", "dataset": dataset, "max_steps": 1}
                                for i in range(9)]
        self.train(ranks=1)
        check, text = self.page()
        self.assertNotIn("<script", text)
        self.assertTrue(any(dataset in part for part in check.text))
        self.assertTrue(any("9 to 9 of 9" in part for part in check.text))

    def test_plan_of_another_version(self):
        self.job["adapters"] = [{"name": "one", "dataset": "a", "max_steps": 1}]
        self.train(ranks=1)
        plan = self.run_dir / "plan.yaml"
        plan.write_text("\n".join(plan.read_text().splitlines()[:5]))
        process = self.succeed(direct("report", self.run_dir))
        self.assertIn("plan.yaml: cannot be read", process.stdout + process.stderr)
        check, _ = self.page()
        self.assertTrue(any("one" in part for part in check.text))

    def test_no_place_for_the_page(self):
        self.job["adapters"] = [{"name": "one", "dataset": "a", "max_steps": 1}]
        self.train(ranks=1)
        for out in (self.dir / "missing/page.html", self.dir):
            process = self.succeed(direct("report", self.run_dir, "--out", out), 2)
            self.assertEqual(process.stderr.count("error: "), 1, process.stderr)
            self.assertIn(f"error: {out}: ", process.stderr)
            self.assertNotIn(".tmp", process.stderr)

    def test_no_run_directory(self):
        for command in ("status", "report"):
            for path in (self.dir, self.dir / "nowhere"):
                for process in (direct(command, path), run([command, path], ranks=2)):
                    self.succeed(process, 2)
                    self.assertEqual(process.stderr.count("error: "), 1, process.stderr)
                    self.assertIn(str(path), process.stderr)


if __name__ == "__main__":
    unittest.main()
