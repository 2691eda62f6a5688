#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/job.h"
#include "train/records/metrics.h"
#include "train/text_order.h"

namespace loratrain {

/// What an adapter with rewards trains on: <folder>/step-000017.jsonl has the texts of the step
/// after 17 steps, in groups (formats of a line: io/tokens/token_file.h, and `reward`).

/// A text and what the reward program has said of it.
struct Rollout {
    GeneratedText text;
    double reward = 0.0;
    std::map<std::string, double> parts;  ///< other numbers of the program's answer
};

/// The advantage of each text of groups of `group_size` neighbours. With mean m and standard
/// deviation s (of a sample: divided by n - 1) of a group's rewards: r - m, or (r - m) / (s + 1e-4)
/// as in TRL. 0 where all rewards of a group are equal.
std::vector<double> advantages_of(std::span<const double> rewards, int group_size,
                                  AdvantageScale scale);

/// The line that the reward program reads. Of `bytes` prompt, completion and reference are texts,
/// without the tokens that begin and end them, else lists of token ids.
std::string question_of(const GeneratedText& text, bool bytes, const std::string& adapter,
                        std::int32_t step);

std::string rollout_path(const std::string& folder, std::int32_t step);
std::string to_text(std::span<const Rollout> rollouts, const RewardsJob& rewards,
                    std::int32_t step);

/// Means over the texts of a step for its metrics. None of lines that to_text() has not written.
std::optional<RolloutMeans> means_of(const std::string& lines, int group_size);

}  // namespace loratrain
