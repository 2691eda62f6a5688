#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "io/capped_problems.h"
#include "io/json_text.h"
#include "io/raw_file.h"
#include "io/tokens/token_formats.h"
#include "io/tokens/token_rules.h"

namespace loratrain {

namespace {

constexpr std::size_t scan_bytes = 4U << 20U;
constexpr std::size_t longest_line = 256U << 20U;  // of which a Line's numbers hold every count
constexpr const char* prepare_hint = "make the file with scripts/prepare_data.py";

/// A line's: one, or the two of a pair.
using Samples = std::vector<TokenSample>;

std::vector<std::int32_t> read_ids(const Json& line, const std::string& key,
                                   std::int32_t smallest) {
    const Json& list = line[key];
    if (!list.is_array()) {
        throw LineProblem{cat("'", key, "' is ", json_kind(list), ", must be a list of ids"),
                          prepare_hint};
    }
    std::vector<std::int32_t> ids;
    ids.reserve(list.size());
    for (const Json& value : list) {
        const bool whole = value.is_number_integer();
        const bool fits = whole && value.get<std::int64_t>() >= smallest &&
                          value.get<std::int64_t>() <= INT32_MAX &&
                          (!value.is_number_unsigned() || value.get<std::uint64_t>() <= INT32_MAX);
        if (!fits) {
            const char* low = smallest < 0 ? "too small" : "negative";
            const char* fault =
                !whole ? "not a whole number" : (value.is_number_unsigned() ? "too large" : low);
            throw LineProblem{
                cat("'", key, "'[", ids.size(), "] is ", json_text(value), ": ", fault),
                prepare_hint};
        }
        ids.push_back(value.get<std::int32_t>());
    }
    return ids;
}

/// `weights` where there are any.
void read_weights(const Json& line, TokenSample& sample) {
    const auto found = line.find("weights");
    if (found == line.end()) return;
    if (!found->is_array()) {
        throw LineProblem{cat("'weights' is ", json_kind(*found), ", must be a list of numbers"),
                          "give one for each of input_ids"};
    }
    for (const Json& value : *found) {
        if (!value.is_number() || !is_weight(value.get<double>())) {
            throw LineProblem{cat("'weights'[", sample.weights.size(), "] is ", json_text(value)),
                              weight_hint};
        }
        sample.weights.push_back(value.get<float>());
    }
    if (sample.weights.size() != sample.input_ids.size()) {
        throw LineProblem{
            cat(sample.input_ids.size(), " input_ids but ", sample.weights.size(), " weights"),
            "give one for each of input_ids"};
    }
    settle_weights(sample);
}

void read_adapter_step(const Json& line, TokenSample& sample) {
    const auto found = line.find(adapter_step_key);
    if (found == line.end()) return;
    if (sample.advantages.empty()) {
        throw LineProblem{cat("has '", adapter_step_key, "' but no '", rollout_keys[0], "'"),
                          "only rollouts have it"};
    }
    const bool whole = found->is_number_integer();
    const std::int64_t steps = whole ? found->get<std::int64_t>() : -1;
    if (steps < 0 || steps > INT32_MAX) {
        throw LineProblem{cat("'", adapter_step_key, "' is ", json_text(*found)),
                          adapter_step_hint};
    }
    sample.adapter_step = static_cast<std::int32_t>(steps);
}

/// `advantages` and `logprobs` where there are any.
void read_rollout(const Json& line, TokenSample& sample) {
    if (!line.contains(rollout_keys[0]) && !line.contains(rollout_keys[1])) return;
    std::vector<float>* const lists[] = {&sample.advantages, &sample.logprobs};
    for (std::size_t i = 0; i < std::size(lists); ++i) {
        const std::string key = rollout_keys[i];
        const auto found = line.find(key);
        if (found == line.end()) {
            throw LineProblem{cat("has '", rollout_keys[1 - i], "' but no '", key, "'"),
                              "a rollout has both, one number for each of input_ids"};
        }
        if (!found->is_array()) {
            throw LineProblem{
                cat("'", key, "' is ", json_kind(*found), ", must be a list of numbers"),
                "give one for each of input_ids"};
        }
        for (const Json& value : *found) {
            const std::string fault =
                value.is_number() ? rollout_fault(key, value.get<double>()) : "no number";
            if (!fault.empty()) {
                throw LineProblem{
                    cat("'", key, "'[", lists[i]->size(), "] is ", json_text(value), ": ", fault),
                    rollout_hint};
            }
            lists[i]->push_back(value.get<float>());
        }
        if (lists[i]->size() != sample.input_ids.size()) {
            throw LineProblem{
                cat(sample.input_ids.size(), " input_ids but ", lists[i]->size(), " ", key),
                "give one for each of input_ids"};
        }
    }
}

/// input_ids and labels, whose keys begin with `prefix`.
TokenSample read_labelled(const Json& line, const std::string& prefix) {
    TokenSample sample{read_ids(line, prefix + "input_ids", 0),
                       read_ids(line, prefix + "labels", INT32_MIN)};
    if (sample.input_ids.empty()) throw LineProblem{"sample is empty", "remove the line"};
    if (sample.labels.size() != sample.input_ids.size()) {
        throw LineProblem{cat(sample.input_ids.size(), " ", prefix, "input_ids but ",
                              sample.labels.size(), " ", prefix, "labels"),
                          prepare_hint};
    }
    return sample;
}

std::optional<bool> label_of(const Json& line) {
    const auto label = line.find("label");
    if (label == line.end()) return std::nullopt;
    if (label->is_boolean()) return label->get<bool>();
    throw LineProblem{
        cat("'label' is ", json_text(*label), ", must be true or false"),
        "it says whether a completion is desirable (loss: kto); leave it out elsewhere"};
}

bool is_pair(const Json& line) {
    constexpr const char* keys[] = {"chosen", "rejected", "chosen_input_ids", "rejected_input_ids"};
    return std::any_of(std::begin(keys), std::end(keys),
                       [&](const char* key) { return line.contains(key); });
}

void require_keys(const Json& line, std::initializer_list<const char*> keys,
                  const std::string& hint) {
    for (const char* key : keys) {
        if (!line.contains(key)) throw LineProblem{cat("a pair without '", key, "'"), hint};
    }
}

void refuse_token_lists(const Json& line, const char* what) {
    for (const char* key : {"weights", rollout_keys[0], rollout_keys[1], adapter_step_key}) {
        if (!line.contains(key)) continue;
        throw LineProblem{cat("has '", key, "', but is ", what),
                          cat(key, " are of single samples of tokens: input_ids, labels, ", key)};
    }
}

constexpr const char* pair_prefixes[] = {"chosen_", "rejected_"};

std::vector<std::string> pair_keys() {
    std::vector<std::string> keys;
    for (const char* prefix : pair_prefixes) {
        for (const char* key : {"input_ids", "labels", "attention_mask"}) {
            keys.push_back(cat(prefix, key));
        }
    }
    return keys;
}

std::vector<std::string> token_keys(bool labelled) {
    std::vector<std::string> keys = spare_keys();
    keys.insert(keys.begin(), {"input_ids", "labels", "weights", rollout_keys[0], rollout_keys[1],
                               adapter_step_key});
    if (labelled) keys.emplace_back("label");
    return keys;
}

Samples read_token_line(const Json& line) {
    if (is_pair(line)) {
        refuse_token_lists(line, "a pair");
        require_keys(line,
                     {"chosen_input_ids", "chosen_labels", "rejected_input_ids", "rejected_labels"},
                     line.contains("prompt") ? std::string("text must become tokens first: ") +
                                                   prepare_hint + ", or set tokenizer: bytes"
                                             : prepare_hint);
        check_line_keys(line, pair_keys());
        for (const char* prefix : pair_prefixes) {
            check_attention_mask(line, cat(prefix, "attention_mask"));
        }
        return {read_labelled(line, pair_prefixes[0]), read_labelled(line, pair_prefixes[1])};
    }
    if (!line.contains("input_ids")) {
        const bool text = line.contains("text") || line.contains("prompt");
        throw LineProblem{"has no 'input_ids'",
                          text ? std::string("text must become tokens first: ") + prepare_hint +
                                     ", or set tokenizer: bytes"
                               : prepare_hint};
    }
    const bool labelled = line.contains("labels");
    check_line_keys(line, token_keys(labelled));
    TokenSample sample;
    if (labelled) {
        sample = read_labelled(line, "");
        sample.label = label_of(line);
    } else {
        sample.input_ids = read_ids(line, "input_ids", 0);
        if (sample.input_ids.empty()) throw LineProblem{"sample is empty", "remove the line"};
        sample.labels = sample.input_ids;
    }
    check_spare_keys(line, sample);
    read_weights(line, sample);
    read_rollout(line, sample);
    read_adapter_step(line, sample);
    if (!sample.advantages.empty() && (sample.label || line.contains("weights"))) {
        throw LineProblem{cat("has advantages and ", sample.label ? "a label" : "weights"),
                          "losses of rollouts do not use it: a token's advantage is its weight"};
    }
    if (sample.label && !sample.weights.empty()) {
        throw LineProblem{"has weights and a label",
                          "loss kto does not use weights: leave out the weights or the label"};
    }
    return {sample};
}

std::string read_text_field(const Json& line, const char* key) {
    const Json& value = line[key];
    if (value.is_string()) return value.get<std::string>();
    throw LineProblem{cat("'", key, "' is ", json_kind(value), ", must be a string"), ""};
}

Samples read_text_line(const Json& line) {
    refuse_token_lists(line, "text");
    if (is_pair(line)) {
        require_keys(line, {"prompt", "chosen", "rejected"},
                     line.contains("chosen_input_ids") ? "it holds tokens: remove tokenizer: bytes"
                                                       : R"(write {"prompt": ..., "chosen": ..., )"
                                                         R"("rejected": ...})");
        check_line_keys(line, {"prompt", "chosen", "rejected"});
        const std::string prompt = read_text_field(line, "prompt");
        return {tokenize_bytes(prompt, read_text_field(line, "chosen")),
                tokenize_bytes(prompt, read_text_field(line, "rejected"))};
    }
    const bool completed = line.contains("prompt") && line.contains("completion");
    const bool text = line.contains("text");
    if (completed == text) {
        throw LineProblem{completed ? "has both 'text' and 'prompt'"
                                    : "has neither 'text' nor 'prompt' and 'completion'",
                          line.contains("input_ids")
                              ? "it holds tokens: remove tokenizer: bytes"
                              : "write {\"prompt\": ..., \"completion\": ...}"};
    }
    if (completed) {
        check_line_keys(line, {"prompt", "completion", "label"});
        TokenSample sample =
            tokenize_bytes(read_text_field(line, "prompt"), read_text_field(line, "completion"));
        sample.label = label_of(line);
        return {sample};
    }
    check_line_keys(line, {"text"});
    const std::string content = read_text_field(line, "text");
    if (content.empty()) throw LineProblem{"sample is empty", "remove the line"};
    return {tokenize_bytes("", content)};
}

Samples parse_line(std::string_view text, bool bytes) {
    if (!bytes) {
        if (auto sample = read_plain_token_line(text)) return {*std::move(sample)};
    }
    Json line;
    try {
        line =
            parse_json(text, "", "each line must hold one JSON object; the file may be truncated");
    } catch (const InputError& error) {
        const Problem& problem = error.problems().front();
        throw LineProblem{problem.what, problem.hint};
    }
    if (!line.is_object()) {
        throw LineProblem{"holds " + json_kind(line) + ", must be an object", prepare_hint};
    }
    return bytes ? read_text_line(line) : read_token_line(line);
}

bool is_blank(std::string_view text) {
    return text.find_first_not_of(" \t\r") == std::string_view::npos;
}

/// Where a sample lies; the two samples of a pair lie in one line.
struct Line {
    std::uint64_t begin = 0;
    std::uint32_t bytes = 0;
    std::int32_t tokens = 0;
};

class TokenJsonl final : public TokenFile {
  public:
    TokenJsonl(const std::string& path, bool bytes, const SampleVisitor& visit)
        : file_(path), bytes_(bytes) {
        CappedProblems problems(path, CappedProblems::default_limit, CappedProblems::alike_lines);
        scan([&](std::uint64_t begin, std::string_view text) {
            add_line(begin, text, visit, problems);
        });
        if (lines_.empty() && problems.empty()) {
            problems.add(path, "has no samples", "is it the right file?");
        }
        problems.throw_if_any();
        lines_.shrink_to_fit();
    }

    std::int64_t size() const override { return static_cast<std::int64_t>(lines_.size()); }
    std::int64_t group_samples() const override {
        return static_cast<std::int64_t>(samples_of_line_);
    }
    bool is_labelled() const override { return labelled_; }
    bool is_rollouts() const override { return rollouts_; }
    std::int64_t length(std::int64_t sample) const override { return line(sample).tokens; }
    std::string where(std::int64_t sample) const override {
        return cat(file_.path(), ":", sample / group_samples() + 1);
    }
    TokenSample read(std::int64_t sample) const override {
        const Line& at = line(sample);
        std::string text(at.bytes, '\0');
        file_.read(at.begin, at.bytes, text.data());
        try {
            Samples samples = parse_line(text, bytes_);
            const auto own = static_cast<std::size_t>(sample) % samples_of_line_;
            if (samples.size() == samples_of_line_ &&
                static_cast<std::int32_t>(samples[own].input_ids.size()) == at.tokens) {
                return std::move(samples[own]);
            }
        } catch (const LineProblem&) {
        }
        throw Error(where(sample) + ": was changed after it had been opened");
    }

  private:
    const Line& line(std::int64_t sample) const {
        LORATRAIN_CHECK(sample >= 0 && sample < size(), file_.path(), ": sample ", sample);
        return lines_[static_cast<std::size_t>(sample)];
    }

    /// Calls take(begin, text) for every line; one that is too long is the last, and cut.
    template <class Take>
    void scan(const Take& take) const {
        std::string pending;
        std::uint64_t begin = 0;
        for (std::uint64_t done = 0; done < file_.size() && pending.size() <= longest_line;) {
            const std::size_t old = pending.size();
            const std::uint64_t bytes = std::min<std::uint64_t>(scan_bytes, file_.size() - done);
            pending.resize(old + bytes);
            file_.read(done, bytes, pending.data() + old);
            done += bytes;
            std::size_t first = 0;
            std::size_t end = pending.find('\n', old);
            for (; end != std::string::npos; end = pending.find('\n', first)) {
                take(begin + first, std::string_view(pending).substr(first, end - first));
                first = end + 1;
            }
            pending.erase(0, first);
            begin += first;
        }
        if (!pending.empty()) take(begin, std::string_view(pending));
    }

    void add_line(std::uint64_t begin, std::string_view text, const SampleVisitor& visit,
                  CappedProblems& problems) {
        const std::string where = cat(file_.path(), ":", ++line_number_);
        const bool last = begin + text.size() + 1 >= file_.size();
        if (is_blank(text)) {
            if (!last) problems.add(where, "line is blank", "remove the line");
            return;
        }
        if (text.size() > longest_line) {
            problems.add(where, "line is longer than " + human_bytes(longest_line),
                         "each line must hold one sample; is it the right file?");
            return;
        }
        try {
            const Samples samples = parse_line(text, bytes_);
            check_kind(samples);
            for (const TokenSample& sample : samples) {
                lines_.push_back({begin, static_cast<std::uint32_t>(text.size()),
                                  static_cast<std::int32_t>(sample.input_ids.size())});
                if (visit) visit(where, sample);
            }
        } catch (const LineProblem& problem) {
            problems.add(where, problem.what, problem.hint);
        }
    }

    /// All lines are like the first.
    void check_kind(const Samples& samples) {
        const bool labelled = samples.front().label.has_value();
        const bool rollout = !samples.front().advantages.empty();
        if (lines_.empty()) {
            samples_of_line_ = samples.size();
            labelled_ = labelled;
            rollouts_ = rollout;
        }
        if (rollout != rollouts_ && samples.size() == samples_of_line_) {
            throw LineProblem{rollout ? "has advantages, the lines before have none"
                                      : "has no advantages, the lines before have some",
                              "make a file of each kind, and a dataset of each file"};
        }
        if (labelled != labelled_ && samples.size() == samples_of_line_) {
            throw LineProblem{labelled ? "has a label, the lines before have none"
                                       : "has no label of true or false, the lines before have one",
                              "make a file of each kind, and a dataset of each file"};
        }
        if (samples.size() == samples_of_line_) return;
        throw LineProblem{samples.size() > 1 ? "is a pair, the lines before are single samples"
                                             : "is a single sample, the lines before are pairs",
                          "make a file of each kind, and a dataset of each file"};
    }

    InputFile file_;
    bool bytes_;
    std::size_t samples_of_line_ = 1;
    bool labelled_ = false;
    bool rollouts_ = false;
    std::int64_t line_number_ = 0;
    std::vector<Line> lines_;
};

}  // namespace

std::unique_ptr<TokenFile> open_token_jsonl(const std::string& path, bool bytes,
                                            const SampleVisitor& visit) {
    return std::make_unique<TokenJsonl>(path, bytes, visit);
}

}  // namespace loratrain
