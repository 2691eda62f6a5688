#include "io/json_reader.h"

#include <cmath>
#include <utility>

namespace loratrain {

JsonReader::JsonReader(const Json& object, std::string where, std::string prefix,
                       Problems& problems)
    : object_(object), where_(std::move(where)), prefix_(std::move(prefix)), problems_(problems) {}

const Json& JsonReader::get(const char* key) const {
    static const Json null;
    const auto found = object_.find(key);
    return found == object_.end() ? null : *found;
}

std::optional<std::int64_t> JsonReader::count(const char* key) {
    const Json& value = get(key);
    if (value.is_null()) return std::nullopt;
    if (value.is_number_unsigned() && value.get<std::uint64_t>() >= 1 &&
        value.get<std::uint64_t>() <= INT32_MAX) {
        return value.get<std::int64_t>();
    }
    wrong(key, "must be a whole number of at least 1");
    return std::nullopt;
}

std::int64_t JsonReader::required_count(const char* key) {
    if (!has(key)) missing(key);
    return count(key).value_or(0);
}

std::optional<double> JsonReader::positive(const char* key) {
    const Json& value = get(key);
    if (value.is_null()) return std::nullopt;
    if (value.is_number() && value.get<double>() > 0 && std::isfinite(value.get<double>())) {
        return value.get<double>();
    }
    wrong(key, "must be a positive number");
    return std::nullopt;
}

double JsonReader::required_positive(const char* key) {
    if (!has(key)) missing(key);
    return positive(key).value_or(1.0);
}

bool JsonReader::flag(const char* key) {
    const Json& value = get(key);
    if (value.is_null()) return false;
    if (value.is_boolean()) return value.get<bool>();
    wrong(key, "must be true or false");
    return false;
}

std::string JsonReader::text(const char* key) {
    const Json& value = get(key);
    if (value.is_null()) return "";
    if (value.is_string()) return value.get<std::string>();
    wrong(key, "must be a string");
    return "";
}

void JsonReader::wrong(const char* key, const std::string& rule, const std::string& hint) {
    add(prefix_ + key + " is " + json_text(get(key)) + ", " + rule, hint);
}

void JsonReader::missing(const char* key) {
    add("'" + prefix_ + key + "' is missing");
}

void JsonReader::add(const std::string& what, const std::string& hint) {
    problems_.add(where_, what, hint);
}

}  // namespace loratrain
