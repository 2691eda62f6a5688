#pragma once

#include <string>
#include <vector>

#include "data/loader.h"
#include "plan/plan.h"
#include "train/checkpoint/run_state.h"

namespace loratrain {

/// Adapters and datasets of a job from these numbers on: what came last through the inbox.
struct JobTail {
    std::size_t first_adapter = 0;
    std::size_t first_dataset = 0;
};

/// What a job asks for and will hardly want, each with what to do about it: evaluations without
/// data, a warm-up as long as the training, a rank above what a target has, text as bytes for a
/// model with another tokenizer, samples longer than the model's `positions` (0 = not known),
/// samples that train on every token. With a tail, what is new with it.
std::vector<std::string> job_warnings(const Job& job, const Plan& plan, const DatasetFiles& files,
                                      std::int64_t positions, const JobTail& tail = {});

/// Adapters with more steps than `former`, the plan of the run that is continued from `state`, had
/// for them, whose learning rate jumps because of it.
std::vector<std::string> schedule_warnings(const Job& job, const Plan& plan, const Plan& former,
                                           const RunState& state);

}  // namespace loratrain
