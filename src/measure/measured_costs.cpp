#include "measure/measured_costs.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/collective.h"
#include "measure/cost_cache.h"
#include "measure/measured_trace.h"
#include "measure/profile_costs.h"
#include "measure/profile_ranks.h"
#include "plan/cost/cost_model.h"
#include "plan/predict/predict.h"
#include "plan/schedule/plan_window.h"
#include "plan/text/plan_text.h"

namespace loratrain {

namespace {

/// Mean over tokens of the length of their sample, in samples of one, a half, a quarter and an
/// eighth of the longest.
constexpr double typical_of_longest = 0.708;

std::string run_file(const Job& job) {
    return job.run.dir + "/" + costs_file_name;
}

/// What costs of so many ranks on this host are kept under; "" where none are.
std::string key_of(const MpiSession& mpi, const Job& job, const Plan& plan, int host_size) {
    // A profile is of one rank alone.
    const bool shared = plan.replicas.size() > 1 || plan.replicas.front().tensor > 1;
    if (job.schedule.costs == CostSource::built_in || shared) return "";
    const int threads = threads_per_rank(mpi, host_size);
    return cost_key(job, plan, rank_device(plan.backend, mpi.host_rank(), threads), host_size);
}

std::optional<CostModel> find_kept(const Job& job, const std::string& key) {
    if (key.empty()) return std::nullopt;
    for (const std::string& path : {run_file(job), cost_cache_path()}) {
        auto found = find_costs(path, key);
        if (!found) continue;
        log::info(cat("costs: ", found->source, ", from ", path));
        return found;
    }
    return std::nullopt;
}

/// Root.
MeasuredCosts known_costs(const MpiSession& mpi, const Job& job, const Plan& plan) {
    MeasuredCosts measured;
    measured.key = key_of(mpi, job, plan, mpi.host_size());
    const auto found = find_kept(job, measured.key);
    measured.costs = found ? *found : plan.costs;
    measured.fresh = !found && measured.known();
    return measured;
}

/// Root: as if microbatches held no more than those of the first round do: the more rows, the fewer
/// of them does a processor find in its caches. For GPUs as if it began with the adapters alone
/// that have rows in the first microbatch, and its samples were as long as typical ones there, of
/// which a profile's mixture is (profile_costs.h): to a GPU it matters how many columns adapters
/// add to the base's products, and by length which kernels attention takes.
Plan plan_to_profile(const Job& job, Plan plan, std::span<const DatasetInfo> datasets) {
    const JointWindow round = plan_joint_window(job, plan, datasets, at_start(plan), 1);
    const auto& microbatches = round.common().microbatches;
    const auto first = std::find_if(microbatches.begin(), microbatches.end(),
                                    [](const Microbatch& m) { return !m.evaluation; });
    if (first == microbatches.end()) return plan;
    if (plan.backend != BackendKind::cuda) {
        std::int64_t most = 1;
        for (const Microbatch& m : microbatches) {
            most = std::max(most, m.evaluation ? 1 : m.tokens());
        }
        plan.replicas.front().microbatch_tokens = most;
        return plan;
    }
    plan.first_admitted.clear();
    for (const Segment& segment : first->segments) plan.first_admitted.push_back(segment.adapter);
    const MicrobatchLoad load = load_of(*first, AttentionSpan());
    const double typical = load.squares / static_cast<double>(load.tokens);
    plan.samples.longest = std::min(
        plan.samples.longest, static_cast<std::int64_t>(std::ceil(typical / typical_of_longest)));
    return plan;
}

}  // namespace

std::optional<CostModel> kept_costs(const MpiSession& mpi, const Job& job, const Plan& plan,
                                    int host_size) {
    return find_kept(job, key_of(mpi, job, plan, host_size));
}

MeasuredCosts measure_costs(const MpiSession& mpi, const Job& job, const Plan& plan,
                            std::span<const DatasetInfo> datasets,
                            const std::function<std::unique_ptr<Backend>(const Plan&)>& backend) {
    MeasuredCosts measured;
    if (mpi.is_root()) measured = known_costs(mpi, job, plan);
    const std::string text =
        broadcast_text(mpi, measured.fresh ? to_text(plan_to_profile(job, plan, datasets)) : "");
    if (text.empty()) return measured;
    measured.fresh = true;
    try {
        const Plan built_in = plan_from_text(text);
        const std::unique_ptr<Backend> device = backend(built_in);
        const auto start = std::chrono::steady_clock::now();
        measured.costs = profile_ranks(mpi, job, built_in, *device);
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
        log::info(
            cat("costs: ", measured.costs.source, " in ", format_fixed(seconds.count(), 1), " s"));
    } catch (const std::exception& error) {
        log::warn(cat("costs cannot be measured, built-in ones are used: ", error.what()));
        measured.key.clear();
    }
    measured.fresh = !any_rank(mpi, mpi.is_root() && !measured.known());
    return measured;
}

PlannedJob plan_again(const PlannedJob& planned, const CostModel& costs, const Job& job,
                      std::span<const DatasetInfo> datasets, Cluster cluster, const Plan* former) {
    cluster.costs = costs;
    try {
        return plan_job(job, planned.plan.model, datasets, cluster, former);
    } catch (const InputError&) {
        return planned;
    }
}

void settle_costs(const MpiSession& mpi, const Job& job, const Plan& plan,
                  Communicator& communicator, Backend& backend, MeasuredCosts& measured) {
    if (measured.fresh) {
        profile_messages(plan, mpi.rank(), communicator, backend, measured.costs);
    }
    if (!mpi.is_root() || !measured.known()) return;
    keep_costs(run_file(job), measured.key, measured.costs);
    if (measured.fresh) keep_costs(cost_cache_path(), measured.key, measured.costs);
}

void refine_costs(const MpiSession& mpi, const Job& job, const Plan& plan, TraceRecorder& recorder,
                  const MeasuredCosts& measured) {
    auto refined = gather_refined_costs(mpi, plan, recorder);
    if (!mpi.is_root() || !measured.known() || !refined) return;
    refined->message_fixed = measured.costs.message_fixed;
    refined->message_per_byte = measured.costs.message_per_byte;
    keep_costs(run_file(job), "refined: " + measured.key, *refined);
}

}  // namespace loratrain
