#include "io/tokens/token_rules.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>

#include "base/error.h"
#include "base/text.h"

namespace loratrain {

namespace {

/// How a key marks documents, and so what it says of n tokens that are one document.
enum class Marks : std::uint8_t {
    positions,  ///< 0, 1, .. n - 1
    lengths,    ///< [n]
    bounds,     ///< [0, n]
    numbers,    ///< the same for every token
    kinds,      ///< 0 for every token
};

struct DocumentKey {
    const char* name;
    Marks marks;
};

// As axolotl, TRL, torchtune, Megatron and FlashAttention call them.
constexpr DocumentKey document_keys[] = {
    {"position_ids", Marks::positions},   {"input_pos", Marks::positions},
    {"seq_lengths", Marks::lengths},      {"seq_lens", Marks::lengths},
    {"sequence_lengths", Marks::lengths}, {"segment_ids", Marks::numbers},
    {"document_ids", Marks::numbers},     {"doc_ids", Marks::numbers},
    {"sequence_ids", Marks::numbers},     {"seq_idx", Marks::numbers},
    {"cu_seqlens", Marks::bounds},        {"cu_seq_lens", Marks::bounds},
    {"cu_seq_lens_q", Marks::bounds},     {"cu_seq_lens_k", Marks::bounds},
    {"token_type_ids", Marks::kinds}};

constexpr const char* label_masks[] = {"assistant_mask", "assistant_masks", "completion_mask",
                                       "loss_mask",      "labels_mask",     "label_mask"};

struct OtherName {
    const char* other;
    const char* known;
};

// Of keys whose letters are not near.
constexpr OtherName other_names[] = {
    {"label_ids", "labels"},           {"targets", "labels"},
    {"target_ids", "labels"},          {"weight", "weights"},
    {"token_weights", "weights"},      {"label_weights", "weights"},
    {"loss_weights", "weights"},       {"advantage", "advantages"},
    {"old_logprobs", "logprobs"},      {"old_per_token_logps", "logprobs"},
    {"sampling_logprobs", "logprobs"}, {"logps", "logprobs"},
    {"tokens", "input_ids"},           {"ids", "input_ids"},
    {"instruction", "prompt"},         {"question", "prompt"},
    {"response", "completion"},        {"output", "completion"},
    {"answer", "completion"},          {"content", "text"}};

/// What rollouts that a job has written say beside what is trained on.
constexpr const char* reward_keys[] = {"reward", "rewards", "stopped"};

std::string meant_by(const std::string& key, const std::vector<std::string>& known) {
    const auto* found = std::find_if(std::begin(other_names), std::end(other_names),
                                     [&](const OtherName& name) { return key == name.other; });
    const bool named = found != std::end(other_names) &&
                       std::find(known.begin(), known.end(), found->known) != known.end();
    return named ? found->known : nearest(key, known);
}

[[noreturn]] void refuse_documents(const std::string& what) {
    throw LineProblem{what + ": a sample is one document", one_document_hint};
}

/// What the token has in a list of `marks`, where the sample is one document.
Json of_one_document(Marks marks, const Json& list, std::size_t token) {
    if (marks == Marks::positions) return token;
    return marks == Marks::kinds ? Json(0) : list[0];
}

void check_tokens(const DocumentKey& key, const Json& list, std::size_t tokens) {
    if (list.size() != tokens) {
        throw LineProblem{cat(tokens, " input_ids but ", list.size(), " ", key.name),
                          "leave the key out, or give one for each of input_ids"};
    }
    for (std::size_t i = 0; i < tokens; ++i) {
        const Json expected = of_one_document(key.marks, list, i);
        if (list[i] == expected) continue;
        refuse_documents(cat("'", key.name, "'[", i, "] is ", json_text(list[i]), ", not ",
                             json_text(expected)));
    }
}

void check_document_key(const DocumentKey& key, const Json& list, std::size_t tokens) {
    if (list.is_null()) return;
    if (!list.is_array()) {
        throw LineProblem{cat("'", key.name, "' is ", json_kind(list), ", must be a list"),
                          "leave the key out"};
    }
    if (key.marks != Marks::lengths && key.marks != Marks::bounds) {
        return check_tokens(key, list, tokens);
    }
    Json one = Json::array({tokens});
    if (key.marks == Marks::bounds) one.insert(one.begin(), 0);
    if (list == one) return;
    refuse_documents(cat("'", key.name, "' has ", list.size(), " numbers, not ", json_text(one)));
}

/// Labels say what is trained; a mask beside them may only say what they say.
void check_label_mask(const char* key, const Json& mask, const TokenSample& sample) {
    const auto is_zero = [](const Json& value) { return value == 0 || value == false; };
    const std::size_t tokens = sample.labels.size();
    if (!mask.is_array() || mask.size() != tokens) {
        throw LineProblem{cat("'", key, "' is not a list of ", tokens, " numbers"),
                          "leave it out: labels say what is trained"};
    }
    for (std::size_t i = 0; i < tokens; ++i) {
        if (sample.labels[i] == no_target || !is_zero(mask[i])) continue;
        throw LineProblem{
            cat("'", key, "'[", i, "] is 0, but 'labels'[", i, "] is ", sample.labels[i]),
            "make the label -100 where the mask is 0, and leave the mask out"};
    }
}

}  // namespace

void check_line_keys(const Json& line, const std::vector<std::string>& known) {
    std::vector<std::string> unknown;
    std::string meant;
    for (const auto& [key, value] : line.items()) {
        if (std::find(known.begin(), known.end(), key) != known.end()) continue;
        unknown.push_back(cat("'", key, "'"));
        if (meant.empty()) meant = meant_by(key, known);
    }
    if (unknown.empty()) return;
    throw LineProblem{
        cat(unknown.size() > 1 ? "unknown keys " : "unknown key ", join(unknown, ", ")),
        meant.empty() ? "leave out what is not trained on" : cat("did you mean '", meant, "'?")};
}

std::vector<std::string> spare_keys() {
    std::vector<std::string> names{"attention_mask"};
    for (const DocumentKey& key : document_keys) names.emplace_back(key.name);
    names.insert(names.end(), std::begin(label_masks), std::end(label_masks));
    names.insert(names.end(), std::begin(reward_keys), std::end(reward_keys));
    return names;
}

void check_spare_keys(const Json& line, const TokenSample& sample) {
    check_attention_mask(line, "attention_mask");
    for (const char* key : reward_keys) {
        if (!line.contains(key) || line.contains(rollout_keys[0])) continue;
        throw LineProblem{cat("has '", key, "' but no '", rollout_keys[0], "'"),
                          "only rollouts have it, beside the advantages that are made of it"};
    }
    for (const char* mask : label_masks) {
        const auto found = line.find(mask);
        if (found == line.end()) continue;
        if (!line.contains("labels")) {
            throw LineProblem{cat("has '", mask, "' but no 'labels'"),
                              "write labels: the ids, and -100 where the mask is 0"};
        }
        check_label_mask(mask, *found, sample);
    }
    for (const DocumentKey& key : document_keys) {
        const auto found = line.find(key.name);
        if (found != line.end()) check_document_key(key, *found, sample.input_ids.size());
    }
}

void check_attention_mask(const Json& line, const std::string& key) {
    const auto mask = line.find(key);
    if (mask == line.end()) return;
    const auto is_one = [](const Json& value) {
        return value.is_boolean() ? value.get<bool>() : value == 1;
    };
    const auto is_number_of_document = [](const Json& value) {
        return value.is_number() && value > 1;
    };
    if (mask->is_array() && std::all_of(mask->begin(), mask->end(), is_one)) return;
    if (mask->is_array() && std::any_of(mask->begin(), mask->end(), is_number_of_document)) {
        refuse_documents(cat("'", key, "' numbers documents"));
    }
    throw LineProblem{cat("'", key, "' is not all ones: padding inside a sample is not supported"),
                      "leave padding tokens and the mask out"};
}

bool marks_documents(const std::string& key) {
    return std::any_of(std::begin(document_keys), std::end(document_keys),
                       [&](const DocumentKey& known) { return key == known.name; });
}

bool is_weight(double value) {
    return value == 0.0 || (value >= smallest_weight && value <= largest_weight);
}

std::optional<std::size_t> first_bad_weight(std::span<const float> values) {
    const auto bad = std::find_if_not(values.begin(), values.end(),
                                      [](float value) { return is_weight(double{value}); });
    if (bad == values.end()) return std::nullopt;
    return static_cast<std::size_t>(bad - values.begin());
}

std::string rollout_fault(const std::string& key, double value) {
    constexpr double rounding = 1e-5;
    if (!(std::fabs(value) <= double{std::numeric_limits<float>::max()})) return "not finite";
    return key == "logprobs" && value > rounding ? "positive" : "";
}

void settle_weights(TokenSample& sample) {
    bool all_one = true;
    for (std::size_t t = 0; t < sample.weights.size(); ++t) {
        if (sample.weights[t] == 0.0F) sample.labels[t] = no_target;
        if (sample.labels[t] == no_target) sample.weights[t] = 1.0F;
        all_one = all_one && sample.weights[t] == 1.0F;
    }
    if (all_one) sample.weights.clear();
}

}  // namespace loratrain
