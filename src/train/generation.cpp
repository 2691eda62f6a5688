#include "train/generation.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/activity.h"
#include "base/text.h"
#include "comm/collective.h"
#include "data/loader.h"
#include "io/json_text.h"
#include "plan/place.h"
#include "plan/schedule/lora_columns.h"

namespace loratrain {

template <class Archive>
void fields(Archive& archive, LikelyToken& likely) {
    archive("logit", likely.logit);
    archive("token", likely.token);
}

namespace {

std::size_t as_size(std::int64_t count) {
    return static_cast<std::size_t>(count);
}

}  // namespace

std::string to_text(const std::vector<GeneratedText>& texts) {
    std::string lines;
    for (const GeneratedText& text : texts) {
        OrderedJson line;
        line["sample"] = text.prompt.sample;
        line["prompt"] = text.prompt.tokens;
        line["generated"] = text.tokens;
        line["reference"] = text.prompt.reference;
        line["stopped"] = text.stopped;
        lines += dump_json(line) + "\n";
    }
    return lines;
}

std::string texts_notice(const std::string& adapter, const std::vector<GeneratedText>& texts,
                         double seconds) {
    std::size_t tokens = 0;
    std::int64_t stopped = 0;
    std::int64_t equal = 0;
    for (const GeneratedText& text : texts) {
        tokens += text.tokens.size();
        stopped += text.stopped ? 1 : 0;
        equal += text.tokens == text.prompt.reference ? 1 : 0;
    }
    return cat("adapter ", adapter, ": ", texts.size(), " generations of ", tokens, " tokens in ",
               format_fixed(seconds, 1), " s, ", stopped, " ended with a stop token, ", equal,
               equal == 1 ? " is its" : " are their", " reference token by token");
}

Generator::Generator(Parts parts, AdapterId adapter)
    : parts_(std::move(parts)),
      adapter_(adapter),
      view_(view_of(parts_.plan,
                    parts_.plan.replicas[place_of(parts_.plan, parts_.mpi.rank()).replica])),
      stage_index_(place_of(parts_.plan, parts_.mpi.rank()).stage) {}

std::int64_t Generator::room(const Prompt& prompt) const {
    const std::int64_t most = most_positions(view_.lane_model);
    const std::int64_t tokens = std::ssize(prompt.tokens);
    return std::max(tokens, std::min(most, tokens + parts_.job.eval.generate.max_new_tokens));
}

bool Generator::ends_text(std::int32_t token) const {
    return std::find(parts_.stop_tokens.begin(), parts_.stop_tokens.end(), token) !=
           parts_.stop_tokens.end();
}

std::vector<GeneratedText> Generator::write(const std::vector<Prompt>& prompts) {
    std::vector<GeneratedText> all;
    for (std::size_t first = 0; first < prompts.size();) {
        const std::size_t end = batch_end(prompts, first);
        std::vector<GeneratedText> batch;
        for (; first < end; ++first) batch.push_back({prompts[first], {}, false});
        write_batch(batch);
        std::move(batch.begin(), batch.end(), std::back_inserter(all));
    }
    return all;
}

std::size_t Generator::batch_end(const std::vector<Prompt>& prompts, std::size_t first) const {
    std::int64_t tokens = 0;
    std::size_t end = first;
    while (end < prompts.size() && end - first < as_size(texts_at_once)) {
        tokens += std::ssize(prompts[end].tokens);
        if (end > first && tokens > view_.replica.microbatch_tokens) break;
        ++end;
    }
    return end;
}

void Generator::write_batch(std::vector<GeneratedText>& texts) {
    std::vector<std::vector<std::int32_t>> rows;
    std::vector<std::int64_t> positions(texts.size(), 0);
    std::vector<std::int64_t> rooms;
    for (const GeneratedText& text : texts) {
        rows.push_back(text.prompt.tokens);
        rooms.push_back(room(text.prompt));
    }
    parts_.stage.begin_texts(rooms);
    const auto is_full = [&](std::size_t i) {
        return texts[i].stopped ||
               std::ssize(texts[i].prompt.tokens) + std::ssize(texts[i].tokens) >= rooms[i];
    };
    const auto any_left = [&] {
        for (std::size_t i = 0; i < texts.size(); ++i) {
            if (!is_full(i)) return true;
        }
        return false;
    };
    for (auto what = TextCache::Rows::prompts; any_left(); what = TextCache::Rows::next) {
        const std::vector<std::int32_t> tokens = next_tokens(rows, positions, what);
        for (std::size_t i = 0; i < texts.size(); ++i) {
            positions[i] = std::min(positions[i] + std::ssize(rows[i]), rooms[i] - 1);
            rows[i] = {tokens[i]};
            if (is_full(i)) continue;
            texts[i].tokens.push_back(tokens[i]);
            texts[i].stopped = ends_text(tokens[i]);
        }
    }
}

std::vector<std::int32_t> Generator::next_tokens(const std::vector<std::vector<std::int32_t>>& rows,
                                                 const std::vector<std::int64_t>& first_positions,
                                                 TextCache::Rows what) {
    activity::begin(activity::Task::generate, number(adapter_));
    forward(rows, first_positions, what);
    const bool last = stage_index_ + 1 == view_.replica.stages.size();
    std::vector<LikelyToken> own;
    if (last) own = parts_.stage.likely_tokens();
    const int first_rank = view_.replica.stages.front().rank;
    std::vector<LikelyToken> best(rows.size());
    for (std::int32_t lane = 0; lane < view_.replica.tensor; ++lane) {
        const int root = view_.replica.stages.back().rank - first_rank + lane;
        const std::vector<LikelyToken> of_lane = broadcast(parts_.replica, own, root);
        LORATRAIN_CHECK(of_lane.size() == rows.size(), of_lane.size(), " tokens for ", rows.size(),
                        " texts");
        for (std::size_t i = 0; i < best.size(); ++i) {
            if (lane == 0 || of_lane[i].logit > best[i].logit) best[i] = of_lane[i];
        }
    }
    if (parts_.meanwhile) parts_.meanwhile();
    std::vector<std::int32_t> tokens;
    for (const LikelyToken& likely : best) tokens.push_back(likely.token);
    return tokens;
}

void Generator::forward(const std::vector<std::vector<std::int32_t>>& rows,
                        const std::vector<std::int64_t>& first_positions, TextCache::Rows what) {
    PackedBatch packed;
    packed.offsets.push_back(0);
    Microbatch microbatch;
    microbatch.segments.push_back({adapter_, 0, {}});
    microbatch.evaluation = true;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto count = static_cast<std::int32_t>(rows[i].size());
        const auto sample = static_cast<std::int32_t>(i);
        microbatch.segments.front().samples.push_back({sample, count, 1});
        for (std::int32_t t = 0; t < count; ++t) {
            packed.positions.push_back(static_cast<std::int32_t>(first_positions[i]) + t);
        }
        packed.token_ids.insert(packed.token_ids.end(), rows[i].begin(), rows[i].end());
        packed.targets.resize(packed.token_ids.size(), no_target);
        packed.targets.back() = rows[i].back();  // any: its logits are asked for
        packed.sample_ids.resize(packed.token_ids.size(), sample);
        packed.offsets.push_back(static_cast<std::int32_t>(packed.token_ids.size()));
    }
    microbatch.columns = lora_columns(parts_.job, view_, microbatch.segments);
    const bool first = stage_index_ == 0;
    const bool last = stage_index_ + 1 == view_.replica.stages.size();
    const std::int64_t tokens = std::ssize(packed.token_ids);
    const std::int32_t lane = parts_.stage.lane();
    const auto message = [&](const TensorView& rows_of_stage) {
        return as_size(rows_of_stage.numel()) * size_of(rows_of_stage.dtype);
    };
    if (!first) {
        const TensorView input = parts_.stage.input(0, tokens);
        parts_.communicator
            .receive(input.data, message(input), view_.replica.stages[stage_index_ - 1].rank + lane,
                     Channel::forward)
            ->wait();
    }
    MicrobatchRows own;
    if (first) own.token_ids = packed.token_ids;
    if (last) own.targets = packed.targets;
    own.positions = packed.positions;
    own.sample_ids = packed.sample_ids;
    own.offsets = packed.offsets;
    parts_.stage.forward_texts(microbatch, own, what);
    if (last) return;
    const TensorView output = parts_.stage.output(0, tokens);
    parts_.communicator
        .send(output.data, message(output), view_.replica.stages[stage_index_ + 1].rank + lane,
              Channel::forward)
        ->wait();
}

}  // namespace loratrain
