"""Stages of two lanes on GPUs, which sum over NCCL, and several replicas: golden trajectories of PEFT
in float64, two runs equal to the bit, dropout that does not depend on lanes. A rank per GPU, or with
LORATRAIN_SHARE_GPU=1 four on the same. Skipped with fewer than two."""

import json
import os
import re
import sys
import unittest
import unittest.mock

from harness import GOLDEN_FORMS, JobTest, run, run_as_hosts
from test_gpu import ADAPTERS, GPUS, LIMITS, RANKS, WIDER


class Deployed(JobTest):
    """Jobs whose ranks are deployed as given: (tp, pp, count) of each kind of replica."""

    def train(self, job, precision, *deployment):
        job["run"]["backend"] = "cuda"
        job["model"]["precision"] = precision
        job["parallel"]["deployment"] = [{"tp": tp, "pp": pp, "count": count}
                                         for tp, pp, count in deployment]
        ranks = sum(tp * pp * count for tp, pp, count in deployment)
        return self.succeed(run([self.write_job(job)], ranks))

    def check_golden_on(self, family, precision, *deployment, tokens=4096):
        text = " + ".join(f"{tp} x {pp} x {count}" for tp, pp, count in deployment)
        with self.subTest(family=family, precision=precision, deployment=text, tokens=tokens):
            run_dir = f"{family}-{precision}-{text}-{tokens}".replace(" ", "")
            self.train(self.golden_job(family, run_dir, tokens), precision, *deployment)
            limits = {**LIMITS[precision], **WIDER.get((family, precision), {})}
            worst = self.check_golden(family, run_dir, limits)
            print(f"{family} {precision} on {text} rank(s): losses {worst['loss']:.1e}, "
                  f"grad norms {worst['grad_norm']:.1e}, weights {worst['weights']:.1e}",
                  file=sys.stderr)


def possible(deployments):
    return [d for d in deployments if sum(tp * pp * count for tp, pp, count in d) <= RANKS]


@unittest.skipIf(GPUS < 2, "needs two GPUs")
class GpusOfTwoHosts(Deployed):
    """Ranks that take one machine for two, and NCCL over sockets between them."""

    def train_on(self, run_dir, deployment, hosts):
        job = self.golden_job("llama", run_dir, 64)
        job["run"]["backend"] = "cuda"
        job["model"]["precision"] = "fp32"
        job["parallel"]["deployment"] = deployment
        log = self.succeed(run_as_hosts([self.write_job(job)], hosts)).stdout
        kept = json.loads((self.dir / run_dir / "costs.json").read_text())["costs"]
        return log, next(of for key, of in kept.items() if not key.startswith("refined"))

    def test_golden_and_links(self):
        """Between neighbours through what joins them, between replicas through what is made for it."""
        sockets = ["NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", "NCCL_IB_DISABLE=1"]
        apart = [(f"node{i}", 1, f"CUDA_VISIBLE_DEVICES={i}", *sockets) for i in range(2)]
        for deployment in ([{"pp": 2}], [{"count": 2}]):
            with self.subTest(deployment=deployment):
                name = "-".join(deployment[0])
                log, costs = self.train_on(f"{name}-here", deployment, [("node0", 2)])
                self.assertNotIn("links between hosts", log)
                self.assertNotIn("between_hosts", costs)
                log, costs = self.train_on(f"{name}-apart", deployment, apart)
                printed = re.search(r"links between hosts: node0 - node1 .*", log)
                self.assertTrue(printed, log)
                print(deployment, printed[0], file=sys.stderr)
                fixed, per_byte = costs["between_hosts"]
                self.assertTrue(0.0 < fixed < 0.1 and 0.0 < per_byte < 1e-6, costs)
                self.assertEqual(costs["ranks_per_host"], 1)
                for where in ("here", "apart"):
                    self.check_golden("llama", f"{name}-{where}", LIMITS["fp32"])


@unittest.skipIf(RANKS < 2, "needs two ranks")
class GpuReplicas(Deployed):
    """Replicas that train together, alike and not; their gradients are summed over NCCL."""

    DEPLOYMENTS = possible([[(1, 1, 2)], [(1, 2, 1), (1, 1, 1)], [(1, 1, 4)],
                            [(2, 1, 1), (1, 1, 2)], [(1, 2, 1), (1, 1, 2)]])

    def test_golden(self):
        for deployment in self.DEPLOYMENTS:
            for precision in LIMITS:
                self.check_golden_on("llama", precision, *deployment)

    def test_golden_of_many_microbatches(self):
        """Several a batch, of which replicas have unlike numbers."""
        for deployment in self.DEPLOYMENTS[-2:]:
            self.check_golden_on("llama", "fp32", *deployment, tokens=64)

    def test_two_runs_are_equal_to_the_bit(self):
        """The first one's ranks choose algorithms, of which all of them take the same, as those of
        the second do."""
        for deployment in self.DEPLOYMENTS[-2:]:
            name = str(len(deployment))
            fresh = {"LORATRAIN_ALGO_CACHE": str(self.dir / f"algorithms-{name}")}
            for run_dir in ("first", "second"):
                job = self.golden_job("llama", f"{run_dir}-{name}", 64, lora_dropout=0.1)
                with unittest.mock.patch.dict(os.environ, fresh):
                    self.train(job, "bf16", *deployment)
            self.assert_same_bits(f"second-{name}", f"first-{name}", ADAPTERS)


@unittest.skipIf(RANKS < 2, "needs two ranks")
class GpuLanes(Deployed):
    DEPLOYMENTS = possible([[(2, 1, 1)], [(2, 2, 1)]])
    FOUR = possible([[(4, 1, 1)]])  # which the heads of qwen2 and olmo2 cannot be shared by
    FAMILIES = {**dict.fromkeys(("qwen2", "olmo2"), DEPLOYMENTS),
                **dict.fromkeys(("llama", "qwen3", "gemma2", "gpt_oss"), DEPLOYMENTS + FOUR)}

    def check_precision(self, precision):
        for family, deployments in self.FAMILIES.items():
            for deployment in deployments:
                self.check_golden_on(family, precision, *deployment)

    def test_fp32_golden(self):
        self.check_precision("fp32")

    def test_bf16_golden(self):
        self.check_precision("bf16")

    def test_whole_experts(self):
        """In bf16 of qwen3_moe alone: routers of the others turn on roundings."""
        for family in ("qwen3_moe", "mixtral", "glm4_moe", "gpt_oss"):
            names = ("a_r4_all", *GOLDEN_FORMS.get(family, ()))
            for precision in LIMITS if family == "qwen3_moe" else ("fp32",):
                for deployment in self.DEPLOYMENTS + self.FOUR:
                    tp, pp, _ = deployment[0]
                    with self.subTest(family=family, precision=precision, tp=tp, pp=pp):
                        run_dir = f"{family}-{precision}-{tp}-{pp}"
                        job = self.golden_job(family, run_dir, 300, names)
                        job["parallel"]["experts"] = "whole"
                        self.train(job, precision, *deployment)
                        self.check_golden(family, run_dir, LIMITS[precision], names)

    def test_two_runs_are_equal_to_the_bit(self):
        for precision in LIMITS:
            for run_dir in ("first", "second"):
                job = self.golden_job("llama", f"{precision}-{run_dir}", 64, lora_dropout=0.1)
                self.train(job, precision, *self.DEPLOYMENTS[-1])
            self.assert_same_bits(f"{precision}-second", f"{precision}-first", ADAPTERS)

    def test_dropout_does_not_depend_on_lanes(self):
        """With microbatches of several segments, and activations made again."""
        adapters = {"one": {"r": 4, "lora_dropout": 0.3},
                    "two": {"r": 7, "lora_dropout": 0.1, "target_modules": ["o_proj", "down_proj"]},
                    "three": {"r": 16}}
        for run_dir, tp in (("whole", 1), ("lanes", 2)):
            job = self.tiny_job(run_dir, adapters, max_steps=6)
            job["parallel"]["recompute"] = "layer"
            job["schedule"] = {"costs": "built-in"}
            self.train(job, "fp32", (tp, 1, 1))
        worst = self.compare_losses("lanes", "whole", adapters, 1e-5)
        print(f"dropout on 2 lanes: losses {worst:.1e} from those of one rank", file=sys.stderr)


if __name__ == "__main__":
    unittest.main()
