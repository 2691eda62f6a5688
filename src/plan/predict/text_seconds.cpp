#include "plan/predict/text_seconds.h"

#include <algorithm>
#include <vector>

#include "plan/cost/cost_model.h"
#include "plan/memory/memory_model.h"
#include "plan/replica_view.h"

namespace loratrain {

namespace {

/// Mean tokens of a sample before those that are trained.
double prompt_tokens(const DatasetInfo& data) {
    double tokens = 0.0;
    for (const SampleInfo& sample : data.train) tokens += sample.tokens - sample.targets;
    return data.train.empty() ? 0.0 : tokens / static_cast<double>(data.train.size());
}

double pipeline_forward(const ReplicaView& view, const MicrobatchLoad& load) {
    double seconds = 0.0;
    for (const StagePlan& stage : view.replica.stages) {
        seconds += forward_seconds(predicted_costs_of(view), stage, load, true);
    }
    return seconds;
}

}  // namespace

TextSeconds text_seconds(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets) {
    TextSeconds result;
    double prompt = 0.0;
    std::int64_t longest = 0;
    std::vector<std::int64_t> together;  // numbers of texts, as Generator has them
    for (const AdapterJob& adapter : job.adapters) {
        if (!adapter.rewards.wanted()) continue;
        result.texts += adapter.global_batch_size;
        if (together.empty() || job.schedule.policy == SchedulePolicy::mlora) together.push_back(0);
        together.back() += adapter.global_batch_size;
        prompt = std::max(prompt, prompt_tokens(datasets[index(*adapter.rewards.prompts)]));
        longest = std::max(longest, adapter.rewards.max_new_tokens);
    }
    if (result.texts == 0) return result;
    const ReplicaView view = view_of(plan, plan.replicas.front());
    const AttentionSpan span(view.lane_model);
    const std::int64_t replicas = std::ssize(plan.replicas);
    const auto tokens = static_cast<std::int64_t>(prompt);
    TextRoom room = text_room(job, view);
    if (together.size() > 1) room.texts = std::min(room.texts, few_texts);
    const std::int64_t fit = std::max<std::int64_t>(1, room.tokens / (tokens + longest));
    for (const std::int64_t texts : together) {
        std::int64_t left = (texts + replicas - 1) / replicas;
        while (left > 0) {
            const std::int64_t rows = std::min({left, room.texts, fit});
            const auto count = static_cast<double>(rows);
            left -= rows;
            result.seconds +=
                pipeline_forward(view, {rows * tokens, count * span.squares(tokens), rows});
            const std::int64_t middle = tokens + longest / 2;
            const double seen = span.squares(middle + 1) - span.squares(middle);
            result.seconds +=
                static_cast<double>(longest) * pipeline_forward(view, {rows, count * seen, rows});
        }
    }
    return result;
}

}  // namespace loratrain
