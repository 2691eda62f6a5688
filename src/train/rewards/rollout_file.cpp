#include "train/rewards/rollout_file.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <numeric>
#include <sstream>

#include "base/error.h"
#include "io/json_text.h"
#include "io/tokens/token_file.h"

namespace loratrain {

namespace {

constexpr double least_deviation = 1e-4;
constexpr int digits_of_step = 6;

struct Spread {
    double mean = 0.0;
    double deviation = 0.0;
    bool all_equal = true;
};

Spread spread_of(std::span<const double> values) {
    const auto count = static_cast<double>(values.size());
    Spread spread;
    spread.mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
    double squares = 0.0;
    for (const double value : values) {
        squares += (value - spread.mean) * (value - spread.mean);
        spread.all_equal = spread.all_equal && value == values.front();
    }
    if (!spread.all_equal) spread.deviation = std::sqrt(squares / (count - 1.0));
    return spread;
}

OrderedJson text_of(std::span<const std::int32_t> tokens, bool bytes) {
    if (!bytes) return std::vector<std::int32_t>(tokens.begin(), tokens.end());
    std::string text;
    for (const std::int32_t token : tokens) {
        if (token < byte_bos) text += static_cast<char>(token);
    }
    return text;
}

}  // namespace

std::vector<double> advantages_of(std::span<const double> rewards, int group_size,
                                  AdvantageScale scale) {
    const auto size = static_cast<std::size_t>(group_size);
    LORATRAIN_CHECK(rewards.size() % size == 0, rewards.size(), " rewards in groups of ", size);
    std::vector<double> advantages;
    for (std::size_t first = 0; first < rewards.size(); first += size) {
        const std::span<const double> group = rewards.subspan(first, size);
        const Spread spread = spread_of(group);
        const double divisor =
            scale == AdvantageScale::deviation ? spread.deviation + least_deviation : 1.0;
        for (const double reward : group) {
            advantages.push_back(spread.all_equal ? 0.0 : (reward - spread.mean) / divisor);
        }
    }
    return advantages;
}

std::string question_of(const GeneratedText& text, bool bytes, const std::string& adapter,
                        std::int32_t step) {
    OrderedJson line;
    line["prompt"] = text_of(text.prompt.tokens, bytes);
    line["completion"] = text_of(text.tokens, bytes);
    line["reference"] = text_of(text.prompt.reference, bytes);
    line["adapter"] = adapter;
    line["step"] = step;
    line["sample"] = text.prompt.sample;
    line["stopped"] = text.stopped;
    return dump_json(line);
}

std::string rollout_path(const std::string& folder, std::int32_t step) {
    std::ostringstream path;
    path << folder << "step-" << std::setw(digits_of_step) << std::setfill('0') << step << ".jsonl";
    return path.str();
}

std::string to_text(std::span<const Rollout> rollouts, const RewardsJob& rewards,
                    std::int32_t step) {
    std::vector<double> values;
    for (const Rollout& rollout : rollouts) values.push_back(rollout.reward);
    const std::vector<double> advantages =
        advantages_of(values, rewards.group_size, rewards.advantages);
    std::string lines;
    for (std::size_t i = 0; i < rollouts.size(); ++i) {
        const GeneratedText& text = rollouts[i].text;
        const std::size_t of_prompt = text.prompt.tokens.size();
        std::vector<std::int32_t> ids = text.prompt.tokens;
        ids.insert(ids.end(), text.tokens.begin(), text.tokens.end());
        std::vector<std::int32_t> labels(of_prompt, no_target);
        labels.insert(labels.end(), text.tokens.begin(), text.tokens.end());
        std::vector<double> advantage(of_prompt, 0.0);
        advantage.resize(ids.size(), advantages[i]);
        std::vector<double> logprobs(of_prompt, 0.0);
        logprobs.insert(logprobs.end(), text.logprobs.begin(), text.logprobs.end());
        OrderedJson line;
        line["reward"] = rollouts[i].reward;
        if (!rollouts[i].parts.empty()) line["rewards"] = rollouts[i].parts;
        line["stopped"] = text.stopped;
        line["adapter_step"] = step;
        line["input_ids"] = ids;
        line["labels"] = labels;
        line["advantages"] = advantage;
        line["logprobs"] = logprobs;
        lines += dump_json(line) + "\n";
    }
    return lines;
}

std::optional<RolloutMeans> means_of(const std::string& lines, int group_size) {
    std::vector<double> rewards;
    std::map<std::string, std::pair<double, double>> parts;  // sum and number
    double tokens = 0.0;
    double cut_off = 0.0;
    std::istringstream stream(lines);
    try {
        for (std::string text; std::getline(stream, text);) {
            const OrderedJson line = parse_ordered_json(text);
            rewards.push_back(line.at("reward").get<double>());
            const OrderedJson others = line.value("rewards", OrderedJson::object());
            for (const auto& [name, value] : others.items()) {
                parts[name].first += value.get<double>();
                parts[name].second += 1.0;
            }
            cut_off += line.at("stopped").get<bool>() ? 0.0 : 1.0;
            for (const auto& label : line.at("labels")) tokens += label != no_target ? 1.0 : 0.0;
        }
    } catch (const OrderedJson::exception&) {
        return std::nullopt;
    }
    const auto size = static_cast<std::size_t>(group_size);
    if (rewards.empty() || rewards.size() % size != 0) return std::nullopt;
    const auto count = static_cast<double>(rewards.size());
    RolloutMeans means;
    means.reward = spread_of(rewards).mean;
    means.length = tokens / count;
    means.cut_off = cut_off / count;
    for (const auto& [name, sum] : parts) means.parts.emplace_back(name, sum.first / sum.second);
    const double groups = count / group_size;
    for (std::size_t first = 0; first < rewards.size(); first += size) {
        const Spread spread = spread_of(std::span(rewards).subspan(first, size));
        means.deviation += spread.deviation / groups;
        means.equal_groups += (spread.all_equal ? 1.0 : 0.0) / groups;
    }
    return means;
}

}  // namespace loratrain
