#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/job.h"
#include "config/job_key.h"
#include "config/yaml_reader.h"

namespace loratrain {

/// What a sweep's trials are made of, as the job file says it.
struct SweepSpace {
    SweepMethod method = SweepMethod::grid;
    std::string name;                          ///< what names begin with; may be ""
    std::uint64_t seed = 0;                    ///< of random draws
    const YamlNode* space = nullptr;           ///< of grid and random
    const YamlNode* configurations = nullptr;  ///< of list
    std::size_t count = 0;                     ///< of random
    std::size_t shard = 0;                     ///< of `shards` parts of the trials, this one
    std::size_t shards = 1;
    Place place;
};

inline constexpr std::size_t most_trials = 10000;

/// Reads the keys of `sweep` that make its trials; none where they are wrong, or where the section
/// has no space because its trials are among the adapters or come later (`may_lack`). `seed`:
/// unless it says one.
std::optional<SweepSpace> read_sweep_space(SectionReader& sweep, std::uint64_t seed, bool may_lack);
/// "1/4": the second of four.
extern const OwnKey<SweepSpace> shard_key;

/// One mapping per trial, with the keys of an adapter, its name and `trial: true`; values keep the
/// places where they were written. Grid: every combination, the last key changing fastest. Random:
/// `count` different ones; a value depends on (seed, trial, key) alone and has at most four digits,
/// so that names say what is trained. Names hold what varies: "r8-lr2e-05-b1". Empty, and a
/// problem, where the space is empty, a range has no values, or there are more than most_trials.
/// Of several shards, every `shards`-th trial. `defaults`: of all adapters, for values that are
/// multiples of r.
std::vector<YamlNode> expand_space(const SweepSpace& space, const AdapterJob& defaults,
                                   ProblemLog& log);

/// That the job's trials can be ranked: they have data to be evaluated on, and there are any.
void check_sweep(const Job& job, const Place& place, ProblemLog& log);

}  // namespace loratrain
