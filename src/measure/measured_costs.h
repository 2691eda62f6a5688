#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "comm/communicator.h"
#include "comm/mpi_session.h"
#include "measure/trace_recorder.h"
#include "plan/cost/met_shapes.h"
#include "plan/deploy/make_plan.h"

namespace loratrain {

inline constexpr const char* costs_file_name = "costs.json";  ///< in <run.dir>

/// Costs of a job on these ranks. Without keys they are the built-in ones and are kept nowhere.
struct MeasuredCosts {
    /// One for each number of lanes in use; the first replica's comes first.
    std::vector<DegreeCosts> costs{DegreeCosts{}};
    std::vector<std::string> keys;  ///< cost_key() (cost_cache.h) of each of `costs`
    bool fresh = false;             ///< this start has measured them
    std::string from;               ///< the file that has them; "" = none
    std::string observed;           ///< by the run of that file: "240 microbatches"; "" = nothing
    MetShapes met_shapes;           ///< shapes that stages have met before training begins
    bool known() const { return !keys.empty(); }
    const CostModel& of_first() const { return costs.front().costs; }
    /// Writes known costs to a plan: as its costs if it was made with measured ones, else as those
    /// that only predictions use (has_built_in_costs).
    void write_to(Plan& plan) const;
};

/// "chose GEMM algorithms for 7 classes in 1.20 s"; "" if there were no new shapes.
std::string first_uses_text(const FirstUses& uses);
/// The same for the rank that was stalled longest during training. Collective; the result is valid
/// on the root.
std::string longest_first_uses(const MpiSession& mpi, const FirstUses& uses);

/// Costs that earlier runs of `host_size` ranks on this host have measured for such a job: from
/// <run.dir>/costs.json, else from the cache. Unknown if neither file has all of them, or if
/// schedule.costs is built-in. Costs from the run's own file assume that its GEMM algorithms are
/// chosen already.
MeasuredCosts kept_costs(const MpiSession& mpi, const Job& job, const Plan& plan, int host_size);

/// Costs by schedule.costs. `auto` takes the first of these that has them:
/// 1. <run.dir>/costs.json, so that a resumed run plans as before;
/// 2. the cache;
/// 3. a measurement by profile_ranks, for each number of lanes in use.
/// With 1 and 2 the ranks only prepare shapes (prepare_ranks), if prepares_shapes() says so. If the
/// measurement fails the costs stay built in, with a warning. `plan` is made with built-in costs
/// (root). Collective; the root has the result, other ranks have only `fresh`.
MeasuredCosts measure_costs(const MpiSession& mpi, const Job& job, const Plan& plan,
                            std::span<const DatasetInfo> datasets,
                            const std::function<std::unique_ptr<Backend>(const Plan&)>& backend);

/// Plans again with measured costs. Returns `planned`, which was made with built-in costs, if the
/// new split of layers does not fit in memory. `former`: see make_plan.
PlannedJob plan_again(const PlannedJob& planned, const CostModel& costs, const Job& job,
                      std::span<const DatasetInfo> datasets, Cluster cluster, const Plan* former);

/// Completes costs with what messages take, and keeps them in <run.dir>; fresh costs also in the
/// cache. Messages inside a host are measured if the costs are fresh. Links between hosts are
/// measured in every run on several hosts (profile_links.h): the log has them, with a warning for
/// slow ones, and they are kept if the costs have none yet. Collective.
void settle_costs(const MpiSession& mpi, const Job& job, const Plan& plan,
                  Communicator& communicator, Backend& backend, MeasuredCosts& measured);

/// Writes the costs as refined by this run's observations to <run.dir>/costs.json, beside the costs
/// that the run was planned with. Collective.
void refine_costs(const MpiSession& mpi, const Job& job, const Plan& plan, TraceRecorder& recorder,
                  const MeasuredCosts& measured);

}  // namespace loratrain
