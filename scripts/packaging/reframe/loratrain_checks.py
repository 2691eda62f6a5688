"""ReFrame (4 or later) checks of an installed loratrain: that it computes what it should, and its speed.

  reframe -c scripts/packaging/reframe/loratrain_checks.py -r --performance-report
  reframe ... -S LoratrainBench.backend=cuda -S LoratrainBench.model=llama-3.1-8b -S LoratrainBench.ranks=4

The site's configuration says how jobs start; `-S valid_prog_environs=...` and `-M`/`-m loratrain` load the
module. What a machine gave goes into `reference` of a file of the site's own that derives from these.
"""
import reframe as rfm
import reframe.utility.sanity as sn

SMALL = ["--layers", "4", "--hidden", "512", "--intermediate", "1376", "--heads", "8", "--vocab", "8000"]


@rfm.simple_test
class LoratrainSelftest(rfm.RunOnlyRegressionTest):
    descr = "loratrain selftest"
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "loratrain"
    executable_opts = ["selftest"]
    time_limit = "5m"
    local = True  # without a launcher

    @sanity_function
    def all_checks_pass(self):
        return sn.all([sn.assert_found(r"^passed: all of \d+ checks", self.stdout),
                       sn.assert_not_found(r"FAILED", self.stdout)])


@rfm.simple_test
class LoratrainBench(rfm.RunOnlyRegressionTest):
    descr = "tokens per second of four adapters on random weights"
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    backend = variable(str, value="cpu")
    model = variable(str, value="")  # a preset of `loratrain bench --model`; "" = a small one
    ranks = variable(int, value=1)
    steps = variable(int, value=3)
    executable = "loratrain"
    time_limit = "20m"

    @run_before("run")
    def set_case(self):
        self.num_tasks = self.ranks
        self.executable_opts = ["bench", "--json", "--quick", "--backend", self.backend,
                                "--steps", str(self.steps)]
        self.executable_opts += ["--model", self.model] if self.model else SMALL

    @sanity_function
    def gave_one_result(self):
        return sn.assert_eq(sn.count(sn.findall(r'"tokens_per_second":', self.stdout)), 1)

    @performance_function("tokens/s")
    def tokens_per_second(self):
        return sn.extractsingle(r'"tokens_per_second":\s*([0-9.eE+-]+)', self.stdout, 1, float)
