#include "plan/sweep/sweep_shapes.h"

#include <algorithm>

#include "base/error.h"
#include "plan/deploy/adapter_checks.h"
#include "plan/deploy/make_plan.h"
#include "plan/deploy/workload.h"
#include "plan/memory/fit_memory.h"
#include "plan/replica_view.h"
#include "plan/tensor_shard.h"

namespace loratrain {

namespace {

constexpr std::size_t fewest_planned = 16;
constexpr std::size_t most_planned = 64;
constexpr std::int32_t enough_columns = 512;  // the widest pad of augmented matrices (make_plan.h)
constexpr std::int64_t smallest_part = 8;

bool is_power_of_two(std::int32_t value) {
    return (value & (value - 1)) == 0;
}

Job with_largest_trials(const SweepTask& task) {
    std::vector<std::size_t> classes(task.trials.size());
    for (std::size_t c = 0; c < classes.size(); ++c) classes[c] = c;
    std::stable_sort(classes.begin(), classes.end(), [&](std::size_t a, std::size_t b) {
        return task.trials.loads[a].parameters > task.trials.loads[b].parameters;
    });
    Job job = task.job;
    job.adapters.clear();
    job.parallel.pipeline_stages.reset();
    std::int32_t columns = 0;
    const auto has_enough = [&] {
        const std::size_t count = job.adapters.size();
        return count >= most_planned || (count >= fewest_planned && columns >= enough_columns);
    };
    for (const std::size_t c : classes) {
        for (const AdapterId id : task.trials.members[c]) {
            if (has_enough()) return job;
            job.adapters.push_back(task.job.adapter(id));
            columns += job.adapters.back().r;
        }
    }
    return job;
}

}  // namespace

SweepShapes::SweepShapes(const SweepTask& task)
    : task_(task), largest_(with_largest_trials(task)), cluster_(task.cluster) {
    cluster_.costs.reset();
}

std::vector<std::pair<std::int32_t, std::int32_t>> SweepShapes::cuts(std::int32_t ranks) const {
    std::vector<std::pair<std::int32_t, std::int32_t>> cuts;
    for (const std::int32_t tensor : tensor_degrees(task_.model)) {
        const std::int32_t stages = ranks / tensor;
        const bool possible = is_power_of_two(tensor) && ranks % tensor == 0 &&
                              stages <= task_.model.layers &&
                              can_hold_adapters(task_.job, task_.model, {tensor, stages});
        if (possible) cuts.emplace_back(tensor, stages);
    }
    return cuts;
}

std::vector<std::pair<std::int32_t, std::int32_t>> SweepShapes::cuts() const {
    std::vector<std::pair<std::int32_t, std::int32_t>> all;
    for (std::int32_t ranks = 1; ranks <= task_.cluster.ranks; ++ranks) {
        if (task_.cluster.ranks % ranks != 0) continue;
        const auto of_ranks = cuts(ranks);
        all.insert(all.end(), of_ranks.begin(), of_ranks.end());
    }
    return all;
}

std::vector<SweepReplica> SweepShapes::replicas(std::int32_t tensor, std::int32_t stages) {
    const auto [known, fresh] = known_.try_emplace({tensor, stages});
    if (fresh) known->second = planned(tensor, stages);
    return known->second;
}

std::vector<std::int64_t> SweepShapes::sizes() const {
    if (task_.job.parallel.microbatch_tokens) return {*task_.job.parallel.microbatch_tokens};
    const Workload work = workload_of(largest_, task_.model, cluster_.backend, task_.datasets);
    std::vector<std::int64_t> sizes;
    for (std::int64_t parts = smallest_part; parts >= 1; parts /= 2) {
        const std::int64_t size = std::max(work.usual_tokens / parts, work.longest_sample);
        if (sizes.empty() || size > sizes.back()) sizes.push_back(size);
    }
    return sizes;
}

/// Layers stream only where they must.
Plan SweepShapes::resident_if_fits(const Job& job, const Cluster& cluster) const {
    if (job.model.residency.kind == Residency::Kind::automatic) {
        Job resident = job;
        resident.model.residency.kind = Residency::Kind::all;
        try {
            return make_plan(resident, task_.model, task_.datasets, cluster);
        } catch (const InputError&) {
            // Then as the job says.
        }
    }
    return make_plan(job, task_.model, task_.datasets, cluster);
}

/// The depth is not searched by simulation, which takes most of the planning of a pipeline, but
/// the most that the search would try: memory for fewer trials rather than for too many; where that
/// does not fit, the least. Layers are whole: what they share between two stages depends on who
/// trains.
Plan SweepShapes::plan_of(const Job& job, const Cluster& cluster) const {
    Job one_by_one = job;
    one_by_one.schedule.policy = SchedulePolicy::one_f_one_b;
    Plan former = resident_if_fits(one_by_one, cluster);
    ReplicaPlan& replica = former.replicas.front();
    ReplicaPlan deeper = replica;
    deeper.max_in_flight *= 2;
    const ReplicaView view = only_replica(former);
    if (fits_memory(job, view.with(deeper), deeper.microbatch_tokens, deeper.recompute)) {
        replica.max_in_flight = deeper.max_in_flight;
    }
    Plan plan = make_plan(job, task_.model, task_.datasets, cluster, &former);
    plan.replicas.front().stages = former.replicas.front().stages;
    return plan;
}

std::vector<SweepReplica> SweepShapes::planned(std::int32_t tensor, std::int32_t stages) const {
    std::vector<SweepReplica> found;
    const std::vector<std::int64_t> sizes = this->sizes();
    Job job = largest_;
    job.parallel.microbatch_tokens = sizes.front();
    job.parallel.deployment = {{tensor, stages, 1, {}}};
    Cluster cluster = cluster_;
    cluster.ranks = tensor * stages;
    Plan plan;
    try {
        plan = plan_of(job, cluster);
    } catch (const InputError&) {
        return found;
    }
    for (const std::int64_t size : sizes) {
        plan.replicas.front().microbatch_tokens = size;
        SweepReplica replica = sweep_replica(task_.job, plan, task_.trials);
        const bool holds_all =
            std::all_of(replica.classes.begin(), replica.classes.end(),
                        [&](const TrialCosts& trial) { return replica.holds(trial.bytes); });
        if (holds_all) found.push_back(std::move(replica));
    }
    return found;
}

}  // namespace loratrain
