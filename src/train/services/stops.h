#pragma once

#include <cstdint>
#include <vector>

#include "train/stream_planner.h"
#include "train/worker.h"

namespace loratrain {

// Adapters that end before their last step, by an order of people or by a sweep's budget.

/// With an empty pipeline: ends the adapter as it is. Where it has trained, it is evaluated and
/// exported.
void stop_adapter(Worker& worker, AdapterId adapter);
/// While the stream goes on: the adapter leaves it before the next window.
void stop_in_stream(Worker& worker, AdapterId adapter, const Progress& planned,
                    StreamChange& change);
/// These cannot be stopped in the stream before the round: none would train on, or one that waits
/// has begun, whose evaluation and export take it back into memory.
bool stops_need_drain(const Worker& worker, const std::vector<AdapterId>& stops,
                      std::int32_t round);
/// With an empty pipeline: ends the trials of a sweep whose budget is spent. Those under way are
/// evaluated as they are.
void end_trials_by_budget(Worker& worker);

}  // namespace loratrain
