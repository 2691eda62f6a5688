#include "measure/profile_ranks.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "comm/collective.h"
#include "measure/profile_costs.h"
#include "plan/cost_fields.h"

namespace loratrain {

namespace {

constexpr double hardly = 0.03;

/// What `measure` throws is kept for later: the others wait at the next barrier.
template <class Measure>
void keep_failure(std::exception_ptr& failure, const Measure& measure) {
    if (failure) return;
    try {
        measure();
    } catch (const std::exception&) {
        failure = std::current_exception();
    }
}

std::int32_t lanes_of(const ProfileTask& task) {
    return task.plan.replicas.front().tensor;
}

/// Of the first rank that has the task. What shapes it has met is not kept: as many as the root.
CostModel costs_from(const std::vector<std::optional<CostModel>>& of_ranks, std::size_t task,
                     std::span<const ProfileRole> roles, const HostCosts& own) {
    const auto has_task = [&](const ProfileRole& role) { return role.task == task; };
    const auto rank = std::find_if(roles.begin(), roles.end(), has_task) - roles.begin();
    const std::optional<CostModel>& found = of_ranks[static_cast<std::size_t>(rank)];
    if (!found)
        throw Error(cat("rank ", rank, " could not measure its costs; its own message says why"));
    CostModel costs = *found;
    costs.host.new_rows.met = own.new_rows.met;
    costs.host.new_targets.met = own.new_targets.met;
    return costs;
}

RankProfiles profile_gpus(const MpiSession& mpi, const Job& job, std::span<const ProfileTask> tasks,
                          std::span<const ProfileRole> roles, Backend& backend) {
    const ProfileRole& role = roles[static_cast<std::size_t>(mpi.rank())];
    ProfiledCosts profiled;
    std::exception_ptr failure;
    keep_failure(failure, [&] {
        profiled = profile_costs(job, tasks[role.task].plan, backend, shapes_of(role, tasks));
    });
    const std::vector<std::uint64_t> prepared =
        gather_numbers(mpi, static_cast<std::uint64_t>(profiled.prepared));
    std::vector<std::optional<CostModel>> of_ranks;
    if (tasks.size() > 1) {
        std::optional<CostModel> own;
        if (!failure) own = profiled.costs;
        of_ranks = gather(mpi, own);
    }
    if (failure) std::rethrow_exception(failure);
    RankProfiles result;
    if (!mpi.is_root()) return result;
    result.prepared.assign(prepared.begin(), prepared.end());
    for (std::size_t t = 0; t < tasks.size(); ++t) {
        result.costs.push_back(
            {lanes_of(tasks[t]), t == role.task
                                     ? profiled.costs
                                     : costs_from(of_ranks, t, roles, profiled.costs.host)});
    }
    return result;
}

/// What the ranks take in the mean for the first task at the same time; 0 where none can tell.
double seconds_together(const MpiSession& mpi, const Job& job, const ProfileTask& task,
                        Backend& backend, std::exception_ptr& failure) {
    quiet_barrier(mpi);
    double together = 0.0;
    keep_failure(failure, [&] { together = probe_seconds(job, task.plan, backend); });
    std::vector<double> of_ranks = gather_numbers(mpi, together);
    std::erase(of_ranks, 0.0);
    const double sum = std::accumulate(of_ranks.begin(), of_ranks.end(), 0.0);
    return of_ranks.empty() ? 0.0 : sum / static_cast<double>(of_ranks.size());
}

RankProfiles profile_processors(const MpiSession& mpi, const Job& job,
                                std::span<const ProfileTask> tasks, Backend& backend) {
    std::vector<ProfiledCosts> alone(tasks.size());
    std::exception_ptr failure;
    if (mpi.is_root()) {
        keep_failure(failure, [&] {
            for (std::size_t t = 0; t < tasks.size(); ++t) {
                alone[t] = profile_costs(job, tasks[t].plan, backend);
            }
        });
    }
    const double together = mpi.size() == 1
                                ? alone.front().probe_seconds
                                : seconds_together(mpi, job, tasks.front(), backend, failure);
    if (failure) std::rethrow_exception(failure);
    RankProfiles result;
    result.prepared.assign(static_cast<std::size_t>(mpi.size()), 0);
    for (std::size_t t = 0; t < tasks.size(); ++t) {
        CostModel& costs = alone[t].costs;
        if (mpi.size() > 1) {
            costs.ranks_per_host = mpi.local_size();
            costs.full_speed_ranks =
                full_speed_ranks(mpi.local_size(), alone.front().probe_seconds, together);
        }
        result.costs.push_back({lanes_of(tasks[t]), costs});
    }
    return result;
}

}  // namespace

RankProfiles profile_ranks(const MpiSession& mpi, const Job& job,
                           std::span<const ProfileTask> tasks, std::span<const ProfileRole> roles,
                           Backend& backend) {
    return tasks.front().plan.backend == BackendKind::cuda
               ? profile_gpus(mpi, job, tasks, roles, backend)
               : profile_processors(mpi, job, tasks, backend);
}

RankProfiles prepare_ranks(const MpiSession& mpi, const Job& job,
                           std::span<const ProfileTask> tasks, std::span<const ProfileRole> roles,
                           const std::function<std::unique_ptr<Backend>(const Plan&)>& backend) {
    RankProfiles result;
    std::uint64_t prepared = 0;
    try {
        const ProfileRole& role = roles[static_cast<std::size_t>(mpi.rank())];
        const Plan& own = tasks[role.task].plan;
        const std::unique_ptr<Backend> device = backend(own);
        prepared = prepare_shapes(job, own, *device, shapes_of(role, tasks));
        result.uses = device->first_uses();
    } catch (const std::exception& error) {
        log::warn(cat("GEMM algorithms of the first rounds cannot be chosen before training: ",
                      error.what()));
    }
    const std::vector<std::uint64_t> all = gather_numbers(mpi, prepared);
    result.prepared.assign(all.begin(), all.end());
    return result;
}

CostModel profile_ranks(const MpiSession& mpi, const Job& job, const Plan& plan, Backend& backend) {
    const std::vector<ProfileTask> tasks{{plan, {}}};
    const std::vector<ProfileRole> first(static_cast<std::size_t>(mpi.size()));
    const RankProfiles profiles = profile_ranks(mpi, job, tasks, first, backend);
    return profiles.costs.empty() ? CostModel{} : profiles.costs.front().costs;
}

double full_speed_ranks(int ranks, double alone, double together) {
    if (together <= (1.0 + hardly) * alone) return 0.0;
    return std::max(1.0, ranks * alone / together);
}

}  // namespace loratrain
