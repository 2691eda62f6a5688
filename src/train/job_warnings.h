#pragma once

#include <string>
#include <vector>

#include "data/loader.h"
#include "io/weights/base_weights.h"
#include "plan/plan.h"
#include "train/checkpoint/run_state.h"

namespace loratrain {

/// Warnings about a job that is probably not what its author wants.

/// Adds a warning for each file of the dataset that was made with another tokenizer than
/// `tokenizer`, the base's ("" = not known).
void check_tokenizers(const DatasetJob& dataset, const Dataset& data, const std::string& tokenizer,
                      std::vector<std::string>& warnings);

/// What an inbox file has added to a job: adapters and datasets from these numbers on.
struct JobTail {
    std::size_t first_adapter = 0;
    std::size_t first_dataset = 0;
};

/// Facts about the base model (from WeightSource) that warnings compare a job with.
struct BaseFacts {
    std::int64_t positions = 0;  ///< longest sequence of the model; 0 = not known
    std::string tokenizer;       ///< "" = not known
    /// eos_token_id: where generate() of transformers ends.
    std::vector<std::int32_t> end_tokens{};
    std::string dropout_note{};  ///< hf_notes.h; "" = none

    /// What ends a text: `more`, and end_tokens.
    std::vector<std::int32_t> stop_tokens_with(std::vector<std::int32_t> more) const {
        more.insert(more.end(), end_tokens.begin(), end_tokens.end());
        return more;
    }

    static BaseFacts of(const WeightSource& weights);
};

/// Warnings about a job that is probably not what its author wants, each with a remedy:
/// - evaluations without data; a warm-up as long as the training; rungs of a sweep in a warm-up;
/// - a rank above a target's size; dropout that the base has in transformers;
/// - text as bytes for a model with another tokenizer; token files of another tokenizer.json;
/// - batches larger than a dataset;
/// - samples longer than the model's positions; samples that train on every token; batches that
///   train on none;
/// - a label_smoothing that TRL reads otherwise.
/// With `tail`: about its adapters and datasets only.
std::vector<std::string> job_warnings(const Job& job, const Plan& plan, const DatasetFiles& files,
                                      const BaseFacts& base, const JobTail& tail = {});

/// Warnings about adapters whose learning rate jumps because they have more steps than in `former`,
/// the plan of the run that is continued from `state`.
std::vector<std::string> schedule_warnings(const Job& job, const Plan& plan, const Plan& former,
                                           const RunState& state);

}  // namespace loratrain
