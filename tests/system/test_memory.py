"""Memory is what the plan says, and does not grow while training."""

import json
import pathlib
import random
import re
import signal
import struct
import sys
import unittest

from harness import BIN, SCRATCH, STOPPED, JobTest, memory_report, run, start, write_samples

MIB = 1 << 20


def ranks_below(pid):
    """Process ids of loratrain started by mpirun."""
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children
            if pathlib.Path(f"/proc/{child}/exe").resolve() == pathlib.Path(BIN).resolve()]


def resident(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", text)[1]) * 1024


class Growth(JobTest):
    def test_thousands_of_steps(self):
        keys = {"lora_dropout": 0.1, "max_steps": 100000, "lr_scheduler_type": "constant"}
        job = self.tiny_job("run", {"one": {**keys, "r": 4, "learning_rate": 1e-5},
                                    "two": {**keys, "r": 7},
                                    "three": {**keys, "target_modules": ["o_proj"]}})
        # With a deployment that is found evaluations that may end `one` end a stream each, and it gains in
        # all of them: what is kept of a long one (MakespanCheck) has its own bound.
        job["parallel"] = {"deployment": "auto"}
        job["datasets"]["a"]["eval_path"] = job["datasets"]["a"]["path"]
        job["eval"] = {"every_steps": 100, "keep_best": True, "early_stopping_patience": 1}
        job["checkpoint"] = {"every_steps": 250}
        process = start([self.write_job(job)], 2)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        samples = {}
        for line in process.stdout:
            match = re.search(r"round (\d+)/100000", line)
            if match and int(match[1]) in (300, 700, 3000):
                samples[int(match[1])] = [resident(pid) for pid in ranks_below(process.pid)]
                if len(samples) == 3:  # not before: what has ended has no memory
                    process.send_signal(signal.SIGUSR1)
        self.assertEqual(process.wait(60), STOPPED)
        print("resident MiB at steps", {step: [round(b / MIB, 2) for b in values]
                                        for step, values in samples.items()}, file=sys.stderr)
        self.assertEqual([len(values) for values in samples.values()], [2, 2, 2])
        for rank in range(2):
            # A heap breathes by a megabyte or so; a kilobyte a step would be two more.
            before = max(samples[300][rank], samples[700][rank])
            self.assertLess(samples[3000][rank] - before, 2 * MIB)


# MPI's shared memory, pages of the program's code, and the copy of one
# adapter that the last checkpoint writes: the same for a small and a large plan.
OUTSIDE_THE_PLAN = 32 * MIB


class Prediction(JobTest):
    """A base of 26 million parameters with random weights."""

    CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
              "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 6,
              "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 8000,
              "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
              "max_position_embeddings": 1024, "torch_dtype": "float32"}

    def shapes(self):
        c = self.CONFIG
        hidden, inner, vocab = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
        yield "model.embed_tokens.weight", [vocab, hidden]
        for i in range(c["num_hidden_layers"]):
            layer = f"model.layers.{i}."
            yield layer + "input_layernorm.weight", [hidden]
            yield layer + "post_attention_layernorm.weight", [hidden]
            for name, out in (("q", hidden), ("k", hidden // 2), ("v", hidden // 2), ("o", hidden)):
                yield f"{layer}self_attn.{name}_proj.weight", [out, hidden]
            yield layer + "mlp.gate_proj.weight", [inner, hidden]
            yield layer + "mlp.up_proj.weight", [inner, hidden]
            yield layer + "mlp.down_proj.weight", [hidden, inner]
        yield "model.norm.weight", [hidden]
        yield "lm_head.weight", [vocab, hidden]

    def write_base(self, dtype):
        """The imported weights, made once per process; numbers repeat every 4099 so that this is quick."""
        weights = SCRATCH / f"{dtype}.h5"
        if weights.exists():
            return weights
        directory = self.dir / "hf"
        directory.mkdir(exist_ok=True)
        (directory / "config.json").write_text(json.dumps(self.CONFIG))
        draw = random.Random(1)
        values = [draw.uniform(-0.04, 0.04) for _ in range(4099)]
        block = b"".join(struct.pack("<f", v) if dtype == "F32" else struct.pack("<f", v)[2:]
                         for v in values)
        size = 4 if dtype == "F32" else 2
        header, offset = {}, 0
        for name, shape in self.shapes():
            end = offset + size * shape[0] * (shape[1] if len(shape) > 1 else 1)
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, end]}
            offset = end
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(directory / "model.safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.write((block * (offset // len(block) + 1))[:offset])
        self.succeed(run(["import-hf", directory, weights]))
        return weights

    def check(self, dtype, precision, ranks, recompute="none", tokens=1024, **parallel):
        job = self.tiny_job("run", {})
        job["model"] = {"weights": str(self.write_base(dtype)), "precision": precision}
        job["parallel"] = {"microbatch_tokens": tokens, "recompute": recompute, **parallel}
        path = write_samples(self.dir / "long.jsonl", 24, 5, 8000, 200, 500)
        job["schedule"] = {"costs": "built-in"}  # the same split of layers every time
        job["datasets"] = {"d": {"path": path}}
        job["defaults"]["global_batch_size"] = 3
        job["adapters"] = [{"name": f"a{i}", "r": 16, "dataset": "d", "max_steps": 1,
                            "lora_dropout": 0.1 * (i % 2)} for i in range(4)]
        process = self.succeed(run([self.write_job(job)], ranks))
        report = memory_report(process.stdout)
        self.assertEqual(len(report), ranks)
        for rank, (planned, allocated, growth) in enumerate(report):
            print(f"{dtype} stored as {precision}, recompute {recompute}, rank {rank} of {ranks}: "
                  f"planned {planned / MIB:.1f} MiB, allocated {100 * (allocated / planned - 1):+.2f}%, "
                  f"resident growth {100 * (growth / planned - 1):+.1f}%", file=sys.stderr)
        for planned, allocated, growth in report:
            self.assertLess(abs(allocated / planned - 1), 0.01)
            self.assertLess(abs(growth - planned), 0.05 * planned + OUTSIDE_THE_PLAN)

    def test_fp32_on_two_ranks(self):
        self.check("F32", "fp32", 2)

    def test_bf16_on_two_ranks(self):
        self.check("BF16", "bf16", 2)

    def test_fp32_on_one_rank(self):
        self.check("F32", "fp32", 1)

    def test_two_replicas(self):
        self.check("F32", "fp32", 2, deployment=[{"count": 2}])

    def test_recomputed_on_two_ranks(self):
        self.check("F32", "fp32", 2, "layer", 2048)


if __name__ == "__main__":
    unittest.main()
