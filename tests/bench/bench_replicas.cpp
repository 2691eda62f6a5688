#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <limits>
#include <string>
#include <vector>

#include "base/text.h"
#include "bench/result_origin.h"
#include "bench/summary_job.h"
#include "config/model_presets.h"
#include "plan/deploy/make_plan.h"
#include "plan/deployments/compare_deployments.h"
#include "plan/deployments/find_deployments.h"
#include "plan/plan.h"
#include "plan/predict/simulate.h"
#include "plan/schedule/plan_window.h"
#include "plan/text/describe_prediction.h"

// GPU-seconds of a round by simulation, with deployments of replicas that are found and with what
// LobRA (PVLDB 18(8), 2025) compares with: six adapters of batch 64 whose samples have log-normal
// lengths. Writes the lines of results/*.jsonl (write_results.py): bench_replicas COMMIT DEVICE
// DATE

namespace loratrain {
namespace {

constexpr std::array<double, 6> medians{120, 180, 250, 400, 700, 1500};
constexpr std::array<double, 6> sigmas{.7, .7, .8, .8, .7, 1};
constexpr int samples = 2048;
constexpr std::int32_t longest = 16384;
constexpr std::int32_t batch = 64;
constexpr std::int32_t rounds = 32;  // an epoch: the lengths as they are

/// The point of the standard normal distribution below which the share p is.
double normal_quantile(double p) {
    double low = -8.0;
    double high = 8.0;
    for (int step = 0; step < 60; ++step) {
        const double middle = 0.5 * (low + high);
        (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
    }
    return low;
}

std::vector<DatasetInfo> data_of_mix() {
    std::vector<DatasetInfo> infos(medians.size());
    for (std::size_t d = 0; d < medians.size(); ++d) {
        for (int i = 0; i < samples; ++i) {
            const double z = normal_quantile((i + 0.5) / samples);
            const auto tokens = static_cast<std::int32_t>(std::clamp(
                medians[d] * std::exp(sigmas[d] * z), 32.0, static_cast<double>(longest)));
            infos[d].train.push_back({tokens, tokens - 1});
        }
    }
    return infos;
}

struct Machine {
    const char* name;
    const char* device;
    std::uint64_t gibibytes;
    int ranks;
    const char* model;
};

Cluster cluster_of(const Machine& machine) {
    Cluster cluster;
    cluster.ranks = machine.ranks;
    cluster.ranks_per_node = 8;
    cluster.backend = BackendKind::cuda;
    cluster.device = machine.device;
    cluster.bytes_per_rank = machine.gibibytes << 30U;
    return cluster;
}

/// The best replicas that are all cut alike.
Baseline best_alike(const Job& job, const ModelSpec& model, const std::vector<DatasetInfo>& data,
                    const Cluster& cluster, int most_stages, DispatchRule rule) {
    Baseline best;
    for (int tensor = 1; tensor <= cluster.ranks_per_node; tensor *= 2) {
        for (int stages = 1; stages <= most_stages && tensor * stages <= cluster.ranks;
             stages *= 2) {
            const std::vector<ReplicaJob> deployment{
                {tensor, stages, cluster.ranks / (tensor * stages), {}}};
            Job its = deployed(job, deployment);
            its.parallel.dispatch = rule;
            const double taken = round_rank_seconds(its, model, data, cluster, rounds);
            if (taken <= 0.0 || (best.rank_seconds > 0.0 && taken >= best.rank_seconds)) continue;
            best.deployment = deployment;
            best.rank_seconds = taken;
        }
    }
    return best;
}

/// What ranks compute of a round with samples dealt in balance.
double busy_rank_seconds(const Job& job, const std::vector<ReplicaJob>& deployment,
                         const ModelSpec& model, const std::vector<DatasetInfo>& data,
                         const Cluster& cluster) {
    const Job its = deployed(job, deployment);
    const Plan plan = make_plan(its, model, data, cluster);
    Simulator simulator(its, plan);
    simulator.add(plan_joint_window(its, plan, data, at_start(plan), rounds));
    const Timeline& timeline = simulator.timeline();
    double seconds = 0.0;
    std::size_t stage = 0;
    for (const ReplicaPlan& replica : plan.replicas) {
        for (std::size_t s = 0; s < replica.stages.size(); ++s) {
            seconds += replica.tensor * timeline.busy(stage++);
        }
    }
    return seconds / rounds;
}

/// Were every sample computed where it takes the fewest rank-seconds, in full microbatches, and no
/// rank ever waited.
double least_rank_seconds(const FoundDeployments& found, const Cluster& cluster) {
    double least = std::numeric_limits<double>::infinity();
    for (const OptionCounts& counts : found.search.solved) least = std::min(least, counts.bound);
    return cluster.ranks * least;
}

std::string figure(const std::string& name, const Baseline& row) {
    const std::string where =
        row.deployment.empty() ? "" : cat(" (", deployment_text(row.deployment), ")");
    return cat("\"", name, "\": \"",
               row.rank_seconds > 0.0 ? format_fixed(row.rank_seconds, 1) + where : "does not fit",
               "\"");
}

void compare(const Machine& machine, const std::string& origin) {
    const Job job = summary_job(static_cast<int>(medians.size()), batch);
    const std::vector<DatasetInfo> data = data_of_mix();
    const ModelSpec model = *model_preset(machine.model);
    const Cluster cluster = cluster_of(machine);
    const FoundDeployments found = find_deployments(job, model, data, cluster);
    std::vector<std::string> figures;
    const auto alike = [&](const std::string& name, int most_stages, DispatchRule rule) {
        figures.push_back(figure(name, best_alike(job, model, data, cluster, most_stages, rule)));
    };
    alike("alike, pp 1, uniform", 1, DispatchRule::uniform);
    alike("alike, uniform", cluster.ranks, DispatchRule::uniform);
    alike("alike, balanced", cluster.ranks, DispatchRule::balanced);
    for (const Baseline& row : compare_baselines(job, model, data, cluster, found, rounds)) {
        if (row.name != "Task-Fused") figures.push_back(figure(row.name, row));
        if (row.name != "balanced" || row.deployment.empty()) continue;
        const double busy = busy_rank_seconds(job, row.deployment, model, data, cluster);
        figures.push_back(figure("of it computing", {"", {}, busy}));
    }
    figures.push_back(
        figure("no deployment less than", {"", {}, least_rank_seconds(found, cluster)}));
    std::printf(
        "{\"section\": \"GPU-seconds of a round by simulation, six adapters of batch 64 with "
        "log-normal lengths up to 16384\", \"case\": \"%s\", \"figures\": {%s}, %s}\n",
        machine.name, join(figures, ", ").c_str(), origin.c_str());
    std::fflush(stdout);
}

/// As a start with `deployment: auto` does.
void time_planning(const Machine& machine, const std::string& origin) {
    const Job job = summary_job(static_cast<int>(medians.size()), batch);
    const std::vector<DatasetInfo> data = data_of_mix();
    const std::clock_t start = std::clock();
    const FoundDeployments found =
        find_deployments(job, *model_preset(machine.model), data, cluster_of(machine));
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    std::printf(
        "{\"section\": \"Planning with deployment: auto, six adapters of batch 64\", \"case\": "
        "\"%s\", \"figures\": {\"CPU-seconds\": \"%.1f\", \"ways to cut a replica\": \"%zu\", "
        "\"deployments\": \"%.2g\", \"solved\": \"%zu\", \"of them by bisection\": \"%lld\"}, "
        "%s}\n",
        machine.name, seconds, found.options.size(), found.search.combinations,
        found.search.solved.size(), static_cast<long long>(found.search.bisected), origin.c_str());
    std::fflush(stdout);
}

}  // namespace
}  // namespace loratrain

int main(int argc, char** argv) {
    using namespace loratrain;
    const std::optional<std::string> origin = result_origin(argc, argv);
    if (!origin) return 2;
    constexpr std::array<Machine, 3> machines{{
        {"8B, 16 x H200", "h200", 138, 16, "llama-3.1-8b"},
        {"8B, 16 x H200, 32 GiB of each", "h200", 32, 16, "llama-3.1-8b"},
        {"8B, 16 x A100, 40 GB of each", "a100", 36, 16, "llama-3.1-8b"},
    }};
    constexpr std::array<Machine, 4> planned{{
        {"8B, 16 x H200", "h200", 138, 16, "llama-3.1-8b"},
        {"8B, 64 x H200", "h200", 138, 64, "llama-3.1-8b"},
        {"8B, 64 x A100, 40 GB of each", "a100", 36, 64, "llama-3.1-8b"},
        {"70B, 64 x H200", "h200", 138, 64, "llama-3-70b"},
    }};
    for (const Machine& machine : planned) time_planning(machine, *origin);
    for (const Machine& machine : machines) compare(machine, *origin);
    return 0;
}
