#pragma once

#include <string>

#include "plan/sweep/compare_sweep.h"

namespace loratrain {

/// The plan of a sweep, for people: the replicas, a line per way of training the same trials (time,
/// and how many times as fast as Min-GPU), and a picture of every replica's queue.
std::string describe(const SweepComparison& comparison);

/// A line per replica with the number of trials that it trains over time; "+" = ten or more, "." =
/// none.
std::string queue_picture(const SweepDeployment& deployment);

}  // namespace loratrain
