#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <numeric>
#include <string>
#include <vector>

#include "base/text.h"
#include "bench/result_origin.h"
#include "config/model_presets.h"
#include "plan/deploy/make_plan.h"
#include "plan/predict/predict.h"
#include "plan/sweep/compare_sweep.h"

// Sweeps by the planner's own model of time: 120 trials a task, ranks 8 to 128, four learning
// rates, two alphas, one epoch, no evaluation, on eight H200s. Writes the lines of results/*.jsonl
// (write_results.py): bench_sweep COMMIT DEVICE DATE

namespace loratrain {
namespace {

constexpr int gpus = 8;

struct Task {
    const char* name;
    std::int32_t samples;
    double tokens;  ///< mean of a sample
};

// Samples of the training sets; mean lengths with a prompt, by a Llama tokenizer.
constexpr Task cola{"cola", 8551, 45.0};
constexpr Task mrpc{"mrpc", 3668, 110.0};
constexpr Task wnli{"wnli", 635, 75.0};
constexpr Task gsm8k{"gsm8k", 7473, 230.0};
constexpr Task long_samples{"1024 tokens a sample", 7473, 1024.0};

/// Log-normal around the mean, the same every time; all tokens but a tenth are targets.
DatasetInfo data_of(const Task& task) {
    constexpr double sigma = 0.35;
    DatasetInfo info;
    for (std::int32_t i = 0; i < task.samples; ++i) {
        const double quantile = (static_cast<double>(i * 7919LL % task.samples) + 0.5) /
                                static_cast<double>(task.samples);
        const double normal = std::log(quantile / (1.0 - quantile)) / 1.702;
        const double drawn = task.tokens * std::exp(sigma * normal - sigma * sigma / 2.0);
        const bool equal = task.tokens >= 1024.0;
        const auto tokens =
            static_cast<std::int32_t>(equal ? task.tokens : std::clamp(drawn, 8.0, 1024.0));
        info.train.push_back({tokens, tokens - std::max(1, tokens / 10)});
    }
    return info;
}

struct Sweep {
    Job job;
    std::vector<DatasetInfo> datasets;
};

Sweep sweep_of(const std::vector<Task>& tasks, int learning_rates) {
    Sweep sweep;
    sweep.job.path = "bench";
    for (std::size_t t = 0; t < tasks.size(); ++t) {
        DatasetJob dataset;
        dataset.name = tasks[t].name;
        sweep.job.datasets.push_back(dataset);
        sweep.datasets.push_back(data_of(tasks[t]));
        for (const int r : {8, 16, 32, 64, 128}) {
            for (int rate = 0; rate < learning_rates; ++rate) {
                for (const int batch : {1, 2, 4}) {
                    for (const double alpha : {0.25, 1.0}) {
                        AdapterJob adapter;
                        adapter.name =
                            cat(dataset.name, "-r", r, "-lr", rate, "-b", batch, "-a", alpha);
                        adapter.dataset = DatasetId{static_cast<int>(t)};
                        adapter.r = r;
                        adapter.lora_alpha = alpha * r;
                        adapter.global_batch_size = batch;
                        sweep.job.adapters.push_back(adapter);
                    }
                }
            }
        }
    }
    return sweep;
}

Cluster h200s() {
    Cluster cluster;
    cluster.ranks = gpus;
    cluster.ranks_per_node = gpus;
    cluster.backend = BackendKind::cuda;
    cluster.device = "h200";
    cluster.bytes_per_rank = std::uint64_t{138} << 30;
    return cluster;
}

std::string times(double value) {
    return format_fixed(value, 2);
}

double processor_seconds() {
    return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

void row(const std::string& name, const std::string& model_name, const Sweep& sweep,
         const std::string& origin) {
    const ModelSpec model = *model_preset(model_name);
    const Cluster cluster = h200s();
    SweepRules rules;
    rules.evaluates = false;
    const double start = processor_seconds();
    const TrialClasses trials = trial_classes(sweep.job, model, sweep.datasets);
    const SweepTask task{sweep.job, model, sweep.datasets, cluster, trials, rules};
    SweepShapes shapes(task);
    const SweepPlan alone = deploy_sweep(task, shapes).plan;
    const double planned = processor_seconds() - start;
    const SweepComparison found = compare_sweep(task);
    const double compared = processor_seconds() - start - planned;
    const SweepPlan& plan = found.deployment.plan;
    std::fprintf(stderr, "%s: plan %.2f s compare %.2f s min %.0f plan %.0f\n", name.c_str(),
                 planned, compared, found.min_gpu->seconds, plan.seconds);
    const auto gain = [&](double seconds) { return times(found.gain(seconds)); };
    std::printf(
        "{\"section\": \"Sweeps by the planner's model of time, %s on 8 H200: times as fast as own "
        "Min-GPU\", \"case\": \"%s, %zu trials\", \"figures\": {\"own Min-GPU\": \"%s\", "
        "\"Max-GPU\": \"%s\", \"DTM + job planner\": \"%s\", \"one pipeline, refill\": \"%s\", "
        "\"plan\": \"%d x <TP %d, PP %d>\", \"plan's\": \"%s\", \"bound\": \"%s\", \"share of the "
        "bound\": \"%s\", \"where trials stay\": \"%s\", \"AR\": \"%s\", \"eager PEFT as Min-GPU / "
        "plan\": \"%s\", \"planning, CPU s on AMD EPYC\": \"%s\", \"all columns, CPU s\": \"%s\"}, "
        "%s}\n",
        model_name.c_str(), name.c_str(), sweep.job.adapters.size(),
        human_duration(found.min_gpu->seconds).c_str(), gain(found.max_gpu->seconds).c_str(),
        gain(found.packed_jobs->seconds).c_str(), gain(found.one_pipeline->seconds).c_str(),
        plan.shape.replicas, plan.shape.tensor, plan.shape.stages, gain(plan.seconds).c_str(),
        gain(plan.bound).c_str(), times(plan.bound / plan.seconds).c_str(),
        times(plan.staying / plan.seconds).c_str(), format_fixed(plan.ar, 3).c_str(),
        times(*found.eager_peft / plan.seconds).c_str(), times(planned).c_str(),
        times(compared).c_str(), origin.c_str());
    std::fflush(stdout);
}

/// The closed form beside what simulating the windows of the same job says: trials of rank 16,
/// which costs are fitted with, on one pipeline.
void simulated_row(const Task& task, std::size_t trials_at_most, int stages,
                   const std::string& origin) {
    Sweep sweep = sweep_of({task}, 4);
    sweep.job.adapters.resize(std::min(trials_at_most, sweep.job.adapters.size()));
    for (AdapterJob& adapter : sweep.job.adapters) adapter.r = 16;
    const ModelSpec model = *model_preset("llama-3.1-8b");
    Cluster cluster = h200s();
    cluster.ranks = stages;
    const Plan plan = make_plan(sweep.job, model, sweep.datasets, cluster);
    const Prediction prediction = predict(sweep.job, plan, sweep.datasets, 16);
    SweepRules rules;
    rules.evaluates = false;
    const TrialClasses trials = trial_classes(sweep.job, model, sweep.datasets);
    const SweepTask sweep_task{sweep.job, model, sweep.datasets, cluster, trials, rules};
    double closed = 0.0;
    for (const SweepReplica& replica : SweepShapes(sweep_task).replicas(1, stages)) {
        if (replica.microbatch_tokens > plan.replicas.front().microbatch_tokens) break;
        closed = contiguous_assignment(replica, rules, trials.counts(), 1).makespan();
    }
    std::printf(
        "{\"section\": \"Trials on one pipeline, closed form against the simulator, "
        "llama-3.1-8b\", "
        "\"case\": \"%s, %zu trials, %d stages\", \"figures\": {\"simulated\": \"%s\", \"closed "
        "form\": \"%+.1f%%\"}, %s}\n",
        task.name, sweep.job.adapters.size(), stages, human_duration(prediction.seconds).c_str(),
        100.0 * (closed / prediction.seconds - 1.0), origin.c_str());
    std::fflush(stdout);
}

}  // namespace
}  // namespace loratrain

int main(int argc, char** argv) {
    using namespace loratrain;
    const std::optional<std::string> origin = result_origin(argc, argv);
    if (!origin) return 2;
    constexpr int rates = 4;
    for (const Task& task : {cola, mrpc, gsm8k, long_samples}) {
        row(task.name, "llama-3.1-8b", sweep_of({task}, rates), *origin);
    }
    const std::vector<Task> all{cola, mrpc, wnli, gsm8k};
    row("cola, mrpc, wnli, gsm8k in one run", "llama-3.1-8b", sweep_of(all, rates), *origin);
    row("the same, 9 learning rates", "llama-3.1-8b", sweep_of(all, 9), *origin);
    row("cola, mrpc, wnli, gsm8k in one run", "llama-3.2-3b", sweep_of(all, rates), *origin);
    for (const int stages : {1, 2, 4, 8}) {
        for (const Task& task : {cola, mrpc, gsm8k}) {
            simulated_row(task, 15 * static_cast<std::size_t>(stages), stages, *origin);
        }
    }
    return 0;
}
