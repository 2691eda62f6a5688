#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/job.h"
#include "config/job_key.h"
#include "config/yaml_reader.h"

namespace loratrain {

/// What a sweep's trials are made of, as in the job file.
struct SweepSpace {
    SweepMethod method = SweepMethod::grid;
    std::string name;                          ///< prefix of the trials' names; may be ""
    std::uint64_t seed = 0;                    ///< random: seed of the draws
    const YamlNode* space = nullptr;           ///< grid and random
    const YamlNode* configurations = nullptr;  ///< list
    std::size_t count = 0;                     ///< random: number of trials
    std::size_t shard = 0;  ///< index of this part, of `shards` parts of the trials
    std::size_t shards = 1;
    Place place;
};

inline constexpr std::size_t most_trials = 10000;

/// Reads the keys of `sweep` that make its trials. `seed`: used if the section has none. None if
/// the keys are wrong. Also none if the section has no space, which `may_lack` allows because
/// trials are among the adapters or come later.
std::optional<SweepSpace> read_sweep_space(SectionReader& sweep, std::uint64_t seed, bool may_lack);
/// "1/4": the second of four.
extern const OwnKey<SweepSpace> shard_key;

/// One mapping per trial: the keys of an adapter, its name and `trial: true`. Values keep the
/// places where they were written.
/// - grid: every combination, the last key changing fastest;
/// - random: `count` different trials. A value depends on (seed, trial, key) alone and has at most
///   four digits, so that names say what is trained;
/// - several shards: every `shards`-th trial.
///
/// Names contain the values that vary: "r8-lr2e-05-b1". `defaults`: of all adapters, for values
/// that are multiples of r. Logs a problem and returns no trials if the space is empty, a range has
/// no values, or there are more than most_trials.
std::vector<YamlNode> expand_space(const SweepSpace& space, const AdapterJob& defaults,
                                   ProblemLog& log);

/// Checks that the job's trials can be ranked: there are trials, and they have evaluation data.
void check_sweep(const Job& job, const Place& place, ProblemLog& log);

}  // namespace loratrain
