#pragma once

#include <cstdint>
#include <string>

#include "fuzz/target.h"

namespace loratrain::fuzz {

struct Limits {
    /// Of the processor for all cases, after which no other begins; 0 = as many as are wanted.
    double all_seconds = 0.0;
    double seconds = 20.0;                          ///< of the processor, for a case
    double idle_seconds = 600.0;                    ///< of a case that waits for something
    std::uint64_t bytes = std::uint64_t{2} << 30U;  ///< resident memory
};

struct Tally {
    std::uint64_t cases = 0;
    std::uint64_t refused = 0;  ///< by InputError
    std::uint64_t findings = 0;
    double all_seconds = 0.0;        ///< of the processor
    double slowest = 0.0;            ///< seconds of the processor for a case
    std::uint64_t slowest_case = 0;  ///< its number

    void add(const Tally& other);
};

/// Key of a case: cases of a seed do not depend on how many there are.
std::uint64_t case_key(std::uint64_t seed, const TargetKind& kind, std::uint64_t number);

/// Runs cases [first, last), or as many of them as there is time for, in processes of their own,
/// one after another; prints every finding with what repeats it.
Tally run_cases(const TargetKind& kind, std::uint64_t seed, std::uint64_t first, std::uint64_t last,
                const Limits& limits);

/// Runs one case in this process and says what came of it; its files stay in the folder it names.
void run_one(const TargetKind& kind, std::uint64_t seed, std::uint64_t number);

}  // namespace loratrain::fuzz
