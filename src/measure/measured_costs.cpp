#include "measure/measured_costs.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/system.h"
#include "base/text.h"
#include "comm/collective.h"
#include "measure/cost_cache.h"
#include "measure/measured_trace.h"
#include "measure/profile_costs.h"
#include "measure/profile_links.h"
#include "measure/profile_ranks.h"
#include "measure/profile_tasks.h"
#include "plan/cost/built_in_costs.h"
#include "plan/replica_view.h"

namespace loratrain {

namespace {

std::string run_file(const Job& job) {
    return job.run.dir + "/" + costs_file_name;
}

/// What costs of so many ranks on this host are kept under; none where they are not.
std::vector<std::string> keys_of(const MpiSession& mpi, const Job& job, const Plan& plan,
                                 int host_size) {
    if (job.schedule.costs == CostSource::built_in) return {};
    const int threads = threads_per_rank(mpi, host_size);
    const std::string device = rank_device(plan.backend, mpi.host_rank(), threads);
    std::vector<std::string> keys;
    for (const ReplicaView& view : degrees_of(plan)) {
        keys.push_back(cost_key(job, view, device, host_size));
    }
    return keys;
}

/// The costs under all keys; none where the file lacks one.
std::vector<DegreeCosts> find_all(const std::string& path, const Plan& plan,
                                  const std::vector<std::string>& keys) {
    std::vector<DegreeCosts> all;
    for (const ReplicaView& view : degrees_of(plan)) {
        const auto found = find_costs(path, keys[all.size()]);
        if (!found) return {};
        all.push_back({view.replica.tensor, *found});
    }
    return all;
}

/// Under which a run keeps costs refined by what it has observed.
std::string refined_key(const std::string& key) {
    return "refined: " + key;
}

/// "240 microbatches" of CostObserver::refined(); "" where nothing was observed.
std::string observed_text(const std::string& path, const std::string& key) {
    constexpr std::string_view before = "refined by ";
    const auto refined = find_costs(path, refined_key(key));
    const std::size_t at = refined ? refined->source.rfind(before) : std::string::npos;
    return at == std::string::npos ? "" : refined->source.substr(at + before.size());
}

/// Of a run that goes on: its ranks have kept the algorithms that they chose.
void forget_new_shapes(std::vector<DegreeCosts>& costs) {
    for (DegreeCosts& degree : costs) {
        degree.costs.host.new_rows = {};
        degree.costs.host.new_targets = {};
    }
}

void keep_all(const std::string& path, const MeasuredCosts& measured) {
    for (std::size_t i = 0; i < measured.keys.size(); ++i) {
        keep_costs(path, measured.keys[i], measured.costs[i].costs);
    }
}

/// Root.
MeasuredCosts known_costs(const MpiSession& mpi, const Job& job, const Plan& plan) {
    MeasuredCosts measured = kept_costs(mpi, job, plan, mpi.host_size());
    if (measured.known()) {
        log::info(cat("costs: ", measured.of_first().source, ", from ", measured.from));
        return measured;
    }
    measured.keys = keys_of(mpi, job, plan, mpi.host_size());
    measured.fresh = measured.known();
    return measured;
}

/// What stages have met of their ranks' shapes.
MetShapes met_shapes(const Plan& plan, std::span<const ProfileTask> tasks,
                     std::span<const ProfileRole> roles, std::span<const std::size_t> prepared) {
    MetShapes met;
    for (const ReplicaView& view : views_of(plan)) {
        for (const StagePlan& stage : view.replica.stages) {
            const auto rank = static_cast<std::size_t>(stage.rank);
            const auto lanes =
                prepared.subspan(rank, static_cast<std::size_t>(view.replica.tensor));
            const std::size_t least = *std::min_element(lanes.begin(), lanes.end());
            const std::vector<StartShape> shapes = shapes_of(roles[rank], tasks);
            meet(met, meeting_stage(roles[rank].stage, view, stage),
                 std::span(shapes).first(least));
        }
    }
    return met;
}

/// Root.
void log_costs(const MeasuredCosts& measured, const FirstUses& uses, double seconds) {
    if (measured.fresh) {
        log::info(
            cat("costs: ", measured.of_first().source, " in ", format_fixed(seconds, 1), " s"));
    }
    const std::string text = first_uses_text(uses);
    if (!text.empty()) {
        log::info(cat("before training: ", text, ", ", format_fixed(seconds, 1), " s in all"));
    }
}

const CostModel& planned_costs(const Plan& plan, std::int32_t tensor) {
    for (const DegreeCosts& other : plan.other_costs) {
        if (other.tensor == tensor) return other.costs;
    }
    return plan.costs;
}

/// Root. Whether the costs had none.
bool add_links(const MpiSession& mpi, std::span<const LinkBetweenHosts> links,
               MeasuredCosts& measured) {
    log::info(cat("links between hosts: ", links_text(links)));
    for (const std::string& text : slow_links(links)) {
        log::warn(text +
                  ": all ranks wait for its messages; leave out one of the two hosts, or have "
                  "its network checked");
    }
    if (!measured.known() || measured.of_first().between_hosts) return false;
    for (DegreeCosts& degree : measured.costs) {
        degree.costs.between_hosts = usual_cost(links);
        degree.costs.ranks_per_host = mpi.local_size();
    }
    return true;
}

}  // namespace

void MeasuredCosts::write_to(Plan& plan) const {
    if (!known()) return;
    if (has_built_in_costs(plan)) {
        plan.measured = costs;
        for (DegreeCosts& of : plan.measured) {
            take_unmeasured(planned_costs(plan, of.tensor), of.costs);
        }
    } else {
        CostModel measured = of_first();
        take_unmeasured(plan.costs, measured);
        plan.costs = measured;
    }
}

std::string first_uses_text(const FirstUses& uses) {
    if (uses.gemms == 0) return "";
    return cat("chose GEMM algorithms for ", uses.gemms, " classes in ",
               format_fixed(uses.gemm_seconds, 2), " s");
}

std::string longest_first_uses(const MpiSession& mpi, const FirstUses& uses) {
    const std::vector<double> seconds = gather_numbers(mpi, uses.gemm_seconds);
    const std::vector<std::string> texts = gather_texts(mpi, first_uses_text(uses));
    if (!mpi.is_root()) return "";
    const auto most = std::max_element(seconds.begin(), seconds.end()) - seconds.begin();
    const std::string& text = texts[static_cast<std::size_t>(most)];
    return text.empty() ? "" : cat("rank ", most, " ", text, " while it trained");
}

MeasuredCosts kept_costs(const MpiSession& mpi, const Job& job, const Plan& plan, int host_size) {
    MeasuredCosts kept;
    const std::vector<std::string> keys = keys_of(mpi, job, plan, host_size);
    if (keys.empty()) return kept;
    for (const std::string& path : {run_file(job), cost_cache_path()}) {
        std::vector<DegreeCosts> found = find_all(path, plan, keys);
        if (found.empty()) continue;
        if (path == run_file(job)) {
            forget_new_shapes(found);
            kept.observed = observed_text(path, keys.front());
        }
        kept.from = path;
        kept.costs = std::move(found);
        kept.keys = keys;
        break;
    }
    return kept;
}

MeasuredCosts measure_costs(const MpiSession& mpi, const Job& job, const Plan& plan,
                            std::span<const DatasetInfo> datasets,
                            const std::function<std::unique_ptr<Backend>(const Plan&)>& backend) {
    MeasuredCosts measured;
    std::vector<ProfileTask> tasks;
    if (mpi.is_root()) {
        measured = known_costs(mpi, job, plan);
        if (measured.fresh || (measured.known() && prepares_shapes(plan))) {
            tasks = profile_tasks(job, plan, datasets);
        }
    }
    tasks = broadcast_tasks(mpi, tasks);
    if (tasks.empty()) return measured;
    const std::vector<ProfileRole> roles =
        broadcast(mpi, mpi.is_root() ? roles_of_ranks(plan, tasks) : std::vector<ProfileRole>{});
    measured.fresh = any_rank(mpi, measured.fresh);
    const auto start = std::chrono::steady_clock::now();
    try {
        RankProfiles profiles;
        if (measured.fresh) {
            const std::unique_ptr<Backend> device = backend(tasks.front().plan);
            profiles = profile_ranks(mpi, job, tasks, roles, *device);
            profiles.uses = device->first_uses();
        } else {
            profiles = prepare_ranks(mpi, job, tasks, roles, backend);
        }
        if (mpi.is_root()) {
            if (measured.fresh) measured.costs = std::move(profiles.costs);
            measured.met_shapes = met_shapes(plan, tasks, roles, profiles.prepared);
            log_costs(measured, profiles.uses, seconds_since(start));
        }
    } catch (const std::exception& error) {
        log::warn(cat("costs cannot be measured, so built-in costs are used: ", error.what()));
        measured.keys.clear();
    }
    if (measured.fresh) measured.fresh = !any_rank(mpi, mpi.is_root() && !measured.known());
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
        const auto message = profile_messages(plan, mpi, communicator, backend);
        for (DegreeCosts& degree : measured.costs) {
            if (message) degree.costs.message = *message;
        }
    }
    const std::vector<LinkBetweenHosts> links = profile_links(mpi, plan, communicator, backend);
    const bool learned = mpi.is_root() && !links.empty() && add_links(mpi, links, measured);
    if (!mpi.is_root() || !measured.known()) return;
    keep_all(run_file(job), measured);
    if (measured.fresh || learned) keep_all(cost_cache_path(), measured);
}

void refine_costs(const MpiSession& mpi, const Job& job, const Plan& plan, TraceRecorder& recorder,
                  const MeasuredCosts& measured) {
    auto refined = gather_refined_costs(mpi, plan, recorder);
    if (!mpi.is_root() || !measured.known() || !refined) return;
    refined->message = measured.of_first().message;
    refined->between_hosts = measured.of_first().between_hosts;
    refined->ranks_per_host = measured.of_first().ranks_per_host;
    keep_costs(run_file(job), refined_key(measured.keys.front()), *refined);
}

}  // namespace loratrain
