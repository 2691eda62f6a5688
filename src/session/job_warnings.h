#pragma once

#include <string>
#include <vector>

#include "session/job_inputs.h"
#include "train/checkpoint/run_state.h"

namespace loratrain {

/// What a job asks for and will hardly want, each with what to do about it: evaluations without
/// data, a warm-up as long as the training, text as bytes for a model with another tokenizer,
/// samples longer than the model's positions, samples that train on every token.
std::vector<std::string> job_warnings(const Job& job, const Plan& plan, const JobInputs& inputs);

/// Adapters with more steps than `former`, the plan of the run that is continued from `state`, had
/// for them, whose learning rate jumps because of it.
std::vector<std::string> schedule_warnings(const Job& job, const Plan& plan, const Plan& former,
                                           const RunState& state);

}  // namespace loratrain
