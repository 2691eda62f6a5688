"""What the system tests share: running loratrain under mpirun, jobs, reading what it wrote.

The program and mpirun come from the environment (LORATRAIN_BIN, LORATRAIN_MPIEXEC), set by ctest.
Only the standard library is used."""

import array
import atexit
import contextlib
import json
import math
import operator
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = SOURCE / "tests" / "golden"


def config_of(family):
    """Of a golden family's text model."""
    config = json.loads((GOLDEN / family / "base/config.json").read_text())
    return config.get("text_config", config)


# A golden family is a folder: its layers, and its forms of LoRA beside plain ones.
GOLDEN_LAYERS = {path.parent.name: config_of(path.parent.name)["num_hidden_layers"]
                 for path in sorted(GOLDEN.glob("*/golden.json")) if (path.parent / "base").is_dir()}
QUANTIZED = tuple(family for family in GOLDEN_LAYERS if "quantization_config" in config_of(family))
GOLDEN_FORMS = {path.parent.name: tuple(json.loads(path.read_text())["adapters"])
                for path in sorted(GOLDEN.glob("*/forms.json"))}
# Why lanes cannot share them.
NO_LANES = {"qwen3_5_moe": "2 does not divide 3 key heads of gated delta nets",
            **dict.fromkeys(("deepseek_v3", "glm4_moe_lite"), "lanes do not share latent attention")}
BIN = os.environ.get("LORATRAIN_BIN", str(SOURCE / "build" / "loratrain"))
FULL = os.environ.get("LORATRAIN_FULL_TESTS") == "1"
STOPPED = 75  # exit code: the same command continues
ENDLESS = 1000000  # steps
DEMO_VOCABULARY = 264
BYTE_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
MPIEXEC = os.environ.get("LORATRAIN_MPIEXEC", "mpirun")
SCRATCH = pathlib.Path(tempfile.mkdtemp(prefix="loratrain-tests-"))  # of this process
atexit.register(shutil.rmtree, SCRATCH, ignore_errors=True)
# With AVX2 and without AVX-512, oneDNN adds the last one to three of every block of rows in another order
# (src/numerics.md): runs whose microbatches are cut otherwise would differ by roundings.
CPU_FLAGS = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
if "avx2" in CPU_FLAGS and "avx512f" not in CPU_FLAGS:
    os.environ.setdefault("DNNL_MAX_CPU_ISA", "SSE41")
# Costs measured and GEMM algorithms chosen by the first run of a process hold for the others, so
# that they are planned alike and, on GPUs, repeat to the bit.
COST_CACHE = SCRATCH / "costs.json"
ALGO_CACHE = SCRATCH / "algorithms"


def session_directory():
    """Where one run of Open MPI keeps its files. One that ends deletes the folder that all runs of
    a user share by default, even while another starts, which fails then."""
    return tempfile.mkdtemp(dir=SCRATCH)


def mpirun_command(arguments, ranks=1):
    """`mpirun -np ranks loratrain arguments...` as a list, and the environment it needs."""
    command = [MPIEXEC, "-np", str(ranks)]
    if ranks > 1:
        command += ["--oversubscribe", "--bind-to", "none"]
    environment = dict(os.environ)
    environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                       OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_mpi_yield_when_idle="1")
    environment.setdefault("OMP_NUM_THREADS", "1")
    environment.setdefault("OMPI_MCA_pml", "ob1")  # what it finds here, without the search
    environment["OMPI_MCA_orte_tmpdir_base"] = session_directory()
    environment.setdefault("LORATRAIN_COST_CACHE", str(COST_CACHE))
    environment.setdefault("LORATRAIN_ALGO_CACHE", str(ALGO_CACHE))
    return command + [BIN] + [str(a) for a in arguments], environment


def run(arguments, ranks=1, timeout=300, cwd=None):
    """Runs `mpirun -np ranks loratrain arguments...`; returns the finished process."""
    command, environment = mpirun_command(arguments, ranks)
    if ranks == 1:  # no others to wait for, two seconds, when it ends with an error
        environment.setdefault("OMPI_MCA_odls_base_sigkill_timeout", "0")
    return subprocess.run(command, cwd=cwd, text=True, capture_output=True, timeout=timeout,
                          env=environment, check=False)


def run_as_hosts(arguments, hosts, timeout=300):
    """The same on ranks that take this machine for several: each a name, how many ranks it has, and
    what else is in their environment."""
    command, environment = mpirun_command(arguments, sum(ranks for _, ranks, *_ in hosts))
    program = command.index(BIN)
    words = command[:1] + command[3:program]
    for i, (name, ranks, *more) in enumerate(hosts):
        words += [":"] if i else []
        words += ["-np", str(ranks), "-x", f"LORATRAIN_HOST={name}"]
        for variable in more:
            words += ["-x", variable]
        words += command[program:]
    return subprocess.run(words, text=True, capture_output=True, timeout=timeout, env=environment,
                          check=False)


def start(arguments, ranks=1):
    """The same without waiting: a running process whose output is piped."""
    command, environment = mpirun_command(arguments, ranks)
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            env=environment)


def slurm_environment(folder):
    """For the jobs of a Slurm that scripts/local_slurm.sh has started in the folder."""
    return {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "LORATRAIN": BIN,
            "LORATRAIN_ROOT": str(SOURCE), "OMP_NUM_THREADS": "1",
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_pml": "ob1",
            "OMPI_MCA_orte_tmpdir_base": session_directory(),
            "LORATRAIN_COST_CACHE": str(COST_CACHE)}


def direct(*arguments):
    """loratrain without mpirun; returns the finished process."""
    return subprocess.run([BIN, *map(str, arguments)], text=True, capture_output=True, timeout=120,
                          env=mpirun_command([])[1], check=False)


def children(pid):
    """The processes that a process has started; none when it is gone."""
    try:
        text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(child) for child in text.split()]


def send(pids, number):
    """Signals processes, those that are gone left out."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def is_alive(pid):
    """False also for what waits for its parent to notice."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def write_samples(path, count, seed, vocabulary=300, shortest=6, longest=30):
    """A JSONL file of random samples whose first two tokens are not trained."""
    draw = random.Random(seed)
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(count):
            ids = [draw.randrange(vocabulary) for _ in range(draw.randint(shortest, longest))]
            file.write(json.dumps({"input_ids": ids, "labels": [-100] * 2 + ids[2:]}) + "\n")
    return str(path)


def lora_products(path):
    """Name of B -> B A, of a PEFT file: what does not depend on the signs of A's rows."""
    tensors, shapes = read_safetensors(path), tensor_shapes(path)
    products = {}
    for name, b in tensors.items():
        if not name.endswith("lora_B.weight"):
            continue
        out, rank = shapes[name]
        a = tensors[name.replace("lora_B", "lora_A")]
        width = len(a) // rank
        columns = [a[i::width] for i in range(width)]
        products[name] = [sum(map(operator.mul, b[row * rank:(row + 1) * rank], column))
                          for row in range(out) for column in columns]
    return products


def tensor_shapes(path):
    """Of a safetensors file."""
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
    return {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}


def read_safetensors(path):
    """Name -> list of floats of an F32 safetensors file."""
    data = pathlib.Path(path).read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "F32", (path, name, entry["dtype"])
        begin, end = entry["data_offsets"]
        values = array.array("f")
        values.frombytes(data[8 + size + begin:8 + size + end])
        tensors[name] = values
    return tensors


def write_safetensors(path, tensors, metadata=None):
    """The reverse: name -> (dtype, shape, bytes)."""
    header = {"__metadata__": metadata or {"format": "pt"}}
    offset = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            file.write(data)


def read_metrics(run_dir, adapter):
    """Lines of adapters/<adapter>/metrics.jsonl as dictionaries."""
    path = pathlib.Path(run_dir) / "adapters" / adapter / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def step_metrics(run_dir, adapter):
    """The lines of optimizer steps (step 0 holds only the evaluation before training)."""
    return [line for line in read_metrics(run_dir, adapter) if "loss" in line]


def without_times(lines):
    """Of metrics: what does not depend on how long it took."""
    times = ("tokens_per_second", "elapsed_seconds")
    return [{key: value for key, value in line.items() if key not in times} for line in lines]


def adapter_weights(run_dir, adapter):
    return read_safetensors(pathlib.Path(run_dir) / "adapters" / adapter /
                            "adapter_model.safetensors")


def golden_names(family):
    """The plain ones."""
    return list(json.loads((GOLDEN / family / "golden.json").read_text())["adapters"])


def golden_facts(family):
    """By name, of golden.json and forms.json."""
    facts = {}
    for path in sorted((GOLDEN / family).glob("*.json")):
        facts.update(json.loads(path.read_text())["adapters"])
    return facts


def golden_keys(facts):
    """Of the job's adapter."""
    if "keys" in facts:
        return facts["keys"]
    taken = ("r", "lora_alpha", "use_rslora", "target_modules", "global_batch_size", "learning_rate",
             "warmup_steps", "weight_decay", "max_grad_norm")
    return {**{key: facts[key] for key in taken}, "lr_scheduler_type": facts["lr_scheduler"]}


def frobenius(a, b):
    """|a - b| / |b|."""
    difference = math.fsum((x - y) ** 2 for x, y in zip(a, b, strict=True))
    return math.sqrt(difference / math.fsum(y * y for y in b))


def shared_layers(run_dir):
    """How many layers of the run's plan neighbouring stages share, adapter by adapter."""
    text = (pathlib.Path(run_dir) / "plan.yaml").read_text()
    return len(re.findall(r"first_layer_adapters: \[(?!0, 2147483647\])", text))


def bytes_of(text):
    """Bytes of "1.5 MiB"."""
    number, unit = text.split()
    return float(number) * BYTE_UNITS[unit]


def memory_report(text):
    """Per rank (planned, allocated, resident growth) in bytes, from the log."""
    pattern = r"memory of rank \d+: planned (\S+ \S+), allocated (\S+ \S+), resident growth (.*)"
    return [tuple(map(bytes_of, match.groups())) for match in re.finditer(pattern, text)]


imported = {}


class EachFamily:
    """A test for every golden family whose base is not quantised, test_llama and so on, by
    check_family() of the class that has it for a base."""

    def print_worst(self, what, worst):
        """Of check_golden()'s errors."""
        print(f"{what}: worst relative error of losses {worst['loss']:.1e}, "
              f"grad norms {worst['grad_norm']:.1e}, weights {worst['weights']:.1e}",
              file=sys.stderr)


def microbatch_sizes(turn):
    """Tokens of the microbatches that a golden family is trained in: the smaller size cuts batches into many. One of
    the two, in turns over the layouts of a family, except with LORATRAIN_FULL_TESTS=1."""
    return (64, 4096) if FULL else ((4096, 64)[turn % 2],)


for each in (family for family in GOLDEN_LAYERS if family not in QUANTIZED):
    setattr(EachFamily, f"test_{each}", lambda self, family=each: self.check_family(family))


class JobTest(unittest.TestCase):
    """A test with a temporary directory and helpers to write and run jobs in it."""

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="loratrain-test-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def import_golden(self, family):
        """The family's base as a file of this test; imported once per process."""
        weights = self.dir / f"{family}.h5"
        if weights.exists():
            return weights
        if family not in imported:
            self.succeed(run(["import-hf", self.golden_base(family), weights]))
            imported[family] = weights.read_bytes()
        weights.write_bytes(imported[family])
        return weights

    def golden_base(self, family):
        """Or the quickstart's base, "demo": four ranks share two of its six layers."""
        if family == "demo":
            return SOURCE / "inputs/demo_base"
        return GOLDEN / ("llama" if family in ("preferences", "rollouts") else family) / "base"

    def succeed(self, process, code=0):
        self.assertEqual(process.returncode, code, process.stdout + process.stderr)
        return process

    def assert_same_weights(self, got, want, adapters):
        """Two run directories below self.dir hold the same exported weights, to the byte."""
        for name in adapters:
            file = f"adapters/{name}/adapter_model.safetensors"
            self.assertEqual((self.dir / got / file).read_bytes(),
                             (self.dir / want / file).read_bytes(), name)

    def assert_same_bits(self, got, want, adapters):
        """Two run directories below self.dir agree in the adapters' exported weights and, step by
        step, in what they logged besides times."""
        self.assert_same_weights(got, want, adapters)
        for name in adapters:
            lines, wanted = (without_times(step_metrics(self.dir / run_dir, name))
                             for run_dir in (got, want))
            self.assertTrue(lines)
            self.assertEqual(lines, wanted, (got, want, name))

    def step_losses(self, run_dir, name):
        """Of an adapter, per step, in a run directory below self.dir."""
        return [line["loss"] for line in step_metrics(self.dir / run_dir, name)]

    def compare_losses(self, got, want, names, limit):
        """Largest relative difference between two run directories; fails beyond the limit."""
        worst = 0.0
        for name in names:
            pairs = list(zip(self.step_losses(got, name), self.step_losses(want, name), strict=True))
            self.assertTrue(pairs)
            for step, (a, b) in enumerate(pairs, 1):
                worst = max(worst, abs(a / b - 1))
                self.assertLessEqual(abs(a / b - 1), limit, (got, want, name, step))
        return worst

    def drop(self, run_dir, name, additions, seconds_ago=0):
        """As a user should: written under another name, then renamed."""
        inbox = self.dir / run_dir / "inbox"
        hidden = inbox / f".{name}.part"
        hidden.write_text(json.dumps(additions))
        changed = time.time() - seconds_ago
        os.utime(hidden, (changed, changed))
        hidden.rename(inbox / f"{name}.yaml")

    def wait_for_file(self, path, seconds=120):
        end = time.monotonic() + seconds
        while not (self.dir / path).exists():
            self.assertLess(time.monotonic(), end, path)
            time.sleep(0.02)

    def wait_for_step(self, run_dir, adapter, step, seconds=120, unless_ended=None):
        """Also returns when the process `unless_ended` has ended."""
        path = self.dir / run_dir / "adapters" / adapter / "metrics.jsonl"
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if path.exists() and len(path.read_text().splitlines()) >= step:
                return
            if unless_ended is not None and unless_ended.poll() is not None:
                return
            time.sleep(0.02)
        self.fail(f"{adapter} took no {step} steps in {seconds} s")

    def finish(self, process, code=0):
        output, _ = process.communicate(timeout=300)
        self.assertEqual(process.returncode, code, output)
        return output

    def write_job(self, job, name="job.yaml"):
        """JSON is YAML: the job as a dictionary."""
        path = self.dir / name
        path.write_text(json.dumps(job, indent=1))
        return path

    def golden_job(self, family, run_dir, microbatch_tokens, adapters=None, **adapter_keys):
        """All (or the named) golden adapters of a family in one job; those of forms.json by name."""
        facts = golden_facts(family)
        job = {"model": {"weights": str(self.import_golden(family))},
               "run": {"dir": str(self.dir / run_dir)},
               "parallel": {"microbatch_tokens": microbatch_tokens, "deployment": "pipeline"},
               "datasets": {}, "adapters": []}
        for name in adapters or golden_names(family):
            job["datasets"][name] = {
                "path": str(GOLDEN / family / "adapters" / name / "data.jsonl"), "shuffle": False,
                **facts[name].get("dataset", {})}
            adapter = {"name": name, "dataset": name, **golden_keys(facts[name])}
            init = GOLDEN / family / "adapters" / name / "init"
            if init.exists():
                adapter["init_from"] = str(init)
            if "ref_of" in facts[name]:
                adapter["ref_adapter"] = str(GOLDEN / family / "adapters" / facts[name]["ref_of"] / "init")
            adapter.update(adapter_keys)
            job["adapters"].append(adapter)
        return job

    def mixed_golden_job(self, families, run_dir, microbatch_tokens, parallel=None):
        """A job file with golden adapters of several families of one base; `families`: names of
        their adapters, None for all, by family."""
        jobs = [self.golden_job(family, run_dir, microbatch_tokens, names) for family, names in families.items()]
        job = jobs[0]
        for other in jobs[1:]:
            job["datasets"].update(other["datasets"])
            job["adapters"] += other["adapters"]
        job["schedule"] = {"costs": "built-in"}
        job["parallel"].update(parallel or {})
        return self.write_job(job, f"{run_dir}.yaml")

    def check_golden(self, family, run_dir, limits, adapters=None):
        """A run of golden_job() against PEFT in float64: every step with its learning rate and targets,
        losses, gradient norms and final weights within `limits`. Returns the largest errors."""
        golden = golden_facts(family)
        worst = dict.fromkeys(("loss", "grad_norm", "weights"), 0.0)

        def check(key, error, what):
            worst[key] = max(worst[key], error)
            self.assertLessEqual(error, limits[key], (family, run_dir, key, what))

        for name in adapters or golden_names(family):
            facts = golden[name]
            lines = step_metrics(self.dir / run_dir, name)
            self.assertEqual([line["step"] for line in lines],
                             list(range(1, len(facts["loss"]) + 1)), name)
            for i, line in enumerate(lines):
                # A loss of pairs, of differences of sums, may come near 0; it is of the order of 1.
                least = {"loss": 1.0 if "metrics" in facts else 0.0, "grad_norm": 0.0}
                for key in ("loss", "grad_norm"):
                    want = facts[key][i]
                    check(key, abs(line[key] - want) / max(want, least[key]), (name, i + 1))
                self.assertAlmostEqual(line["learning_rate"], facts["lr"][i], delta=1e-12)
                self.assertEqual(line["target_tokens"], facts["target_tokens"][i])
                for key, value in facts.get("metrics", [{}] * len(lines))[i].items():
                    self.assertAlmostEqual(line[key], value, delta=1e-5 * max(1, abs(value)), msg=key)
            exported = f"adapters/{name}/adapter_model.safetensors"
            read = read_safetensors
            if facts.get("keys", {}).get("init_lora_weights") in ("pissa", "olora"):
                read = lora_products
            want = read(GOLDEN / family / "adapters" / name / "final/adapter_model.safetensors")
            got = read(self.dir / run_dir / exported)
            self.assertEqual(sorted(got), sorted(want))
            for tensor, values in want.items():
                check("weights", frobenius(got[tensor], values), (name, tensor))
        return worst

    def check_first_gradients(self, job, ranks, limit=2e-5):
        """Of adapters of golden jobs: one step, without clipping, leaves a tenth of the gradients as first moments,
        in a checkpoint; those of PEFT in float64 are in grad_step1 of each, but for adapters that start by keys."""
        for adapter in job["adapters"]:
            adapter["max_grad_norm"] = 0
        job["checkpoint"] = {"every_steps": 1}
        process = run([self.write_job(job), "--stop-after", "1"], ranks)
        self.assertEqual(process.returncode, STOPPED, process.stderr)
        checked = 0
        for adapter in job["adapters"]:
            path = pathlib.Path(job["datasets"][adapter["dataset"]]["path"]).parent / "grad_step1.safetensors"
            if not path.exists():
                continue
            stored = read_safetensors(pathlib.Path(job["run"]["dir"]) / "ckpt/1" / f"{adapter['name']}.safetensors")
            moments = {name.removesuffix(".exp_avg"): values for name, values in stored.items() if name.endswith(".exp_avg")}
            want = {name.replace("vector.weight", "vector"): values for name, values in read_safetensors(path).items()}
            self.assertEqual(sorted(moments), sorted(want), adapter["name"])
            for name, values in want.items():
                error = frobenius([10 * value for value in moments[name]], values)
                self.assertLessEqual(error, limit, (adapter["name"], name))
            checked += 1
        return checked

    def tiny_job(self, run_dir, adapters, family="llama", **defaults):
        """A job on a golden base: `adapters` maps a name to its own keys. Datasets a, b, c are
        random samples (23, 17 and 31 of them), shuffled; adapters take them in turn."""
        sizes = {"a": 23, "b": 17, "c": 31}
        job = {"model": {"weights": str(self.import_golden(family))},
               "run": {"dir": str(self.dir / run_dir), "seed": 7},
               "parallel": {"microbatch_tokens": 64, "deployment": "pipeline"}, "datasets": {},
               "defaults": {"r": 4, "lora_alpha": 8, "learning_rate": 1e-3, "warmup_steps": 2,
                            "global_batch_size": 4, **defaults}, "adapters": []}
        for seed, (name, size) in enumerate(sizes.items()):
            path = self.dir / f"{name}.jsonl"
            if not path.exists():
                write_samples(path, size, seed, DEMO_VOCABULARY if family == "demo" else 300)
            job["datasets"][name] = {"path": str(path)}
        for i, (name, keys) in enumerate(adapters.items()):
            job["adapters"].append({"name": name, "dataset": "abc"[i % 3], **keys})
        return job
