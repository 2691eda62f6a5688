#include "io/tokens/token_formats.h"

#include <algorithm>
#include <charconv>

#include "io/tokens/token_rules.h"

namespace loratrain {

namespace {

using Ids = std::vector<std::int32_t>;

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/// Walks over the bytes of a line; every function says whether what it reads was there.
class PlainWalk {
  public:
    explicit PlainWalk(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

    bool skip(char wanted) {
        skip_blanks();
        if (at_ == end_ || *at_ != wanted) return false;
        ++at_;
        return true;
    }

    bool at_end() {
        skip_blanks();
        return at_ == end_;
    }

    /// Of letters and underscores, which no escape or byte beyond ASCII can hide among.
    bool key(std::string_view& name) {
        if (!skip('"')) return false;
        const char* const begin = at_;
        at_ =
            std::find_if_not(at_, end_, [](char c) { return c == '_' || (c >= 'a' && c <= 'z'); });
        name = {begin, static_cast<std::size_t>(at_ - begin)};
        return skip_here('"') && skip(':');
    }

    bool list(Ids& ids, bool negative) {
        return list_of([&] { return number(ids.emplace_back(), negative); });
    }

    bool list(std::vector<float>& weights) {
        return list_of([&] { return weight(weights.emplace_back()); });
    }

  private:
    template <class Value>
    bool list_of(const Value& value) {
        if (!skip('[')) return false;
        do {
            skip_blanks();
            if (!value()) return false;
        } while (skip(','));
        return skip(']');
    }

    void skip_blanks() {
        while (at_ != end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r')) ++at_;
    }

    bool skip_here(char wanted) {
        if (at_ == end_ || *at_ != wanted) return false;
        ++at_;
        return true;
    }

    bool number(std::int32_t& value, bool negative) {
        const char* const digits = at_ != end_ && *at_ == '-' && negative ? at_ + 1 : at_;
        if (digits == end_ || !is_digit(*digits)) return false;
        if (*digits == '0' && (digits != at_ || (digits + 1 != end_ && is_digit(digits[1])))) {
            return false;
        }
        const auto [stop, error] = std::from_chars(at_, end_, value);
        at_ = stop;
        return error == std::errc();
    }

    /// JSON has a digit before and behind a point, and no zeros before other digits.
    bool weight(float& value) {
        if (at_ == end_ || !is_digit(*at_)) return false;
        if (*at_ == '0' && at_ + 1 != end_ && is_digit(at_[1])) return false;
        double number = 0.0;
        const auto [stop, error] = std::from_chars(at_, end_, number);
        if (error != std::errc() || !is_weight(number)) return false;
        const char* const point = std::find(at_, stop, '.');
        if (point != stop && (point + 1 == stop || !is_digit(point[1]))) return false;
        value = static_cast<float>(number);
        at_ = stop;
        return true;
    }

    const char* at_;
    const char* end_;
};

}  // namespace

std::optional<TokenSample> read_plain_token_line(std::string_view text) {
    constexpr std::size_t usual_bytes = 6;  // of a token in a list
    TokenSample sample;
    sample.input_ids.reserve(text.size() / usual_bytes);
    Ids mask;
    PlainWalk walk(text);
    if (!walk.skip('{')) return std::nullopt;
    do {
        std::string_view key;
        if (!walk.key(key)) return std::nullopt;
        if (key == "weights") {
            if (!sample.weights.empty() || !walk.list(sample.weights)) return std::nullopt;
            continue;
        }
        const bool labels = key == "labels";
        Ids& ids = labels ? sample.labels : (key == "input_ids" ? sample.input_ids : mask);
        const bool known = labels || key == "input_ids" || key == "attention_mask";
        if (!known || !ids.empty()) return std::nullopt;
        ids.reserve(sample.input_ids.size());
        if (!walk.list(ids, labels)) return std::nullopt;
    } while (walk.skip(','));
    if (!walk.skip('}') || !walk.at_end() || sample.input_ids.empty()) return std::nullopt;
    if (std::count(mask.begin(), mask.end(), 1) != std::ssize(mask)) return std::nullopt;
    if (sample.labels.empty()) sample.labels = sample.input_ids;
    if (sample.labels.size() != sample.input_ids.size()) return std::nullopt;
    if (sample.weights.empty()) return sample;
    if (sample.weights.size() != sample.input_ids.size()) return std::nullopt;
    settle_weights(sample);
    return sample;
}

}  // namespace loratrain
