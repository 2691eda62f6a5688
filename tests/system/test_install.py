"""`cmake --install` as a cluster's administrator does it, and what users find then: the program, its page,
completion, module, quick start and batch scripts in a tree that may be moved; uninstalling leaves nothing."""

import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import unittest

from harness import BIN, SCRATCH, SOURCE, JobTest, direct, mpirun_command, run

BUILD = pathlib.Path(BIN).parent
WRONG_PRODUCTS = os.environ.get("LORATRAIN_WRONG_PRODUCTS", "")
MODULES = "/usr/share/modules/init/bash"


def command(*words, cwd=None, **environment):
    return subprocess.run([str(word) for word in words], text=True, capture_output=True, timeout=300,
                          env={**mpirun_command([])[1], **environment}, cwd=cwd, check=False)


def needs(program):
    return unittest.skipUnless(shutil.which(program),
                               f"{program} is not here (scripts/debian_packages_tests.txt)")


@unittest.skipUnless((BUILD / "cmake_install.cmake").exists(), "the program lies in no build folder")
class Installed(JobTest):
    """One tree, installed under one name and used under another."""

    @classmethod
    def setUpClass(cls):
        cls.installed = SCRATCH / "install" / "prefix"
        cls.prefix = SCRATCH / "install" / "moved"
        process = command("cmake", "--install", BUILD, "--prefix", cls.installed)
        assert process.returncode == 0, process.stderr
        cls.installed.rename(cls.prefix)
        cls.files = {path.relative_to(cls.prefix) for path in cls.prefix.rglob("*") if path.is_file()}
        cls.share = cls.prefix / "share/loratrain"
        cls.completion = cls.prefix / "share/bash-completion/completions/loratrain"
        cls.page = cls.prefix / "share/man/man1/loratrain.1"

    @classmethod
    def tearDownClass(cls):
        """What uninstalling leaves, after all that the tests did in the tree."""
        cls.prefix.rename(cls.installed)
        (cls.installed / "share/loratrain/scripts/dataprep/__pycache__").mkdir(exist_ok=True)
        process = command("cmake", "--build", BUILD, "--target", "uninstall")
        assert process.returncode == 0, process.stdout + process.stderr
        assert not cls.installed.parent.exists(), list(cls.installed.rglob("*"))

    def in_bash(self, text, **environment):
        return self.succeed(command("bash", "-c", text, cwd=self.dir, **environment)).stdout

    def test_program_finds_libraries_wherever_it_lies(self):
        self.succeed(command(self.prefix / "bin/loratrain", "--version"))
        paths = re.findall(r"R(?:UN)?PATH.*\[(.*)\]",
                           self.succeed(command("readelf", "-d", self.prefix / "bin/loratrain")).stdout)
        folders = paths[0].split(":") if paths else []
        self.assertIn("$ORIGIN/../lib", [re.sub(r"/\.\./lib\b.*", "/../lib", f) for f in folders])
        for folder in folders:
            self.assertNotIn(str(BUILD), folder)

    def test_nothing_names_the_build_or_the_sources(self):
        for path in self.files:
            text = (self.prefix / path).read_bytes()
            if path.name != "loratrain" or path.parent.name != "bin":
                self.assertNotIn(str(self.installed).encode(), text, path)
                self.assertNotIn(str(SOURCE).encode(), text, path)

    @needs("man")
    def test_page(self):
        text = self.succeed(command("man", "-l", self.page, MANPAGER="cat", MANWIDTH="200")).stdout
        self.assertEqual(command("man", "-w", "loratrain",
                                 MANPATH=str(self.prefix / "share/man")).stdout.strip(), str(self.page))
        for line in direct("--help").stdout.splitlines():
            for option in re.findall(r"--[a-z-]+", line):
                self.assertIn(option, text)
        for key in re.findall(r"^\| `(\w+)` ", direct("--keys", "--markdown").stdout, re.M):
            self.assertIn(f" {key} (", text)

    def test_pages_for_users(self):
        folder = self.prefix / "share/doc/loratrain"
        pages = [folder / "README.md", *(folder / "jobs").glob("*.md")]
        self.assertEqual({page.name for page in pages}, {page.name for page in (SOURCE / "jobs").glob("*.md")})
        for page in pages:
            for link in re.findall(r"\]\(((?:jobs/)?\w+\.(?:md|svg))\b", page.read_text()):
                self.assertTrue((page.parent / link).exists(), f"{page}: {link}")

    @needs("groff")
    def test_page_is_sound(self):
        process = self.succeed(command("groff", "-man", "-ww", "-z", "-Tutf8", self.page))
        self.assertEqual(process.stderr, "")

    def complete(self, *words):
        text = (f". {self.completion}; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; "
                "_loratrain; echo ${COMPREPLY[@]}")
        return self.in_bash(text.replace("''", "\"\"")).split()

    def test_completion(self):
        self.assertEqual(self.complete("loratrain", "imp"), ["import-hf"])
        self.assertEqual(self.complete("loratrain", "bench", "--mix"), ["--mixed-ranks"])
        self.assertEqual(self.complete("loratrain", "t.yaml", "--dry"), ["--dry-run"])
        self.assertEqual(self.complete("loratrain", "t.yaml", "--restart", "n"), ["never"])
        self.assertEqual(self.complete("loratrain", "import-hf", "a", "b", "--quantize", "''"),
                         ["fp8", "int8", "nf4"])
        self.assertEqual(self.complete("loratrain", "t.yaml", "--set", "defaults.lora_a"),
                         ["defaults.lora_alpha="])
        self.assertEqual(self.complete("loratrain", "t.yaml", "--dev"), ["--device"])

    @unittest.skipUnless(os.path.exists(MODULES), "no Environment Modules here")
    def test_module(self):
        """Also where the variables that it adds to were set before; the system's own are still found."""
        for before in ("", "/elsewhere/share"):
            text = self.in_bash(
                f". {MODULES}; module use {self.prefix}/share/modulefiles; module load loratrain; "
                "command -v loratrain prepare_data.py; echo $LORATRAIN_ROOT; man -w loratrain; "
                "echo $XDG_DATA_DIRS; module unload loratrain; command -v loratrain; echo \"-$LORATRAIN_ROOT\"",
                MANPATH=before and before + "/man", XDG_DATA_DIRS=before)
            self.assertEqual(text.splitlines(), [
                str(self.prefix / "bin/loratrain"), str(self.share / "scripts/prepare_data.py"),
                str(self.share), str(self.page),
                f"{self.prefix}/share:{before or '/usr/local/share:/usr/share'}", "-"])

    def test_quickstart(self):
        process = self.succeed(command(self.share / "scripts/quickstart.sh", "--set", "defaults.max_steps=2",
                                       "--set", "defaults.warmup_steps=1", "--set", "eval.every_steps=0",
                                       cwd=self.dir))
        self.assertIn("json-r32  DONE", process.stdout)
        self.assertTrue((self.dir / "quickstart/run/adapters/add-r16/adapter_config.json").exists())
        self.assertEqual(self.files, {path.relative_to(self.prefix) for path in self.prefix.rglob("*")
                                      if path.is_file()})

    def selftest(self, code, **environment):
        process = self.succeed(command(self.prefix / "bin/loratrain", "selftest", TMPDIR=str(self.dir),
                                       OMPI_MCA_orte_tmpdir_base="/tmp", **environment), code)
        return process.stdout + process.stderr

    def test_selftest(self):
        text = self.selftest(0)
        printed = re.search(r"^passed: all of (\d+) checks", text, re.M)
        self.assertEqual(len(re.findall(r"^  ok  ", text, re.M)), int(printed[1]), text)
        self.assertEqual(list(self.dir.iterdir()), [])
        for check in ("imports", "attention", "losses of all steps", "exported weights", "the same to the bit"):
            self.assertIn(check, text)

    @unittest.skipUnless(WRONG_PRODUCTS, "LORATRAIN_WRONG_PRODUCTS names no library (ctest sets it)")
    def test_selftest_finds_a_library_that_errs(self):
        text = self.selftest(1, LD_PRELOAD=WRONG_PRODUCTS)
        for check in ("matrix product", "attention", "losses of all steps", "exported weights"):
            self.assertRegex(text, rf"(?m)^  FAILED  {check}")
        self.assertRegex(text, r"(?m)^  ok      RMSNorm")
        (folder,) = self.dir.iterdir()
        self.assertIn(str(folder), text)

    def test_selftest_says_what_it_needs(self):
        self.assertIn("let TMPDIR name a folder", command(BIN, "selftest", TMPDIR="/proc").stderr)
        process = self.succeed(run(["selftest"], 2), 2)
        self.assertIn("without a launcher", process.stderr)

    def test_scripts(self):
        data = self.share / "inputs/demo_tasks/add/train.jsonl"
        self.succeed(command(self.share / "scripts/prepare_data.py", data, "-o", self.dir / "add.jsonl",
                             "--tokenizer", "bytes"))
        self.assertGreater((self.dir / "add.jsonl").stat().st_size, 0)
        for path in (self.share / "scripts").glob("*.sh"):
            self.succeed(command("bash", "-n", path))


class SourcePackage(JobTest):
    @needs("cpack")
    def test_has_what_git_has(self):
        self.succeed(command("cpack", "--config", BUILD / "CPackSourceConfig.cmake", "-B", self.dir))
        (package,) = self.dir.glob("*.tar.gz")
        with tarfile.open(package) as archive:
            names = {pathlib.PurePath(*pathlib.PurePath(member.name).parts[1:]).as_posix()
                     for member in archive if member.isfile()}
        tracked = command("git", "-C", SOURCE, "ls-files").stdout.split("\n")[:-1]
        if tracked:
            self.assertEqual(set(tracked) - names, set())
        self.assertIn("source_commit", names)
        self.assertEqual([name for name in names if name.startswith(("build", "runs/", ".git/"))], [])

    def test_configuring_fetches_nothing(self):
        for path in [SOURCE / "CMakeLists.txt", *(SOURCE / "scripts/cmake").iterdir(),
                     *(SOURCE / "tests").glob("*.cmake")]:
            self.assertNotRegex(path.read_text(), r"(?i)FetchContent|ExternalProject|file\s*\(\s*DOWNLOAD|"
                                r"https?://|git\s+clone", path)


if __name__ == "__main__":
    unittest.main()
