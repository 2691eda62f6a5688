#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/run_record.h"

namespace loratrain {

/// What the trials of a sweep say of each key.

/// A key of adapters in which trials of a dataset differ.
struct SweptKey {
    std::string name;
    std::vector<std::string> values;    ///< without repetition; numbers in rising order
    std::vector<std::size_t> of_trial;  ///< per trial of SweptTrials, its place in `values`
    /// Share of the objective's variance between trials with different values (eta squared of a
    /// one-way analysis of variance): 0 = the key explains nothing, 1 = everything. None if no two
    /// trials differ in the key, or no two have the same value.
    std::optional<double> eta_squared;
    /// Largest minus smallest objective of the trials that equal the best one in all other keys;
    /// none if the best is the only one.
    std::optional<double> spread_through_best;
};

/// The trials of a dataset in a finished or unfinished run, best first.
struct SweptTrials {
    std::vector<const AdapterResult*> trials;
    std::vector<SweptKey> keys;
    std::size_t complete = 0;  ///< trials that `keys` compares: they trained to their end
};

/// `run` outlives the result.
SweptTrials analyse_sweep(const RunRecord& run, DatasetId dataset);

}  // namespace loratrain
