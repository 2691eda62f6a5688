#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/sweep/pack_job.h"
#include "plan/sweep/simulate_sweep.h"

namespace loratrain {

/// Packed jobs of one moment, each on as many ranks as its degree says.
struct JobPolicy {
    struct Entry {
        std::size_t degree = 0;  ///< of the degrees given
        PackedJob job;
    };
    std::vector<Entry> jobs;  ///< by falling degree
    double rate() const;      ///< Eq. 13: sum over jobs of value / seconds
};

/// Algorithm 1, decomposed throughput maximisation (PLoRA): of all sequences of non-increasing
/// degrees that fit on `free` ranks, each job F(D, what the ones before leave), the one with the
/// highest rate. (As printed any order of degrees and the least time; jobs differ in what they
/// train, and Appendix C assumes that degrees do not rise.) `degrees`: the replica of each, by
/// falling ranks. Empty where no trial is left or fits.
JobPolicy throughput_policy(std::span<const SweepReplica> degrees,
                            std::span<const std::int32_t> counts, std::span<const double> values,
                            std::int32_t free);

/// A packed job in time.
struct ScheduledJob {
    std::size_t degree = 0;
    std::vector<std::int32_t> counts;  ///< of each class
    double start = 0.0;                ///< seconds
    double end = 0.0;
};

struct JobSchedule {
    std::vector<ScheduledJob> jobs;  ///< as they start
    double seconds = 0.0;
    double ar = 1.0;  ///< last_job_bound of the job that ends last
};

/// Algorithm 2, the job planner: whenever ranks are free, the jobs of throughput_policy start on
/// them; a job holds its ranks as long as simulate_sweep says that its trials take. Error where a
/// trial fits with no degree.
JobSchedule plan_jobs(std::span<const SweepReplica> degrees, const SweepRules& rules,
                      std::span<const std::int32_t> counts, std::span<const double> values,
                      std::int32_t ranks);

}  // namespace loratrain
