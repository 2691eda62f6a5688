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
void fields(Archive& archive, ChosenToken& chosen) {
    archive("logit", chosen.logit);
    archive("logprob", chosen.logprob);
    archive("token", chosen.token);
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
      stage_index_(place_of(parts_.plan, parts_.mpi.rank()).stage),
      short_length_(short_length(view_.lane_model)) {}

std::int64_t Generator::room(const TextOrder& order) const {
    const std::int64_t tokens = std::ssize(order.prompt.tokens);
    const std::int64_t all = tokens + order.max_new_tokens;
    if (tokens > short_length_ || view_.replica.microbatch_tokens > short_length_) return all;
    return std::min(short_length_, all);
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
    TextRoom room = text_room(parts_.job, view_);
    if (parts_.job.schedule.policy == SchedulePolicy::mlora) {
        const auto others = std::find_if(orders.begin(), orders.end(), [&](const TextOrder& order) {
            return order.adapter != orders.front().adapter;
        });
        orders = orders.first(as_size(others - orders.begin()));
        // What there is for the adapter at least, also if it is alone in the job.
        room.texts = std::min(std::ssize(orders), few_texts);
        room.tokens = view_.replica.microbatch_tokens + room.texts * orders.front().max_new_tokens;
    }
    const auto most = as_size(std::min(
        {std::ssize(orders), room.texts, view_.replica.microbatch_tokens}));  // rows of a forward
    std::int64_t tokens = 0;
    std::size_t size = 0;
    while (size < most) {
        tokens += this->room(orders[size]);
        if (size > 0 && tokens > room.tokens) break;
        ++size;
    }
    return size;
}

Generator::Part Generator::prompts_from(const Batch& batch, std::size_t first) const {
    Part part{first, 0};
    std::int64_t tokens = 0;
    for (std::size_t i = first; i < batch.orders.size(); ++i) {
        tokens += std::ssize(batch.orders[i].prompt.tokens);
        if (part.count > 0 && tokens > view_.replica.microbatch_tokens) break;
        ++part.count;
    }
    return part;
}

bool Generator::Batch::is_full(std::size_t text) const {
    const GeneratedText& of = texts[text];
    return of.stopped || std::ssize(of.prompt.tokens) + std::ssize(of.tokens) >= rooms[text];
}

std::vector<GeneratedText> Generator::write_batch(Orders orders) {
    Batch batch{orders};
    for (const TextOrder& order : orders) {
        batch.texts.push_back({order.prompt, {}, false});
        batch.rows.push_back({order.prompt.tokens});
        batch.rooms.push_back(room(order));
    }
    parts_.stage.begin_texts(batch.rooms);
    const auto any_left = [&] {
        for (std::size_t i = 0; i < batch.texts.size(); ++i) {
            if (!batch.is_full(i)) return true;
        }
        return false;
    };
    if (!any_left()) return batch.texts;
    for (Part part = prompts_from(batch, 0); part.count > 0;
         part = prompts_from(batch, part.first + part.count)) {
        write_tokens(batch, part, TextCache::Rows::prompts);
    }
    while (any_left()) {
        compute_anew(batch);
        write_tokens(batch, {0, orders.size()}, TextCache::Rows::next);
    }
    return batch.texts;
}

void Generator::compute_anew(Batch& batch) {
    for (std::size_t i = 0; i < batch.texts.size(); ++i) {
        Row& row = batch.rows[i];
        if (row.position != short_length_ || batch.is_full(i)) continue;
        const Row newest = std::exchange(row, {batch.texts[i].prompt.tokens});
        const std::vector<std::int32_t>& written = batch.texts[i].tokens;
        row.tokens.insert(row.tokens.end(), written.begin(), written.end());
        forward(batch, {i, 1}, TextCache::Rows::prompts);
        row = newest;
    }
}

void Generator::write_tokens(Batch& batch, const Part& part, TextCache::Rows what) {
    const Orders orders = batch.orders.subspan(part.first, part.count);
    activity::begin(activity::Task::generate, number(orders.front().adapter));
    forward(batch, part, what);
    std::vector<TokenDraw> draws;
    for (std::size_t i = 0; i < part.count; ++i) {
        const std::size_t position = batch.texts[part.first + i].tokens.size();
        draws.push_back(orders[i].draw.of_token(static_cast<std::uint32_t>(position)));
    }
    const std::vector<ChosenToken> next = choose(draws);
    LORATRAIN_CHECK(next.size() == part.count, next.size(), " tokens for ", part.count, " texts");
    for (std::size_t i = 0; i < part.count; ++i) {
        const std::size_t at = part.first + i;
        const std::int32_t token = next[i].token;
        Row& row = batch.rows[at];
        row.position = std::min(row.position + std::ssize(row.tokens), batch.rooms[at] - 1);
        row.tokens = {token};
        if (batch.is_full(at)) continue;
        GeneratedText& text = batch.texts[at];
        text.tokens.push_back(token);
        if (!orders[i].draw.is_greedy()) text.logprobs.push_back(next[i].logprob);
        const std::vector<std::int32_t>& stops = orders[i].stop_tokens;
        text.stopped = std::find(stops.begin(), stops.end(), token) != stops.end();
    }
    if (parts_.meanwhile) parts_.meanwhile();
}

/// One rank chooses: the sums of others may differ in their last bit.
std::vector<ChosenToken> Generator::choose(std::span<const TokenDraw> draws) {
    if (view_.replica.tensor > 1) {
        return draws.front().temperature == 0.0 ? likely_of_lanes(draws) : drawn_of_lanes(draws);
    }
    std::vector<ChosenToken> own;
    if (is_last_stage()) own = parts_.stage.choose_tokens(draws);
    return broadcast(parts_.replica, own, last_rank(0));
}

std::vector<ChosenToken> Generator::likely_of_lanes(std::span<const TokenDraw> draws) {
    std::vector<ChosenToken> own;
    if (is_last_stage()) own = parts_.stage.choose_tokens(draws);
    std::vector<ChosenToken> best;
    for (std::int32_t lane = 0; lane < view_.replica.tensor; ++lane) {
        const std::vector<ChosenToken> of_lane = broadcast(parts_.replica, own, last_rank(lane));
        if (lane == 0) best = of_lane;
        for (std::size_t i = 0; i < best.size(); ++i) {
            if (of_lane.at(i).logit > best[i].logit) best[i] = of_lane[i];
        }
    }
    return best;
}

/// The rank that chooses gets the logits of all lanes.
std::vector<ChosenToken> Generator::drawn_of_lanes(std::span<const TokenDraw> draws) {
    std::vector<float> own;
    if (is_last_stage()) {
        parts_.stage.text_logits([&](std::span<const float> logits, std::int64_t /*cols*/) {
            own.insert(own.end(), logits.begin(), logits.end());
        });
    }
    std::vector<std::vector<float>> of_lanes;
    for (std::int32_t lane = 0; lane < view_.replica.tensor; ++lane) {
        of_lanes.push_back(broadcast(parts_.replica, own, last_rank(lane)));
    }
    std::vector<ChosenToken> chosen(draws.size());
    const auto choose_one = [&](std::int64_t i) {
        std::vector<float> row;
        for (const std::vector<float>& logits : of_lanes) {
            const auto cols = std::ssize(logits) / std::ssize(draws);
            const auto begin = logits.begin() + i * cols;
            row.insert(row.end(), begin, begin + cols);
        }
        chosen[as_size(i)] = choose_token(row, draws[as_size(i)]);
    };
    if (parts_.replica.rank() == last_rank(0)) {
        share_rows(std::ssize(draws), view_.lane_model.vocab_size,
                   [&](std::int64_t begin, std::int64_t end) {
                       for (std::int64_t i = begin; i < end; ++i) choose_one(i);
                   });
    }
    return broadcast(parts_.replica, chosen, last_rank(0));
}

void Generator::forward(const Batch& batch, const Part& part, TextCache::Rows what) {
    PackedBatch packed;
    packed.offsets.push_back(0);
    Microbatch microbatch;
    microbatch.evaluation = true;
    for (std::size_t i = 0; i < part.count; ++i) {
        const Row& row = batch.rows[part.first + i];
        const AdapterId adapter = batch.orders[part.first + i].adapter;
        const auto count = static_cast<std::int32_t>(row.tokens.size());
        const auto sample = static_cast<std::int32_t>(i);
        std::vector<Segment>& segments = microbatch.segments;
        if (segments.empty() || segments.back().adapter != adapter) {
            segments.push_back({adapter, 0, {}});
        }
        segments.back().samples.push_back({sample, count, 1});
        for (std::int32_t t = 0; t < count; ++t) {
            packed.positions.push_back(static_cast<std::int32_t>(row.position) + t);
        }
        packed.token_ids.insert(packed.token_ids.end(), row.tokens.begin(), row.tokens.end());
        packed.targets.resize(packed.token_ids.size(), no_target);
        packed.targets.back() = row.tokens.back();  // any: its logits are asked for
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
    parts_.stage.forward_texts(microbatch, own, what, static_cast<std::int64_t>(part.first));
    if (last) return;
    const TensorView output = parts_.stage.output(0, tokens);
    parts_.communicator
        .send(output.data, message(output), view_.replica.stages[stage_index_ + 1].rank + lane,
              Channel::forward)
        ->wait();
}

}  // namespace loratrain
