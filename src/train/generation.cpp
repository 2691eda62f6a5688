#include "train/generation.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/activity.h"
#include "base/text.h"
#include "base/threads.h"
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

template <class Archive>
void fields(Archive& archive, DrawnToken& drawn) {
    archive("logprob", drawn.logprob);
    archive("token", drawn.token);
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

Generator::Generator(Parts parts)
    : parts_(std::move(parts)),
      view_(view_of(parts_.plan,
                    parts_.plan.replicas[place_of(parts_.plan, parts_.mpi.rank()).replica])),
      stage_index_(place_of(parts_.plan, parts_.mpi.rank()).stage) {}

std::int64_t Generator::room(const TextOrder& order) const {
    const std::int64_t most = most_positions(view_.lane_model);
    const std::int64_t tokens = std::ssize(order.prompt.tokens);
    return std::max(tokens, std::min(most, tokens + order.max_new_tokens));
}

int Generator::last_rank(std::int32_t lane) const {
    return view_.replica.stages.back().rank - view_.replica.stages.front().rank + lane;
}

std::vector<GeneratedText> Generator::write(Orders orders) {
    std::vector<GeneratedText> all;
    while (!orders.empty()) {
        const std::size_t size = batch_size(orders);
        std::vector<GeneratedText> batch = write_batch(orders.first(size));
        std::move(batch.begin(), batch.end(), std::back_inserter(all));
        orders = orders.subspan(size);
    }
    return all;
}

std::size_t Generator::batch_size(Orders orders) const {
    const auto most = std::min(orders.size(), as_size(cached_texts(parts_.job)));
    std::int64_t tokens = 0;
    std::size_t size = 0;
    while (size < most) {
        tokens += std::ssize(orders[size].prompt.tokens);
        if (size > 0 && tokens > view_.replica.microbatch_tokens) break;
        ++size;
    }
    return size;
}

std::vector<GeneratedText> Generator::write_batch(Orders orders) {
    std::vector<GeneratedText> texts;
    std::vector<Row> rows;
    std::vector<std::int64_t> rooms;
    for (const TextOrder& order : orders) {
        texts.push_back({order.prompt, {}, false});
        rows.push_back({order.prompt.tokens});
        rooms.push_back(room(order));
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
        const std::vector<DrawnToken> next = next_tokens(orders, rows, texts, what);
        for (std::size_t i = 0; i < texts.size(); ++i) {
            const std::int32_t token = next[i].token;
            rows[i].position =
                std::min(rows[i].position + std::ssize(rows[i].tokens), rooms[i] - 1);
            rows[i].tokens = {token};
            if (is_full(i)) continue;
            texts[i].tokens.push_back(token);
            if (!orders[i].draw.is_greedy()) texts[i].logprobs.push_back(next[i].logprob);
            const std::vector<std::int32_t>& stops = orders[i].stop_tokens;
            texts[i].stopped = std::find(stops.begin(), stops.end(), token) != stops.end();
        }
    }
    return texts;
}

std::vector<DrawnToken> Generator::next_tokens(Orders orders, const std::vector<Row>& rows,
                                               std::span<const GeneratedText> texts,
                                               TextCache::Rows what) {
    activity::begin(activity::Task::generate, number(orders.front().adapter));
    forward(orders, rows, what);
    std::vector<DrawnToken> next = orders.front().draw.is_greedy() ? likely_tokens(orders.size())
                                                                   : drawn_tokens(orders, texts);
    LORATRAIN_CHECK(next.size() == rows.size(), next.size(), " tokens for ", rows.size(), " texts");
    if (parts_.meanwhile) parts_.meanwhile();
    return next;
}

std::vector<DrawnToken> Generator::likely_tokens(std::size_t count) {
    std::vector<LikelyToken> own;
    if (is_last_stage()) own = parts_.stage.likely_tokens();
    std::vector<LikelyToken> best(count);
    for (std::int32_t lane = 0; lane < view_.replica.tensor; ++lane) {
        const std::vector<LikelyToken> of_lane = broadcast(parts_.replica, own, last_rank(lane));
        LORATRAIN_CHECK(of_lane.size() == count, of_lane.size(), " tokens for ", count, " texts");
        for (std::size_t i = 0; i < count; ++i) {
            if (lane == 0 || of_lane[i].logit > best[i].logit) best[i] = of_lane[i];
        }
    }
    std::vector<DrawnToken> tokens;
    for (const LikelyToken& likely : best) tokens.push_back({0.0F, likely.token});
    return tokens;
}

/// One rank draws: the sums of others may differ in their last bit. It gets the logits of all
/// lanes.
std::vector<DrawnToken> Generator::drawn_tokens(Orders orders,
                                                std::span<const GeneratedText> texts) {
    std::vector<float> own;
    if (is_last_stage()) {
        parts_.stage.text_logits([&](std::span<const float> logits, std::int64_t /*cols*/) {
            own.insert(own.end(), logits.begin(), logits.end());
        });
    }
    const std::int32_t lanes = view_.replica.tensor;
    std::vector<std::vector<float>> of_lanes(1, std::move(own));
    if (lanes > 1) {
        own = std::exchange(of_lanes, {}).front();
        for (std::int32_t lane = 0; lane < lanes; ++lane) {
            of_lanes.push_back(broadcast(parts_.replica, own, last_rank(lane)));
        }
    }
    std::vector<DrawnToken> drawn(orders.size());
    const bool draws = parts_.replica.rank() == last_rank(0);
    const auto draw = [&](std::size_t i) {
        std::vector<float> row;
        for (const std::vector<float>& logits : of_lanes) {
            const auto cols = std::ssize(logits) / std::ssize(orders);
            const auto begin = logits.begin() + static_cast<std::int64_t>(i) * cols;
            row.insert(row.end(), begin, begin + cols);
        }
        const auto position = static_cast<std::uint32_t>(texts[i].tokens.size());
        drawn[i] = draw_token(row, orders[i].draw, orders[i].draw.uniform(position));
    };
    if (draws) {
        share_rows(std::ssize(orders), view_.lane_model.vocab_size,
                   [&](std::int64_t begin, std::int64_t end) {
                       for (std::int64_t i = begin; i < end; ++i) draw(as_size(i));
                   });
    }
    return broadcast(parts_.replica, drawn, last_rank(0));
}

void Generator::forward(Orders orders, const std::vector<Row>& rows, TextCache::Rows what) {
    PackedBatch packed;
    packed.offsets.push_back(0);
    Microbatch microbatch;
    microbatch.evaluation = true;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto count = static_cast<std::int32_t>(rows[i].tokens.size());
        const auto sample = static_cast<std::int32_t>(i);
        std::vector<Segment>& segments = microbatch.segments;
        if (segments.empty() || segments.back().adapter != orders[i].adapter) {
            segments.push_back({orders[i].adapter, 0, {}});
        }
        segments.back().samples.push_back({sample, count, 1});
        for (std::int32_t t = 0; t < count; ++t) {
            packed.positions.push_back(static_cast<std::int32_t>(rows[i].position) + t);
        }
        packed.token_ids.insert(packed.token_ids.end(), rows[i].tokens.begin(),
                                rows[i].tokens.end());
        packed.targets.resize(packed.token_ids.size(), no_target);
        packed.targets.back() = rows[i].tokens.back();  // any: its logits are asked for
        packed.sample_ids.resize(packed.token_ids.size(), sample);
        packed.offsets.push_back(static_cast<std::int32_t>(packed.token_ids.size()));
    }
    microbatch.columns = lora_columns(parts_.job, view_, microbatch.segments);
    const bool first = stage_index_ == 0;
    const bool last = is_last_stage();
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
