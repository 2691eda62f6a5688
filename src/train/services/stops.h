#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/stream_planner.h"
#include "train/worker.h"

namespace loratrain {

/// Ends adapters and trials before their last step, by an order of people or by a sweep's budget,
/// and adapters that cannot go on.

/// With an empty pipeline: ends the adapter as it is. If it has trained, it is evaluated and
/// exported.
void stop_adapter(Worker& worker, AdapterId adapter);
/// The adapter has failed: its folder, its status and the log say why.
void fail_adapter(Worker& worker, AdapterId adapter, const std::string& why);
/// During a stream: the adapter leaves it before the next window.
void stop_in_stream(Worker& worker, AdapterId adapter, const Progress& planned,
                    StreamChange& change);
/// True if `stops` cannot be stopped in the stream before `round`: no adapter would train on, or
/// one of them waits and has begun, so that its evaluation and export need it back in memory.
bool stops_need_drain(const Worker& worker, const std::vector<AdapterId>& stops,
                      std::int32_t round);
/// With an empty pipeline: ends all trials of a sweep whose budget is spent. Trials that have begun
/// are evaluated as they are.
void end_trials_by_budget(Worker& worker);

}  // namespace loratrain
