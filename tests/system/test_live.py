"""The live table on a terminal, in a run and in `status --follow`; none anywhere else."""

import fcntl
import json
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import termios
import threading
import time
import unittest

from harness import (BIN, ENDLESS, STOPPED, JobTest, direct, mpirun_command, run, start,
                     write_samples)

PROGRESS = re.compile(r"\d\d:\d\d:\d\d round \d+/\d+  loss")
TAG = re.compile(r"\[\d+,\d+\]<std(?:out|err)>:")  # mpirun's, also inside a line: one a chunk


class Screen:
    """What a terminal of this size shows of what is written to it, for the codes that loratrain
    uses; any other is an error. Lines that scroll off are kept."""

    CODE = re.compile(rb"\x1b\[(\d*)([A-Za-z])")

    def __init__(self, rows, columns):
        self.rows, self.columns = rows, columns
        self.lines = [[]]
        self.row = self.column = 0
        self.moves = 0

    def top(self):
        return max(0, len(self.lines) - self.rows)

    def down(self):
        self.row += 1
        if self.row == len(self.lines):
            self.lines.append([])

    def code(self, number, letter):
        if letter == b"A":
            self.moves += 1
            self.row = max(self.top(), self.row - int(number or 1))
        elif letter == b"J" and not number:
            self.lines[self.row] = self.lines[self.row][:self.column]
            blank = len(self.lines) - self.row - 1
            self.lines[self.row + 1:] = [[] for _ in range(blank)]
        else:
            raise AssertionError(f"unknown code {number}{letter}")

    def put(self, character):
        if self.column == self.columns:
            self.column = 0
            self.down()
        line = self.lines[self.row]
        line.extend(" " * (self.column + 1 - len(line)))
        line[self.column] = character
        self.column += 1

    def write(self, data):
        position = 0
        while position < len(data):
            byte = data[position:position + 1]
            found = self.CODE.match(data, position)
            position = found.end() if found else position + 1
            if found:
                self.code(found[1], found[2])
            elif byte == b"\r":
                self.column = 0
            elif byte == b"\n":
                self.down()
            else:
                assert byte >= b" ", byte
                self.put(byte.decode())

    def text(self):
        return ["".join(line).rstrip() for line in self.lines]


class Terminal:
    """A program under a pseudo-terminal of its own session, read by a thread."""

    def __init__(self, command, rows=24, columns=250, **environment):
        self.rows, self.columns = rows, columns
        self.data = b""
        size = struct.pack("HHHH", rows, columns, 0, 0)
        variables = {**mpirun_command([])[1], "TERM": "xterm", **environment}
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, size)
            os.execvpe(command[0], command, variables)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        try:
            while part := os.read(self.master, 65536):
                self.data += part
        except OSError:  # the other end is closed
            pass

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait_for(self, what, timeout=60):
        deadline = time.monotonic() + timeout
        while not what(self.data):
            assert time.monotonic() < deadline and self.reader.is_alive(), self.data
            time.sleep(0.05)

    def end(self):
        """Exit code; the data are complete then."""
        _, status = os.waitpid(self.pid, 0)
        self.reader.join()
        os.close(self.master)
        return os.waitstatus_to_exitcode(status)

    def screen(self):
        screen = Screen(self.rows, self.columns)
        screen.write(self.data)
        return screen


def drawings(data):
    return data.count(b"\x1b[J")


class LiveTest(JobTest):
    def job(self, steps, names=("one", "two"), **more):
        job = self.tiny_job("run", {name: {"max_steps": steps} for name in names})
        job["defaults"]["lr_scheduler_type"] = "constant"
        job["logging"] = {"every_steps": 1}
        job["checkpoint"] = {"every_steps": 0, "every_minutes": 0}
        job.update(more)
        return str(self.write_job(job))

    def log(self):
        return (self.dir / "run/loratrain.log").read_text()

    def assert_plain(self, data):
        self.assertNotIn("\x1b", data)
        self.assertNotIn("\r", data)

    def assert_log_is_above(self, lines):
        """The log is on the screen or above it, whole and in order, but for the progress lines."""
        self.assert_plain(self.log())
        wanted = [line.rstrip() for line in self.log().splitlines() if not PROGRESS.match(line)]
        rest = iter(lines)
        for line in wanted:
            self.assertIn(line, rest, "torn or missing")
        self.assertFalse([line for line in lines if PROGRESS.match(line)])

    def table(self, lines):
        """The last table: its lines from the pulse on."""
        second = max(i for i, line in enumerate(lines) if re.match(r"round \d+/\d+, tr", line))
        return lines[second - 1:]


class OnATerminal(LiveTest):
    def finished(self, command, **terminal):
        shown = Terminal(command, **terminal)
        self.assertEqual(shown.end(), 0, shown.data)
        return shown.screen()

    def check_run(self, command):
        screen = self.finished(command)
        self.assertGreater(screen.moves, 3)
        lines = screen.text()
        self.assert_log_is_above(lines)
        table = self.table(lines)
        self.assertIn("/run: done ", table[0])
        self.assertRegex(table[1], r"^round 400/400, trained for ")
        self.assertRegex(table[3], r"^  adapter  status +step  train loss   eval loss  exact match")
        self.assertRegex(table[4], r"^  one      DONE +400/400 +\d+\.\d{4} +\d+\.\d{4} +\d+\.\d%$")
        self.assertRegex(table[5], r"^  two      DONE +400/400 ")
        self.assertEqual(sum("/run: " in line and "process" in line for line in lines), 0,
                         "no other table is left")
        self.assertEqual(len(PROGRESS.findall(self.log())), 400)

    def evaluated(self):
        job = json.loads((self.dir / "job.yaml").read_text())
        for name in "ab":
            job["datasets"][name]["eval_path"] = write_samples(self.dir / f"e{name}.jsonl", 3, 9)
        job["eval"] = {"every_steps": 20}
        job["checkpoint"]["every_steps"] = 50
        return str(self.write_job(job))

    def test_alone(self):
        self.job(400)
        self.check_run([BIN, self.evaluated()])

    def test_under_mpirun(self):
        self.job(400)
        self.check_run(mpirun_command([self.evaluated()], 2)[0])

    def test_small_terminal(self):
        names = [f"adapter-{i}" for i in range(12)]
        screen = self.finished([BIN, self.job(60, names, schedule={"max_adapters": 3})],
                               rows=9, columns=30)
        self.assertGreater(screen.moves, 3)
        lines = screen.text()
        table = self.table(lines)
        self.assertEqual([line[:11] for line in table[3:7]],
                         ["  adapter  ", "  adapter-0", "  adapter-1", "  adapter-2"])
        self.assertEqual(table[7], "  ... 9 more: 9 DONE")
        self.assertTrue(all(len(line) <= 29 for line in table[:8]))

    def test_narrower_while_it_runs(self):
        shown = Terminal([BIN, self.job(ENDLESS)])
        shown.wait_for(lambda data: drawings(data) > 2)
        shown.resize(24, 40)
        at = len(shown.data)
        shown.wait_for(lambda data: drawings(data[at:]) > 3)
        (self.dir / "run/STOP").touch()
        self.assertEqual(shown.end(), STOPPED)
        screen = Screen(24, 40)
        screen.write(shown.data[shown.data.rindex(b"\x1b[J"):])
        table = self.table(screen.text())[:6]
        self.assertTrue(all(len(line) <= 39 for line in table), table)
        self.assertTrue(table[4].startswith("  one      INTERRUPTED "), table)

    def test_a_stop_leaves_the_last_table(self):
        shown = Terminal([BIN, self.job(ENDLESS)])
        shown.wait_for(lambda data: drawings(data) > 2)
        os.kill(shown.pid, signal.SIGTERM)
        self.assertEqual(shown.end(), STOPPED)
        lines = shown.screen().text()
        self.assert_log_is_above(lines)
        self.assertIn("/run: stopped ", self.table(lines)[0])

    def test_a_killed_run_leaves_the_cursor_below(self):
        shown = Terminal([BIN, self.job(ENDLESS)])
        shown.wait_for(lambda data: drawings(data) > 2)
        os.kill(shown.pid, signal.SIGKILL)
        self.assertEqual(shown.end(), -signal.SIGKILL)
        screen = shown.screen()
        table = self.table(screen.text())
        self.assertIn("/run: running (process", table[0])
        self.assertEqual((screen.row, screen.column), (len(screen.lines) - 1, 0))
        self.assertRegex(table[-2], r"^  two +RUNNING")

    def test_an_error_is_below_the_table(self):
        shown = Terminal([BIN, self.job(ENDLESS, checkpoint={"every_steps": 2000})])
        shown.wait_for(lambda data: drawings(data) > 2)
        (self.dir / "run/ckpt").write_text("in the way")
        self.assertEqual(shown.end(), 1)
        lines = shown.screen().text()
        table = self.table(lines)
        self.assertTrue(any(line.startswith("error: on host ") for line in table[6:]), table)
        self.assertRegex(table[4], r"^  one +RUNNING")


class NotOnATerminal(LiveTest):
    def test_pipes(self):
        path = self.job(100)
        for process in (direct(path), run([path, "--restart", "never"], 2)):
            self.succeed(process)
            self.assert_plain(process.stdout + process.stderr)
            self.assertEqual(len(PROGRESS.findall(process.stdout)), 100)

    def test_terminals_that_are_not_asked_to(self):
        """mpirun gives its ranks a terminal even when its own output goes through a pipe."""
        path = self.job(100)
        mpirun = mpirun_command([path, "--restart", "never"], 2)[0]
        tagged = mpirun[:1] + ["--tag-output"] + mpirun[1:]
        piped = ["sh", "-c", shlex.join(mpirun) + " | cat"]
        never = [BIN, path, "--restart", "never", "--set", "logging.live=never"]
        for command, kind in ((piped, "xterm"), (tagged, "xterm"), (never, "xterm"),
                              ([BIN, path, "--restart", "never"], "dumb")):
            shown = Terminal(command, TERM=kind)
            self.assertEqual(shown.end(), 0, shown.data)
            data = shown.data.replace(b"\r\n", b"\n").decode()  # of the terminal itself
            self.assert_plain(data)
            self.assertEqual(len(PROGRESS.findall(TAG.sub("", data))), 100, command)


class Follow(LiveTest):
    def running(self):
        path = self.job(ENDLESS)
        process = start([path], 2)
        self.addCleanup(process.wait)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        for line in process.stdout:
            if "round 20/" in line:
                break
        threading.Thread(target=process.stdout.read).start()
        return process

    def stop(self):
        (self.dir / "run/STOP").touch()

    def test_on_a_terminal(self):
        self.running()
        shown = Terminal([BIN, "status", "--follow", str(self.dir / "run")])
        shown.wait_for(lambda data: drawings(data) > 8)
        self.stop()
        self.assertEqual(shown.end(), 0)
        lines = shown.screen().text()
        self.assertEqual(self.table(lines), lines, "one table, from the top")
        self.assertIn("/run: stopped ", lines[0])
        self.assertRegex(lines[4], r"^  one +INTERRUPTED +\d+/1000000 ")
        self.assertEqual(lines[6:], [""])
        self.assertIn(b"/run: running, last heartbeat ", shown.data)

    def test_into_a_pipe(self):
        self.running()
        process = subprocess.Popen([BIN, "status", self.dir / "run", "--follow"], text=True,
                                   stdout=subprocess.PIPE, env=mpirun_command([])[1])
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        text = ""
        while text.count("/run: running") < 2:
            line = process.stdout.readline()
            self.assertTrue(line, text)
            text += line
        self.stop()
        text += process.stdout.read()
        self.assertEqual(process.wait(60), 0)
        self.assert_plain(text)
        blocks = re.split(r"^(?=/.*/run: )", text, flags=re.M)[1:]
        self.assertGreater(len(blocks), 2)
        self.assertTrue(all("/run: running" in block for block in blocks[:-1]))
        self.assertIn("/run: stopped ", blocks[-1])
        steps = [re.search(r"one +(?:RUNNING|INTERRUPTED) +(\d+)/", block)[1] for block in blocks]
        self.assertEqual(len(set(steps[:-1])), len(steps) - 1, steps)

    def test_of_an_ended_run_is_its_status(self):
        self.succeed(direct(self.job(2)))
        self.assertEqual(direct("status", self.dir / "run", "--follow").stdout,
                         direct("status", self.dir / "run").stdout)


if __name__ == "__main__":
    unittest.main()
