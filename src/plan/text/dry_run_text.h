#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "plan/plan.h"

namespace loratrain {

/// A change of the job file that the planner proposes.
struct JobChange {
    std::string yaml;            ///< whole lines, as "parallel: {microbatch_tokens: auto}"
    double times_as_fast = 0.0;  ///< as the job without it; 0 = that does not fit
};

/// What a person asks first of a job: the first lines of a dry run.
struct DryRunAnswer {
    const Cluster& cluster;  ///< all ranks
    const Plan& plan;        ///< of the job, with `workers` of one of them; else of the changed job
    std::string way;         ///< how the ranks are used: "one pipeline", "[{tp: 2, pp: 2}]"
    double seconds = 0.0;    ///< predicted for the whole job
    std::optional<JobChange> change;  ///< none = nothing to change
    std::string costs;                ///< what the prediction is made with
    std::string seen;                 ///< what is known of its error; "" = nothing
};

/// Four lines, each of at most 80 columns or continued on indented ones:
///   fits      whether the job fits, on what, and GiB of the fullest rank
///   time      of training, without evaluations and checkpoints; GPU-hours; kWh of GPUs at their
///             power limit (plan/cost/device.h)
///   change    YAML for the job file, or that nothing is to be changed
///   certainty what costs the prediction is made with, and how far off such predictions were
std::string describe(const DryRunAnswer& answer);

/// How far off whole runs' speeds were from what the costs built in for a device predict; "" where
/// the costs are measured.
std::string seen_error_text(const Plan& plan, const Cluster& cluster);

}  // namespace loratrain
