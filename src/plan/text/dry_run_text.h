#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "plan/plan.h"

namespace loratrain {

/// The first four lines of a dry run.

/// A change of the job file that the planner proposes.
struct JobChange {
    std::string yaml;            ///< whole lines, for example "parallel: {microbatch_tokens: auto}"
    double times_as_fast = 0.0;  ///< compared with the unchanged job; 0 = that does not fit
};

/// What the first lines of a dry run answer.
struct DryRunAnswer {
    const Cluster& cluster;  ///< all ranks
    const Plan& plan;  ///< of the job, with workers of one worker; of the changed job if the job
                       ///< does not fit
    std::string way;   ///< how the ranks are used: "one pipeline", "[{tp: 2, pp: 2}]"
    double seconds = 0.0;             ///< predicted for the whole job
    std::optional<JobChange> change;  ///< none = nothing to change
    std::string costs;                ///< the costs that the prediction uses
    std::string seen;                 ///< what is known of the prediction's error; "" = nothing
};

/// The four lines; each has at most 80 columns, or continues on indented lines:
///   fits      whether the job fits, on what, and GiB of the fullest rank
///   time      of training, without evaluations and checkpoints; GPU-hours; kWh of GPUs at their
///             power limit (plan/cost/device.h)
///   change    YAML for the job file, or that nothing is to be changed
///   certainty what costs the prediction uses, and the error of such predictions so far
std::string describe(const DryRunAnswer& answer);

/// Error of predictions by the costs built in for the device, compared with the speeds of whole
/// runs; "" if the costs are measured.
std::string seen_error_text(const Plan& plan, const Cluster& cluster);

}  // namespace loratrain
