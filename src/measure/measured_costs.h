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

/// What is known of the costs of a job on these ranks; without keys they are built in, and nothing
/// is kept.
struct MeasuredCosts {
    /// For each number of lanes in use, the first replica's first.
    std::vector<DegreeCosts> costs{DegreeCosts{}};
    std::vector<std::string> keys;  ///< of cost_cache.h, theirs
    bool fresh = false;             ///< measured just now
    std::string from;               ///< the file that has them; "" = none
    std::string observed;           ///< by the run of that file: "240 microbatches"; "" = nothing
    MetShapes met_shapes;           ///< that stages have met when training begins
    bool known() const { return !keys.empty(); }
    const CostModel& of_first() const { return costs.front().costs; }
    /// Where they are known: as the costs of a plan that is made with measured ones, else as what
    /// predictions take (has_built_in_costs).
    void write_to(Plan& plan) const;
};

/// "chose GEMM algorithms for 7 classes in 1.20 s"; "" = for none.
std::string first_uses_text(const FirstUses& uses);
/// The same of the rank that it held up longest while it trained; on the root. Collective.
std::string longest_first_uses(const MpiSession& mpi, const FirstUses& uses);

/// Costs that runs of `host_size` ranks on this host have measured for such a job, from
/// <run.dir>/costs.json, else the cache; unknown where neither has all of them or schedule.costs
/// says built-in. Those of the run's own file have no GEMMs' new shapes left to be met.
MeasuredCosts kept_costs(const MpiSession& mpi, const Job& job, const Plan& plan, int host_size);

/// Costs as schedule.costs says. auto: those of <run.dir>/costs.json, so that a resumed run plans
/// as before; else of the cache; else what profile_ranks measures, for each number of lanes in use.
/// Where they are known, what prepares_shapes() says is done alone (prepare_ranks).
/// A profile that fails leaves the built-in costs, with a warning. `plan`: made with built-in costs
/// (root). The result is the root's; others get `fresh` alone. Collective.
MeasuredCosts measure_costs(const MpiSession& mpi, const Job& job, const Plan& plan,
                            std::span<const DatasetInfo> datasets,
                            const std::function<std::unique_ptr<Backend>(const Plan&)>& backend);

/// `planned`, made for the cluster with built-in costs, made again with measured ones; itself where
/// the split by them does not fit in memory. `former`: as make_plan takes it.
PlannedJob plan_again(const PlannedJob& planned, const CostModel& costs, const Job& job,
                      std::span<const DatasetInfo> datasets, Cluster cluster, const Plan* former);

/// Measures messages when the costs are fresh, and keeps them in <run.dir> and, when fresh, in the
/// cache. Where ranks are on several hosts the links between these are measured too
/// (profile_links.h), written to the log, with a warning of slow ones, and kept in both where the
/// costs have none. Collective.
void settle_costs(const MpiSession& mpi, const Job& job, const Plan& plan,
                  Communicator& communicator, Backend& backend, MeasuredCosts& measured);

/// Keeps the costs refined by what the run has observed in <run.dir>/costs.json, beside those that
/// it was planned with. Collective.
void refine_costs(const MpiSession& mpi, const Job& job, const Plan& plan, TraceRecorder& recorder,
                  const MeasuredCosts& measured);

}  // namespace loratrain
