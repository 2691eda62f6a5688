#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/run_record.h"

namespace loratrain {

/// A key of adapters in which trials of a dataset differ.
struct SweptKey {
    std::string name;
    std::vector<std::string> values;    ///< different ones, numbers in their order
    std::vector<std::size_t> of_trial;  ///< per trial of SweptTrials, its place in `values`
    /// Share of the variance of the objective that lies between trials of different values: 0 = the
    /// key tells nothing, 1 = all (eta squared, of a one-way analysis of variance). None where it
    /// is not known: no two trials of different values, or none of the same.
    std::optional<double> eta_squared;
    /// Largest less smallest objective of the trials that are as the best in all other keys; none
    /// where there are no others.
    std::optional<double> spread_through_best;
};

/// The trials of a dataset, best first, as a finished or unfinished run tells of them.
struct SweptTrials {
    std::vector<const AdapterResult*> trials;
    std::vector<SweptKey> keys;
    std::size_t complete = 0;  ///< trials that `keys` compares: they trained to their end
};

/// `run` outlives the result.
SweptTrials analyse_sweep(const RunRecord& run, DatasetId dataset);

}  // namespace loratrain
