"""Tests of scripts/paper_tables.py: its data, what it reads of dry runs, and its table."""

import pathlib
import stat
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import paper_tables
from paper_tables import DryRuns, Row, Run

PRINTED = """\
speed       5405 tokens/s
idle        3.0% of all ranks' time; by stage 0.7%, 5.6%
  policy              tokens/s    whole job   idle     balanced is
  mlora                   5434   6 min 18 s   4.2%  0.99 x as fast
  mlora as published      4646   7 min 22 s  18.1%  1.16 x as fast
  ranks  deployment        tokens/s  hours  rank-hours  efficiency
  2      [{tp: 1, pp: 2}]      6224   0.47        0.94      100.0%
  8      [{tp: 1, pp: 8}]     22141   0.13        1.05       88.9%
  ways to train, by built-in costs  deployment                          rank-seconds a round   share
  Task-Fused                        [{tp: 4, pp: 4}]                                   68.08  100.0%
  LobRA-Sequential                  one of its own for each adapter                    60.69   89.1%
  length-based                      [{tp: 2, pp: 1}, {tp: 1, pp: 1, count: 10}]        94.52  138.8%
  balanced                          [{tp: 2, pp: 1}, {tp: 1, pp: 1, count: 10}]        56.61   83.1%
  Task-Sequential                   -                                           does not fit       -
  way                                      with                           time  x as fast as Min-GPU
  best plan, refilled                      8 x {tp: 1, pp: 1}, AR <= 1.00  9 min 14 s                  1.62
  eager PEFT, each trial alone (estimate)  8 at a time                     24 min 1 s                  0.51
"""


class PaperTables(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)

    def runs(self, printed=PRINTED, code=0, error=""):
        """Dry runs of a program that prints this, and counts its calls."""
        program = self.dir / "program"
        (self.dir / "printed").write_text(printed)
        (self.dir / "error").write_text(error)
        program.write_text(f"""#!/bin/sh
            echo "$@" >> {self.dir}/calls
            cat {self.dir}/printed
            cat {self.dir}/error >&2
            exit {code}
            """)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return DryRuns(program)

    def test_data_are_the_same_every_time_and_like_the_papers(self):
        paper_tables.write_data(self.dir)
        first = {path.name: path.read_bytes() for path in self.dir.iterdir()}
        paper_tables.write_data(self.dir)
        self.assertEqual({path.name: path.read_bytes() for path in self.dir.iterdir()}, first)
        self.assertEqual(first["mixed.jsonl"].count(b"\n"), first["xsum.jsonl"].count(b"\n"))
        for name, mean in (("xsum", 500), ("cnndm", 900), ("wikisum", 1700), ("gsm8k", 230)):
            lengths = paper_tables.lengths_of(name)
            self.assertAlmostEqual(sum(lengths) / len(lengths) / mean, 1, delta=0.06)
            self.assertEqual(first[f"{name}.jsonl"].split(b"\n")[0].count(b"1"), lengths[0])
        self.assertEqual(set(paper_tables.lengths_of("gsm8k_512")), {512})

    def test_every_job_file_is_in_the_tables_and_the_other_way_round(self):
        source = (ROOT / "scripts/paper_tables.py").read_text()
        for path in paper_tables.JOBS.glob("*.yaml"):
            self.assertIn(path.stem.partition("_")[0], source)
            for data in path.read_text().split("runs/papers/")[2:]:  # behind run.dir
                self.assertIn(data.partition(".jsonl")[0], [*paper_tables.DATASETS, "mixed"])
        runs = self.runs()
        for _, rows in paper_tables.PAPERS.values():
            for row in rows():
                if row.ours is not None:
                    paper_tables.cells_of(row, runs)
        for run in runs.known:
            self.assertTrue((paper_tables.JOBS / f"{run.job}.yaml").exists(), run.job)
        self.assertEqual({run.job for run in runs.known},
                         {path.stem for path in paper_tables.JOBS.glob("*.yaml")})

    def test_reads_what_dry_runs_print_once(self):
        runs = self.runs()
        run = Run("mlora", "a6000", "4", ("a.b=c",), ("--compare",))
        self.assertEqual(runs.speed(run), 5405)
        self.assertEqual(runs.idle(run), 3)
        self.assertEqual((runs.speed_on(run, 2), runs.speed_on(run, 8)), (6224, 22141))
        self.assertEqual(runs.rank_seconds(run, "Task-Fused"), 68.08)
        self.assertEqual(runs.rank_seconds(run, "LobRA-Sequential"), 60.69)
        self.assertEqual(runs.rank_seconds(run, "balanced"), 56.61)
        with self.assertRaisesRegex(paper_tables.DoesNotFit, "Task-Sequential does not fit"):
            runs.rank_seconds(run, "Task-Sequential")
        self.assertEqual(runs.gain(run, "best plan, refilled"), 1.62)
        self.assertEqual(runs.gain(run, "eager PEFT, each trial alone"), 0.51)
        self.assertEqual((self.dir / "calls").read_text(),
                         f"{paper_tables.JOBS}/mlora.yaml --dry-run --verbose --device a6000 --ranks 4 --compare "
                         "--set a.b=c\n")
        with self.assertRaisesRegex(SystemExit, "no nothing in what"):
            runs.number(run, "nothing")

    def test_table(self):
        run = Run("mlora", "a6000", "4")
        rows = [Row("won", 5000, lambda runs: runs.speed(run), "of no interest"),
                Row("lost", 10810, lambda runs: runs.speed(run), "slow"),
                Row("less is won", 6, lambda runs: runs.idle(run), "", lower_is_better=True),
                Row("less is lost", 2, lambda runs: runs.idle(run), "long", lower_is_better=True),
                Row("in a chart", None, lambda runs: runs.idle(run)),
                Row("not simulated", 1.5, None, "nobody can")]
        text = paper_tables.table("A paper", rows, self.runs())
        self.assertEqual(text.splitlines()[0], "## A paper")
        self.assertEqual(text.splitlines()[3:], [
            "| won | 5,000 | 5,405 | 1.08 |  |",
            "| lost | 10,810 | 5,405 | 0.50 | slow |",
            "| less is won | 6.00 | 3.00 | 0.50 |  |",
            "| less is lost | 2.00 | 3.00 | 1.50 | long |",
            "| in a chart | not in the text | 3.00 | - |  |",
            "| not simulated | 1.50 | - | - | nobody can |"])

    def test_what_does_not_fit_is_a_row_and_a_crash_ends_it(self):
        row = Row("large", 2, lambda runs: runs.speed(Run("mlora", "a6000", "1")))
        refusing = self.runs("", 2, "12:00 error: rank 0 needs more\n  give it more\n")
        self.assertEqual(paper_tables.cells_of(row, refusing),
                         ["large", "2.00", "does not fit", "-", "refused: rank 0 needs more"])
        with self.assertRaisesRegex(SystemExit, "exit code 1: no disk"):
            paper_tables.cells_of(row, self.runs("", 1, "no disk"))


if __name__ == "__main__":
    unittest.main()
