#include "plan/predict/text_seconds.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "plan/cost/cost_model.h"
#include "plan/memory/memory_model.h"
#include "plan/replica_view.h"

namespace loratrain {

namespace {

/// What a replica writes after the prompts of a dataset.
struct TextShare {
    double texts = 0.0;   ///< of all texts
    double prompt = 0.0;  ///< mean tokens of a prompt; 0 without texts
};

/// About as deal_texts() deals them: a text goes to the replicas in turn that hold its prompt.
std::vector<TextShare> text_shares(const DatasetInfo& data, const Plan& plan) {
    std::vector<TextShare> shares(plan.replicas.size());
    const auto holds = [&](std::size_t replica, std::int64_t prompt) {
        return prompt <= plan.replicas[replica].microbatch_tokens;
    };
    for (const SampleInfo& sample : data.train) {
        const std::int64_t prompt = sample.tokens - sample.targets;
        std::int64_t holders = 0;
        for (std::size_t i = 0; i < shares.size(); ++i) holders += holds(i, prompt) ? 1 : 0;
        for (std::size_t i = 0; i < shares.size(); ++i) {
            if (!holds(i, prompt)) continue;
            const double part = 1.0 / static_cast<double>(holders);
            shares[i].texts += part;
            shares[i].prompt += part * static_cast<double>(prompt);
        }
    }
    const auto samples = static_cast<double>(data.train.size());
    for (TextShare& share : shares) {
        if (share.texts == 0.0) continue;
        share.prompt /= share.texts;
        share.texts /= samples;
    }
    return shares;
}

double pipeline_forward(const ReplicaView& view, const MicrobatchLoad& load) {
    double seconds = 0.0;
    for (const StagePlan& stage : view.replica.stages) {
        seconds += forward_seconds(predicted_costs_of(view), stage, load, true);
    }
    return seconds;
}

/// What a replica writes in a step.
struct ReplicaTexts {
    std::vector<double> together{};  ///< numbers of texts, as Generator has them
    std::int64_t prompt = 0;         ///< tokens of the prompts, of the adapter with the longest
};

double seconds_of_texts(const Job& job, const ReplicaView& view, const ReplicaTexts& texts,
                        std::int64_t longest) {
    const AttentionSpan span(view.lane_model);
    const std::int64_t tokens = texts.prompt;
    TextRoom room = text_room(job, view);
    if (texts.together.size() > 1) room.texts = std::min(room.texts, few_texts);
    const std::int64_t fit = std::max<std::int64_t>(1, room.tokens / (tokens + longest));
    constexpr double rounding = 1e-6;
    double seconds = 0.0;
    for (const double count_of : texts.together) {
        auto left = static_cast<std::int64_t>(std::ceil(count_of - rounding));
        while (left > 0) {
            const std::int64_t rows = std::min({left, room.texts, fit});
            const auto count = static_cast<double>(rows);
            left -= rows;
            seconds += pipeline_forward(view, {rows * tokens, count * span.squares(tokens), rows});
            const std::int64_t middle = tokens + longest / 2;
            const double seen = span.squares(middle + 1) - span.squares(middle);
            seconds +=
                static_cast<double>(longest) * pipeline_forward(view, {rows, count * seen, rows});
        }
    }
    return seconds;
}

}  // namespace

TextSeconds text_seconds(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets) {
    TextSeconds result;
    std::int64_t longest = 0;
    std::vector<ReplicaTexts> replicas(plan.replicas.size());
    for (const AdapterJob& adapter : job.adapters) {
        if (!adapter.rewards.wanted()) continue;
        result.texts += adapter.global_batch_size;
        longest = std::max(longest, adapter.rewards.max_new_tokens);
        const auto shares = text_shares(datasets[index(*adapter.rewards.prompts)], plan);
        for (std::size_t i = 0; i < replicas.size(); ++i) {
            std::vector<double>& together = replicas[i].together;
            if (together.empty() || job.schedule.policy == SchedulePolicy::mlora) {
                together.push_back(0.0);
            }
            together.back() += shares[i].texts * static_cast<double>(adapter.global_batch_size);
            replicas[i].prompt =
                std::max(replicas[i].prompt, static_cast<std::int64_t>(shares[i].prompt));
        }
    }
    if (result.texts == 0) return result;
    for (std::size_t i = 0; i < replicas.size(); ++i) {
        const ReplicaView view = view_of(plan, plan.replicas[i]);
        result.seconds =
            std::max(result.seconds, seconds_of_texts(job, view, replicas[i], longest));
    }
    return result;
}

}  // namespace loratrain
