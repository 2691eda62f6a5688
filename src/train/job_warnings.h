#pragma once

#include <string>
#include <vector>

#include "data/loader.h"
#include "io/weights/base_weights.h"
#include "plan/plan.h"
#include "train/checkpoint/run_state.h"

namespace loratrain {

/// Adapters and datasets of a job from these numbers on: what came last through the inbox.
struct JobTail {
    std::size_t first_adapter = 0;
    std::size_t first_dataset = 0;
};

/// What warnings compare a job with: of WeightSource.
struct BaseFacts {
    std::int64_t positions = 0;  ///< that the model was made for; 0 = not known
    std::string tokenizer;       ///< "" = not known
    /// Its eos_token_id: where generate() of transformers ends.
    std::vector<std::int32_t> end_tokens{};
    std::string dropout_note{};  ///< hf_notes.h; "" = none

    static BaseFacts of(const WeightSource& weights);
};

/// What a job asks for and will hardly want, each with what to do about it: evaluations without
/// data, a warm-up as long as the training, a rank above what a target has, text as bytes for a
/// model with another tokenizer, token files of another tokenizer.json than the base came with,
/// samples longer than the model's positions, samples that train on every token, batches that train
/// on none, rungs of a sweep in a warm-up, dropout that the base has in transformers, a
/// label_smoothing that TRL reads otherwise. With a tail, what is new with it.
std::vector<std::string> job_warnings(const Job& job, const Plan& plan, const DatasetFiles& files,
                                      const BaseFacts& base, const JobTail& tail = {});

/// Adapters with more steps than `former`, the plan of the run that is continued from `state`, had
/// for them, whose learning rate jumps because of it.
std::vector<std::string> schedule_warnings(const Job& job, const Plan& plan, const Plan& former,
                                           const RunState& state);

}  // namespace loratrain
