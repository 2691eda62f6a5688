#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"

namespace loratrain {

/// The keys of an adapter that learns from what it writes in the job.

/// What a rollout's advantage is, with the rewards of its group, the texts of one prompt: the
/// reward minus their mean; or that divided by their deviation.
enum class AdvantageScale : std::uint8_t { mean, deviation };

/// Before each of its steps the adapter writes `group_size` texts after each prompt of a batch, and
/// a program says how good each is (train/rewards/reward_program.h).
struct RewardsJob {
    std::string program{};  ///< a command of the shell; "" = no rewards
    /// The dataset whose samples begin with the prompts. None: the adapter's `dataset`, until the
    /// job is read, which gives the adapter a dataset of its rollouts (own_rollouts()).
    std::optional<DatasetId> prompts = {};
    int group_size = 8;
    std::int64_t max_new_tokens = 256;
    double temperature = 1.0;
    double top_p = 1.0;
    std::vector<std::int32_t> stop_tokens{};  ///< end a text, as do those of the base
    AdvantageScale advantages = AdvantageScale::deviation;
    double timeout = 60.0;  ///< seconds without an answer that is due

    bool wanted() const { return !program.empty(); }
};

}  // namespace loratrain
