"""The pages for users do as they say: their commands run, and their YAML is what the program takes.

A block of code names its language behind the fence, and words that say how it is tried:

    sh                  commands; of README.md and jobs/tutorial.md each block runs, in order, in a clone
    sh needs=REASON     is left out: NEEDS has the reasons and how a block shows that it has one
    yaml                a job or sections of one, laid over BASE, for a dry run
    yaml file=NAME      also written there, for the commands behind it
    yaml base=PRESET    the dry run is of random weights of that preset
    yaml --ranks 4 ...  options of the dry run
    text, json, python  are only read

Data that YAML names is made, of the kind that its name begins with: SAMPLES.
"""

import json
import os
import re
import shutil
import subprocess
import unittest

from harness import BIN, SCRATCH, SOURCE, JobTest, direct, mpirun_command, run

NEEDS = {  # reason: what stands in such a block
    "root": r"quickstart\.sh|test\.sh|install_packages\.sh|apt-get|/opt/",
    "slurm": r"\bs(batch|run|queue|cancel)\b",
    "network": r"hf download|pip install|git clone|fetch_real_model",
    "gpu": r"gpu_visit\.sh|--backend cuda|\bvllm\b|\bsglang\b|fp8",
    "model": r"models/",  # a real model's folder
    "packages": r"prepare_data\.py|ask_adapter\.py|check_peft_export\.py|tune_with_\w+\.py",  # of Python
}
RUN = ("README.md", "jobs/tutorial.md")
SECTION = re.compile(r"^(\w+):", re.MULTILINE)
PAIR = {"chosen_input_ids": [1, 2, 3], "chosen_labels": [-100, 2, 3],
        "rejected_input_ids": [1, 4, 5], "rejected_labels": [-100, 4, 5]}
SAMPLES = {
    "pairs": PAIR,
    "paraphrases": PAIR,
    "labels": {"input_ids": [1, 2, 3], "labels": [-100, 2, 3], "label": True},
    "rollouts": {"input_ids": [1, 2, 3], "labels": [-100, 2, 3], "advantages": [0, 1, -1], "logprobs": [0, -1, -2]},
    "text": {"prompt": "1 + 1 =", "completion": " 2"},
    "": {"input_ids": [1, 2, 3], "labels": [-100, 2, 3]},
}

SHORTER = """#!/bin/sh
# The program; what trains takes few steps.
case "$1 $*" in
    *--dry-run*) exec "{program}" "$@" ;;
    jobs/sweep_demo*) exec "{program}" "$@" --set defaults.num_train_epochs=0.05 ;;
    *.yaml*) exec "{program}" "$@" --set defaults.max_steps=4 --set defaults.warmup_steps=1 ;;
esac
exec "{program}" "$@"
"""


class Block:
    def __init__(self, page, line, words, text):
        self.place = f"{page}:{line}"
        self.language, *words = words.split() or [""]
        self.keys = dict(word.split("=", 1) for word in words if re.match(r"\w+=", word))
        self.options = [word for word in words if not re.match(r"\w+=", word)]
        self.text = text


def blocks_of(page, text):
    """Its blocks of code, without the indentation of the fence."""
    found = []
    for match in re.finditer(r"^( *)```(.*)\n((?:.*\n)*?)\1```$", text, re.MULTILINE):
        indent, words, code = match.groups()
        found.append(Block(page, text[:match.start()].count("\n") + 1, words,
                           re.sub(f"^{indent}", "", code, flags=re.MULTILINE)))
    return found


def faults_of_commands(blocks):
    """Blocks that are left out without a reason that shows."""
    faults = []
    for block in blocks:
        reason = block.keys.get("needs")
        if block.language == "sh" and reason is not None and not re.search(NEEDS.get(reason, r"$^"), block.text):
            faults.append(f"{block.place}: needs={reason}, but no command shows it")
    return faults


def sections_of(text):
    """Name -> text of the sections at the margin."""
    starts = [match.start() for match in SECTION.finditer(text)] + [len(text)]
    return {SECTION.match(text, begin).group(1): text[begin:end] for begin, end in zip(starts, starts[1:])}


def whole_job(block):
    """The block's sections over those of a small job, which names the datasets that the block does."""
    given = sections_of(block.text)
    names = re.findall(r"\bdataset: ([\w-]+)", block.text)
    own = re.findall(r"^(?:datasets: *\{| +)([\w-]+): +\{", given.get("datasets", ""), re.MULTILINE)
    first = (own or names or ["a"])[0]
    loss = re.search(r"\bloss: (\w+)", block.text)
    kind = {"kto": "labels", "cit": "paraphrases", None: "plain", "sft": "plain"}.get(loss and loss.group(1), "pairs")
    base = {
        "model": f"model: {{synthetic: {block.keys['base']}}}\n" if "base" in block.keys else "model: {weights: base.h5}\n",
        "run": "run: {dir: run}\n",
        "datasets": "datasets:\n" + "".join(f"  {name}: {{path: {kind}_{name}.jsonl, eval_split: 0.25}}\n"
                                            for name in sorted({*names, first})),
        "defaults": "defaults: {max_steps: 2}\n",
        "adapters": f"adapters: [{{name: one, dataset: {first}}}]\n",
    }
    if "base" in block.keys:
        given.pop("model", None)
    if "sweep" in given:
        base["adapters"] = ""
        base["defaults"] = f"defaults: {{max_steps: 9, dataset: {first}}}\n"
    return "".join({**base, **given}.values())


class Pages(JobTest):
    @classmethod
    def setUpClass(cls):
        cls.pages = {name: (SOURCE / name).read_text() for name in
                     ("README.md", *sorted(f"jobs/{path.name}" for path in (SOURCE / "jobs").glob("*.md")))}
        cls.base = SCRATCH / "pages_base.h5"
        assert direct("import-hf", SOURCE / "inputs/demo_base", cls.base).returncode == 0

    def folder_for(self, job):
        """A folder with the base and the data that a job names."""
        folder = self.dir / "job"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name in re.findall(r"[\w./-]+\.h5", job):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).symlink_to(self.base)
        for name in re.findall(r"[\w./-]+\.jsonl", job):
            kind = next(kind for kind in SAMPLES if os.path.basename(name).startswith(kind))
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text((json.dumps(SAMPLES[kind]) + "\n") * 64)
        for name in re.findall(r"\bpath: ([\w./-]+/)(?=[,}\s])", job):
            (folder / name).mkdir(parents=True)
        for name in re.findall(r"\b(?:init_from|ref_adapter): ([\w./-]+/[\w./-]+)", job):
            shutil.copytree(self.adapter(), folder / name, dirs_exist_ok=True)
        return folder

    def adapter(self):
        """A PEFT directory with r 16 on all linears."""
        made = SCRATCH / "pages_adapter"
        if not made.exists():
            job = whole_job(Block("", 0, "yaml", "run: {dir: made}\n"))
            folder = self.dir / "adapter"
            folder.mkdir()
            (folder / "base.h5").symlink_to(self.base)
            (folder / "plain_a.jsonl").write_text((json.dumps(SAMPLES[""]) + "\n") * 16)
            (folder / "job.yaml").write_text(job)
            self.succeed(run([folder / "job.yaml"]))
            shutil.copytree(folder / "made/adapters/one", made)
        return made

    def problem_of(self, block):
        """What a dry run of a block of YAML says against it; "" for nothing."""
        job = whole_job(block)
        folder = self.folder_for(job)
        (folder / "job.yaml").write_text(job)
        process = direct(folder / "job.yaml", "--dry-run", *block.options)
        return "" if process.returncode == 0 else f"{block.place}\n{job}\n{process.stderr}"

    def test_yaml(self):
        blocks = [block for page, text in self.pages.items() for block in blocks_of(page, text) if block.language == "yaml"]
        self.assertGreater(len(blocks), 5)
        problems = [problem for problem in map(self.problem_of, blocks) if problem]
        self.assertFalse(problems, "\n".join(problems))

    def test_keys_that_take_a_structure_have_an_example(self):
        """Sections of keys.md, and keys that take a list or a mapping of names."""
        keys = self.pages["jobs/keys.md"]
        sections = re.findall(r"^\| \*\*[\w., ]*?(\w+)(?:\.NAME|\.KEY|\[0\])?\*\*", keys, re.MULTILINE)
        self.assertIn("between_hosts", sections)
        yaml = "".join(block.text for page, text in self.pages.items() for block in blocks_of(page, text)
                       if block.language == "yaml")
        lists = ("target_modules", "exclude_modules", "layers_to_transform", "rank_pattern", "alpha_pattern", "together",
                 "configurations", "stop_tokens", "eval_path")
        self.assertEqual([key for key in lists if f"`{key}`" not in keys], [])
        missing = [key for key in (*sections, *lists) if not re.search(rf"\b{key}: *(?:[\[{{]|(?:#.*)?\n +\S)", yaml)]
        self.assertEqual(missing, [])

    def test_wrong_yaml_is_found(self):
        wrong = "```yaml\ndefaults: {rank_of: 8}\n```\n```yaml --ranks 2\nparallel: {deployment: [{tp: 5}]}\n```\n"
        first, second = map(self.problem_of, blocks_of("page.md", wrong))
        self.assertIn("page.md:1\n", first)
        self.assertIn("rank_of", first.split("error")[1])
        self.assertIn("page.md:4\n", second)
        self.assertEqual(self.problem_of(Block("", 0, "yaml --ranks 2", "parallel: {deployment: [{tp: 2}]}\n")), "")

    def test_blocks_left_out_show_their_reason(self):
        self.assertEqual([fault for page in RUN for fault in faults_of_commands(blocks_of(page, self.pages[page]))], [])
        text = "```sh needs=slurm\nls\n```\n```sh needs=time\nsbatch\n```\n```sh needs=slurm\nsbatch a\n```\n"
        self.assertEqual(faults_of_commands(blocks_of("p", text)), [
            "p:1: needs=slurm, but no command shows it", "p:4: needs=time, but no command shows it"])

    def clone(self):
        """What git has, or of a copy without git the folders that the commands use."""
        folder = self.dir / "clone"
        folder.mkdir()
        for name in ("README.md", "inputs", "jobs", "scripts", "slurm"):
            copy = shutil.copytree if (SOURCE / name).is_dir() else shutil.copy
            copy(SOURCE / name, folder / name)
        (folder / "build").mkdir()
        program = folder / "build/loratrain"
        program.write_text(SHORTER.format(program=BIN))
        program.chmod(0o755)
        return folder

    def run_page(self, text, page):
        """Runs its commands as they stand and in their order; returns the clone and how many blocks ran."""
        folder, count = self.clone(), 0
        environment = mpirun_command([])[1]
        environment.update(OMPI_MCA_rmaps_base_oversubscribe="1")
        for block in blocks_of(page, text):
            if "file" in block.keys:
                (folder / block.keys["file"]).write_text(block.text)
            if block.language != "sh" or "needs" in block.keys:
                continue
            process = subprocess.run(["bash", "-ec", block.text], cwd=folder, env=environment, text=True,
                                     capture_output=True, timeout=300, check=False)
            self.assertEqual(process.returncode, 0, f"{block.place}\n{block.text}{process.stdout}{process.stderr}")
            count += 1
        return folder, count

    def test_readme(self):
        folder, count = self.run_page(self.pages["README.md"], "README.md")
        self.assertGreaterEqual(count, 2)
        for made in ("runs/quickstart/run/report.html", "runs/sweep_demo/sweep/best.yaml", "runs/replicas_demo/adapters/json/DONE"):
            self.assertTrue((folder / made).exists(), made)

    def test_tutorial(self):
        _, count = self.run_page(self.pages["jobs/tutorial.md"], "jobs/tutorial.md")
        self.assertGreaterEqual(count, 2)

    def test_wrong_commands_are_found(self):
        for wrong in ("build/loratrain jobs/none.yaml --dry-run", "build/loratrain --keyz\nls"):
            with self.assertRaisesRegex(AssertionError, "p.md:1\n"):
                self.run_page(f"```sh\n{wrong}\n```\n", "p.md")
            shutil.rmtree(self.dir / "clone")


if __name__ == "__main__":
    unittest.main()
