"""What checks of a folder of faults are made of (run_faults3.py): the program's commands and what they print, the
losses that transformers has, jobs that are struck, and the run of all checks."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import harness
from harness import SOURCE

CHECKS = {}
IDS = [5, 17, 9, 44, 31, 8, 60, 23, 12, 71, 33, 90, 14, 7, 52, 19]
NO_TRACEBACK = "Traceback (most recent call last)"


class Wrong(Exception):
    """Why a fault is still there."""


def check(name):
    """The function says by Wrong what is wrong."""
    def note(function):
        CHECKS[name] = function
        return function
    return note


class Result:
    """Of a command: its exit code, and all that it printed."""

    def __init__(self, process):
        self.code = process.returncode
        self.text = process.stdout + process.stderr

    def brief(self):
        text = self.text[:self.text.find("\n-----")] if "mpirun detected" in self.text else self.text
        return f"exit code {self.code}, {' / '.join(text.split(chr(10)))[-300:]!r}"

    def needs(self, condition, what):
        if not condition:
            raise Wrong(f"{what}; {self.brief()}")
        return self

    def says(self, *patterns):
        """Any of them."""
        return any(re.search(pattern, self.text, re.IGNORECASE) for pattern in patterns)

    def accepted(self):
        return self.needs(self.code == 0, "refused")

    def refused(self, *patterns):
        """With one message of the program's own, that has all of them."""
        self.needs(self.code == 2 and NO_TRACEBACK not in self.text, "not refused with exit code 2")
        for pattern in patterns:
            self.needs(self.says(pattern), f"the message has no {pattern!r}")
        return self

    def refused_or_reported(self, *patterns):
        """Refused, or done with a word on it."""
        self.needs(self.code in (0, 2) and NO_TRACEBACK not in self.text, "fails")
        return self.needs(self.says(*patterns), f"nothing is said of it ({' | '.join(patterns)})")


def loratrain(*arguments, environment=None, timeout=120):
    command, usual = harness.mpirun_command(arguments)
    return Result(subprocess.run(command[command.index(harness.BIN):], text=True, capture_output=True, timeout=timeout,
                                 env={**usual, **(environment or {})}, check=False))


def prepare(*arguments):
    command = [sys.executable, SOURCE / "scripts/prepare_data.py", *arguments]
    return Result(subprocess.run(command, text=True, capture_output=True, timeout=120, check=False))


def base():
    if not os.path.exists("base.h5"):
        loratrain("import-hf", "base", "base.h5").accepted()
    return "base.h5"


def run_python(code, *arguments):
    process = subprocess.run([sys.executable, "-W", "ignore", "-c", code, *arguments], text=True, capture_output=True,
                             timeout=300, check=False, env={**os.environ, "TRANSFORMERS_VERBOSITY": "error"})
    if process.returncode != 0:
        raise Wrong(f"transformers does not tell: {process.stderr.strip()[-300:]}")
    return process.stdout


LOSS = """
import json, sys, torch, transformers
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float64, attn_implementation="eager")
ids = torch.tensor([json.loads(sys.argv[2])])
logits = model.eval()(input_ids=ids).logits[0, :-1]
print(torch.nn.functional.cross_entropy(logits.double(), ids[0, 1:]).item())
"""


def transformers_loss(folder):
    return float(run_python(LOSS, folder, json.dumps(IDS)).split()[-1])


def first_loss(weights, name="loss", keys=None, data=None):
    """Of one sample before anything is learnt: the base's."""
    pathlib.Path(f"{name}.jsonl").write_text("".join(
        json.dumps(sample) + "\n" for sample in data or [{"input_ids": IDS, "labels": IDS}]))
    adapter = {"name": "a", "dataset": "d", "r": 4, "max_steps": 1, "global_batch_size": len(data or [0]), **(keys or {})}
    job = {"model": {"weights": str(weights), "precision": "fp32"}, "run": {"dir": f"{name}-run", "backend": "cpu"},
           "datasets": {"d": {"path": f"{name}.jsonl", "max_seq_len": 64}}, "adapters": [adapter]}
    pathlib.Path(f"{name}.yaml").write_text(json.dumps(job))
    shutil.rmtree(f"{name}-run", ignore_errors=True)
    result = loratrain(f"{name}.yaml").accepted()
    return steps(f"{name}-run")[0]["loss"], result


def steps(run_dir, adapter="a"):
    return harness.step_metrics(run_dir, adapter)


def as_transformers(folder, limit=1e-5):
    """The folder is imported, and its loss is that of transformers."""
    loratrain("import-hf", folder, f"{folder.replace('/', '-')}.h5", "--force").accepted()
    got, _ = first_loss(f"{folder.replace('/', '-')}.h5")
    want = transformers_loss(folder)
    if abs(got / want - 1) > limit:
        raise Wrong(f"loss {got:.6f}, transformers has {want:.6f}")


# ---- jobs that are struck

def small_job(name, **sections):
    """Of the shared base, with data of its own."""
    lines = [{"input_ids": IDS[i % 4:], "labels": [-100, -100, *IDS[i % 4 + 2:]]} for i in range(32)]
    pathlib.Path("x.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    job = {"model": {"weights": base()}, "run": {"dir": name}, "datasets": {"x": {"path": "x.jsonl", "eval_path": "x.jsonl",
           "max_seq_len": 64}}, "defaults": {"r": 8, "max_steps": 20}, "adapters": [{"name": "a"}]}
    for section, keys in sections.items():
        job[section] = {**job.get(section, {}), **keys} if isinstance(keys, dict) else keys
    shutil.rmtree(name, ignore_errors=True)
    path = pathlib.Path(f"{name}.yaml")
    path.write_text(json.dumps(job))
    return path


def ranks_below(pid):
    """Processes of the program that it has started, at any depth."""
    found = []
    for child in harness.children(pid):
        try:
            found += [child] if os.readlink(f"/proc/{child}/exe") == os.path.realpath(harness.BIN) else []
        except OSError:
            continue
        found += ranks_below(child)
    return found


def holds_signals(pid):
    """Whether it has blocked SIGUSR1, as the program does before anything else; one that has ended, too."""
    try:
        blocked = re.search(r"SigBlk:\s*(\w+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]
    except OSError:
        return True
    return bool(int(blocked, 16) >> (signal.SIGUSR1 - 1) & 1)


def struck(name, ranks, delay, strike, patience, whom=None, **sections):
    """Exit code of a job whose ranks `strike` gets so long after they began, and with a signal that they hold not
    before their first instruction, for which a second is enough; None = it hangs. `whom`: mpirun in their place."""
    job = small_job(name, **sections)
    process = harness.start([job], ranks)
    begun, pids = None, []
    end = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < end:
        pids = ranks_below(process.pid)
        begun = begun or (time.monotonic() if len(pids) == ranks else None)
        waited = time.monotonic() - begun if begun else 0
        if begun and waited >= delay and (all(map(holds_signals, pids)) or waited > delay + 1):
            break
        time.sleep(0.002)
    strike([process.pid] if whom == "mpirun" else pids)
    try:
        process.communicate(timeout=patience)
        return process.returncode
    except subprocess.TimeoutExpired:
        return None
    finally:
        harness.send([*pids, *([] if process.poll() is not None else [process.pid])], signal.SIGKILL)
        process.communicate()


# ---- all of them

def default_folder():
    for above in SOURCE.parents:
        if (above / "shared/faults3").is_dir():
            return above / "shared/faults3"
    sys.exit("no shared/faults3 in a folder above the repository: give the folder")


def run_check(name):
    try:
        CHECKS[name]()
        return ""
    except Wrong as wrong:
        return str(wrong)
    except subprocess.TimeoutExpired as error:
        return f"no end after {error.timeout} s"
    except Exception as error:  # the check did not foresee it: no fault is known to be mended then
        return f"{type(error).__name__}: {error}"


def main(arguments):
    folder = pathlib.Path(arguments.pop(0)).resolve() if arguments and pathlib.Path(arguments[0]).is_dir() else default_folder()
    harness.BIN = os.path.abspath(harness.BIN)
    unknown = [name for name in arguments if not any(name in known for known in CHECKS)]
    if unknown:
        sys.exit(f"no check is called {unknown[0]}; there are: {'; '.join(CHECKS)}")
    names = [name for name in CHECKS if not arguments or any(given in name for given in arguments)]
    with tempfile.TemporaryDirectory(prefix="loratrain-faults-") as work:
        shutil.copytree(folder, work, dirs_exist_ok=True)
        os.chdir(work)
        right = 0
        for name in names:
            why = run_check(name)
            right += not why
            print(f"{name}: {'wrong: ' + why if why else 'right'}", flush=True)
        os.chdir("/")
    print(f"{right} of {len(names)} right")
    return int(right < len(names))
