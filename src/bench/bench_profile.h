#pragma once

#include <vector>

#include "bench/bench_run.h"

namespace loratrain {

/// Where the time of one window went, by rank.
struct BenchProfile {
    int rounds = 0;
    double seconds = 0.0;        ///< of the window, with the timing in it
    std::vector<OpTimes> ranks;  ///< idle time of a rank: `seconds` - its total()
};

/// Runs the warm-up and then a window of --steps rounds of a fresh pipeline with every op timed.
/// Collective; every rank gets all ranks' times.
BenchProfile profile_window(const CommandLine::Bench& bench, const BenchCase& bench_case,
                            const MpiSession& mpi, Communicator& communicator, Backend& backend);

}  // namespace loratrain
