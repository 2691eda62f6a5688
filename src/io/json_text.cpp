#include "io/json_text.h"

#include <algorithm>
#include <set>
#include <vector>

#include "base/arithmetic.h"
#include "base/error.h"

namespace loratrain {

namespace {

constexpr std::size_t longest_text = 160;
constexpr int deepest_nesting = 100;

std::string shortened(std::string text) {
    if (text.size() <= longest_text) return text;
    return text.substr(0, longest_text) + " ...";
}

/// Whether brackets are open more than deepest_nesting levels deep somewhere. Libraries and the
/// program itself walk a document by recursion.
bool is_too_deep(std::string_view text) {
    int depth = 0;
    bool in_string = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_string) {
            if (c == '\\') ++i;
            in_string = c != '"';
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            if (++depth > deepest_nesting) return true;
        } else if (c == ']' || c == '}') {
            --depth;
        }
    }
    return false;
}

/// Watches the parsing: refuses deep nesting, and keeps the keys seen so far of every open object
/// to report those given twice.
class ParseGuard {
  public:
    explicit ParseGuard(const std::string& where) : where_(where) {}

    bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
        if (depth > deepest_nesting) {
            throw InputError(where_, cat("is nested more than ", deepest_nesting, " levels deep"),
                             "is it the right file?");
        }
        const auto level = static_cast<std::size_t>(depth);
        if (event == Json::parse_event_t::object_start) {
            seen_.resize(std::max(seen_.size(), level + 2));
            seen_[level + 1].clear();
        } else if (event == Json::parse_event_t::key) {
            auto key = parsed.get<std::string>();
            if (!seen_[level].insert(key).second) duplicates_.push_back(std::move(key));
        }
        return true;
    }
    const std::vector<std::string>& duplicates() const { return duplicates_; }

  private:
    const std::string& where_;
    std::vector<std::set<std::string>> seen_;
    std::vector<std::string> duplicates_;
};

}  // namespace

std::string json_reason(const Json::exception& error) {
    std::string text = error.what();
    const std::size_t column = text.find("column ");
    const std::size_t colon = column == std::string::npos ? column : text.find(": ", column);
    if (colon != std::string::npos) {
        text = text.substr(colon + 2);
    } else if (text.starts_with('[')) {
        text = text.substr(std::min(text.size(), text.find("] ") + 2));
    }
    return shortened(text);
}

std::string json_kind(const Json& value) {
    if (value.is_number_float()) return "a fraction";
    if (value.is_number()) return "a number";
    if (value.is_null()) return "null";
    return (value.is_array() || value.is_object() ? "an " : "a ") + std::string(value.type_name());
}

std::string json_text(const Json& value) {
    return shortened(dump_json(value));
}

std::string dump_json(const Json& value, int indent) {
    return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string dump_json(const OrderedJson& value, int indent) {
    return value.dump(indent, ' ', false, OrderedJson::error_handler_t::replace);
}

std::string dump_aligned_json(const Json& value) {
    std::string text = dump_json(value);
    text.resize(round_up(text.size(), std::size_t{8}), ' ');
    return text;
}

OrderedJson parse_ordered_json(std::string_view text) {
    if (is_too_deep(text))
        throw JsonRefusal(cat("nested more than ", deepest_nesting, " levels deep"));
    return OrderedJson::parse(text);
}

OrderedJson parse_json_or_discard(std::string_view text) {
    if (is_too_deep(text)) return OrderedJson::value_t::discarded;
    return OrderedJson::parse(text, nullptr, false);
}

std::int32_t whole_number(const OrderedJson& object, const char* key, std::int32_t least) {
    const OrderedJson& value = object.at(key);
    const bool huge = value.is_number_unsigned() && value.get<std::uint64_t>() > INT32_MAX;
    if (!value.is_number_integer() || huge || value.get<std::int64_t>() < least) {
        throw JsonRefusal(cat("'", key, "' is ", shortened(dump_json(value)),
                              ", must be a whole number from ", least, " to ", INT32_MAX));
    }
    return value.get<std::int32_t>();
}

Json parse_json(std::string_view text, const std::string& where, const std::string& hint) {
    ParseGuard guard(where);
    Json document;
    try {
        document = Json::parse(text, std::ref(guard));
    } catch (const Json::parse_error& error) {
        const std::string_view read = text.substr(0, error.byte);
        throw InputError(cat(where, ":", 1 + std::count(read.begin(), read.end(), '\n')),
                         "not valid JSON: " + json_reason(error), hint);
    } catch (const Json::exception& error) {
        throw InputError(where, "not valid JSON: " + json_reason(error));
    }
    Problems problems;
    for (const std::string& key : guard.duplicates()) {
        problems.add(where, "key '" + key + "' is given twice", "remove one of them");
    }
    problems.throw_if_any();
    return document;
}

}  // namespace loratrain
