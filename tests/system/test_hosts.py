"""Two hosts with a network between them: Linux namespaces of this machine, with names, addresses and
a cable of their own, and the daemons of mpirun in both."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from harness import (BIN, SOURCE, STOPPED, JobTest, direct, mpirun_command, run_as_hosts,
                     slurm_environment)

NEEDED = ("ip", "nsenter", "unshare")
NETWORK = "10.231.7"
NAMES = ("node1", "node2")
LOCAL_SLURM = SOURCE / "scripts/local_slurm.sh"
SLURM = ("munged", "slurmctld", "slurmd", "sbatch")
SOON = 60
SILENT = (r"error: rank [23] on host node2: no heartbeat for \d+ s, last seen in .*; all ranks on "
          "node2 are silent: that host, or the network between it and node1")
RATE = r"([\d.]+ [GM]B/s, )?\d+ us"
ADAPTERS = {"one": {"lora_dropout": 0.1}, "two": {"r": 2}}


def can_make_hosts():
    return (os.geteuid() == 0 and all(map(shutil.which, NEEDED)) and
            subprocess.run(["unshare", "--net", "--uts", "true"], check=False,
                           capture_output=True).returncode == 0)


def inside(pid, *command):
    return ["nsenter", "--target", str(pid), "--net", "--uts", *map(str, command)]


def processes_of(pid):
    """What runs in the namespaces of a process, besides it."""
    mine = os.readlink(f"/proc/{pid}/ns/net")
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if int(entry) != pid and os.readlink(f"/proc/{entry}/ns/net") == mine:
                found.append(int(entry))
        except OSError:
            continue
    return found


@unittest.skipUnless(can_make_hosts(), f"needs root, namespaces and {', '.join(NEEDED)}")
class HostsTest(JobTest):

    def setUp(self):
        super().setUp()
        self.hosts = [self.new_host() for _ in NAMES]
        ends = [f"lt{pid}" for pid in self.hosts]
        self.call("ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for i, (pid, end, name) in enumerate(zip(self.hosts, ends, NAMES, strict=True), 1):
            self.call("ip", "link", "set", end, "netns", pid, "name", "cable")
            self.call(*inside(pid, "hostname", name))
            self.call(*inside(pid, "ip", "address", "add", f"{NETWORK}.{i}/24", "dev", "cable"))
            for device in ("lo", "cable"):
                self.call(*inside(pid, "ip", "link", "set", device, "up"))

    def new_host(self):
        """The process that holds its namespaces; whatever runs in them ends with it."""
        process = subprocess.Popen(["unshare", "--net", "--uts", "sleep", "infinity"])
        own = os.readlink("/proc/self/ns/net")
        end = time.monotonic() + SOON
        while os.readlink(f"/proc/{process.pid}/ns/net") == own:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(lambda: [os.kill(pid, signal.SIGKILL) for pid in processes_of(process.pid)])
        return process.pid

    def call(self, *command):
        self.succeed(subprocess.run([*map(str, command)], text=True, capture_output=True,
                                    check=False))

    def script(self, name, text):
        path = self.dir / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def job(self, run_dir, steps, timeout=30):
        job = self.tiny_job(run_dir, {name: {**keys, "max_steps": steps}
                                      for name, keys in ADAPTERS.items()})
        job["defaults"]["lr_scheduler_type"] = "constant"
        job["run"]["peer_timeout"] = timeout
        job["parallel"]["deployment"] = [{"tp": 2, "count": 2}]
        job["schedule"] = {"costs": "built-in"}
        job["checkpoint"] = {"every_steps": 10, "every_minutes": 0}
        return self.write_job(job, f"{run_dir}.yaml")

    def set_cable(self, state):
        """The first end. Once it is up again the other begins anew: what it has asked for its
        neighbour's address in vain would be answered with "no route" for a while."""
        self.call(*inside(self.hosts[0], "ip", "link", "set", "cable", state))
        for again in ("down", "up") if state == "up" else ():
            self.call(*inside(self.hosts[1], "ip", "link", "set", "cable", again))


class TwoHosts(HostsTest):

    def setUp(self):
        super().setUp()
        self.agent = self.script("agent", "shift\nexec " +
                                 " ".join(inside(self.hosts[1], 'sh -c "$*"')))

    def start(self, *arguments):
        """Two ranks on each host, with what scripts/mpi_environment.sh sets."""
        _, environment = mpirun_command([])
        for name, value in (("time", 4), ("intvl", 2), ("probes", 3)):
            environment[f"OMPI_MCA_oob_tcp_keepalive_{name}"] = str(value)
        command = ["mpirun", "--mca", "plm_rsh_agent", self.agent, "--bind-to", "none",
                   "--host", ",".join(f"{name}:2" for name in NAMES), "-np", 4, BIN, *arguments]
        return subprocess.Popen(inside(self.hosts[0], *command), text=True, env=environment,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def cut_the_cable(self, run_dir, steps, timeout):
        """While it trains, some time after a checkpoint; what the job said, which ends soon."""
        process = self.start(self.job(run_dir, steps, timeout))
        self.addCleanup(process.kill)
        self.wait_for_file(f"{run_dir}/ckpt/LATEST")
        self.set_cable("down")
        try:
            output, _ = process.communicate(timeout=SOON)
        except subprocess.TimeoutExpired:
            process.kill()
            self.fail(f"the job still runs after {SOON} s:\n{process.stdout.read()}")
        self.assertNotEqual(process.returncode, 0, output)
        self.set_cable("up")
        return output

    def check_continues(self, run_dir, whole, steps):
        """From its checkpoint to the bits of a run that nothing happened to."""
        stop = int((self.dir / run_dir / "ckpt/LATEST").read_text()) + 20
        for name in (run_dir, whole):
            self.finish(self.start(self.job(name, steps), "--stop-after", stop), STOPPED)
        for name in ADAPTERS:
            file = f"ckpt/{stop}/{name}.safetensors"
            self.assertEqual((self.dir / run_dir / file).read_bytes(),
                             (self.dir / whole / file).read_bytes(), name)

    def test_replicas_on_both(self):
        output = self.finish(self.start(self.job("run", 20)))
        hosts = dict(re.findall(r"(?m)^ *rank (\d): (\w+)$", output))
        self.assertEqual(hosts, {"0": "node1", "1": "node1", "2": "node2", "3": "node2"}, output)
        self.assertRegex(output, f"links between hosts: node1 - node2 {RATE}\n")
        self.succeed(self.run_here("here", 20))
        self.assert_same_weights("run", "here", ADAPTERS)

    def test_pipeline_on_both(self):
        """What messages take there is measured, and kept for predictions."""
        path = self.job("run", 5)
        job = json.loads(path.read_text())
        del job["parallel"]
        job["schedule"]["costs"] = "auto"
        self.write_job(job, "run.yaml")
        output = self.finish(self.start(path))
        self.assertRegex(output, f"links between hosts: node1 - node2 {RATE}\n")
        kept = json.loads((self.dir / "run/costs.json").read_text())["costs"]
        costs = next(of for key, of in kept.items() if not key.startswith("refined"))
        self.assertEqual((len(costs["between_hosts"]), costs["ranks_per_host"]), (2, 2))
        preview = self.succeed(direct(path, "--dry-run", "--verbose", "--ranks", 4, "--ranks-per-node", 2))
        self.assertRegex(preview.stdout, f"(?m)^messages +inside a host {RATE}; "
                                         f"between 2 hosts {RATE}, measured$")

    def run_here(self, run_dir, steps):
        command, environment = mpirun_command([self.job(run_dir, steps)], 4)
        return subprocess.run(command, text=True, capture_output=True, env=environment, check=False)

    def test_cable_cut(self):
        """mpirun says so, before a rank does."""
        output = self.cut_the_cable("run", 100000, 30)
        self.assertRegex(output, r"lost communication[\s\S]*node1\n[\s\S]*node2")
        self.check_continues("run", "whole", 100000)

    def test_cable_cut_with_less_patience(self):
        output = self.cut_the_cable("run", 100000, 2)
        self.assertRegex(output, SILENT)


class OneMachineForTwoHosts(JobTest):
    """Ranks that take it for two by LORATRAIN_HOST."""

    def run_on(self, hosts, job):
        return self.succeed(run_as_hosts([self.write_job(job)], hosts)).stdout

    def job(self, run_dir, deployment, costs="built-in"):
        job = self.tiny_job(run_dir, {name: {**keys, "max_steps": 6}
                                      for name, keys in ADAPTERS.items()})
        job["parallel"]["deployment"] = deployment
        job["schedule"] = {"costs": costs}
        return job

    def test_replicas_make_way_for_each_other(self):
        """The second one is on the root's host, so that the first one is on one; bits stay."""
        unlike = [{"pp": 2}, {}]
        output = self.run_on([("node1", 1), ("node2", 2)], self.job("apart", unlike))
        self.assertRegex(output, r"(?m)^ *replica 0 +tp 1, pp 2 on ranks 1-2,")
        self.assertRegex(output, r"(?m)^ *replica 1 +tp 1, pp 1 on rank 0,")
        self.assertRegex(output, f"links between hosts: node1 - node2 {RATE}\n")
        output = self.run_on([("node1", 3)], self.job("together", unlike))
        self.assertRegex(output, r"(?m)^ *replica 0 +tp 1, pp 2 on ranks 0-1,")
        self.assertNotIn("links between hosts", output)
        self.assert_same_bits("apart", "together", ADAPTERS)

    def test_dry_run_places_them_too(self):
        path = self.write_job(self.job("run", [{}, {"pp": 2}, {}]))
        for of_host, second in ((4, "1-2"), (2, "2-3")):
            preview = self.succeed(direct(path, "--dry-run", "--verbose", "--ranks", 4,
                                          "--ranks-per-node", of_host)).stdout
            self.assertRegex(preview, rf"(?m)^ *replica 1 +tp 1, pp 2 on ranks {second},")

    def test_costs_inside_a_host_are_of_neighbours_there(self):
        """Which are not the first ranks."""
        self.run_on([("node1", 1), ("node2", 2)], self.job("run", [{"pp": 2}, {}], "auto"))
        kept = json.loads((self.dir / "run/costs.json").read_text())["costs"]
        costs = next(of for key, of in kept.items() if not key.startswith("refined"))
        self.assertNotEqual(costs["message"], [5e-6, 2e-10])  # which are built in
        for link in ("message", "between_hosts"):
            self.assertGreater(costs[link][0], 0.0)
            self.assertLess(costs[link][0], 1.0)


@unittest.skipUnless(all(map(shutil.which, SLURM)), f"needs {', '.join(SLURM)}")
class SlurmOnTwoHosts(HostsTest):

    def setUp(self):
        super().setUp()
        folder = pathlib.Path(tempfile.mkdtemp(prefix="loratrain-slurm-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        self.slurm = folder
        cases = "\n".join(f"{name}) exec {' '.join(inside(pid))} \"$@\" ;;"
                          for name, pid in zip(NAMES, self.hosts, strict=True))
        on = self.script("on", f"node=$1; shift\ncase $node in\n{cases}\nesac")
        self.addCleanup(self.call, *inside(self.hosts[0], LOCAL_SLURM, "stop", folder))
        self.call(LOCAL_SLURM, "start", folder, len(NAMES), on)

    def command(self, *words):
        environment = slurm_environment(self.slurm)
        process = subprocess.run(inside(self.hosts[0], *words), env=environment, text=True,
                                 capture_output=True, timeout=SOON, check=False, cwd=self.dir)
        self.assertEqual(process.returncode, 0, process.stderr)
        return process.stdout.strip()

    def log(self, job):
        return (self.dir / f"loratrain-{job}.log").read_text()

    def test_cable_cut(self):
        """A rank says so, and the script on the first node ends with it, whatever srun waits for."""
        job = self.command("sbatch", "--parsable", "--nodes=2", "--ntasks-per-node=2",
                           "--cpus-per-task=1", SOURCE / "slurm/cpu.sbatch",
                           self.job("run", 100000, 5))
        self.wait_for_file("run/ckpt/LATEST")
        self.addCleanup(self.set_cable, "up")
        self.set_cable("down")
        end = time.monotonic() + 2 * SOON
        while "JobState=RUNNING" in self.command("scontrol", "show", "job", "-o", job):
            self.assertLess(time.monotonic(), end, self.log(job))
            time.sleep(0.2)
        self.set_cable("up")
        self.assertRegex(self.log(job), SILENT)
        self.assertIn("the launcher waits for a node that is lost, and is ended", self.log(job))
        self.assertNotIn("Timed out waiting for job step", self.log(job))
        facts = self.command("scontrol", "show", "job", "-o", job)
        self.assertRegex(facts, r"JobState=(COMPLETING|FAILED) .* ExitCode=1:0 ")


if __name__ == "__main__":
    unittest.main()
