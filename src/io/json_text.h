#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace loratrain {

using Json = nlohmann::json;

/// Parses a JSON document; bad syntax and keys given twice are InputErrors at "where:line".
Json parse_json(const std::string& text, const std::string& where);

/// What is wrong, in words, without the library's prefix.
std::string json_reason(const Json::exception& error);

/// "an object", "a string", ... for messages.
std::string json_kind(const Json& value);

/// The value as JSON text, shortened for messages.
std::string json_text(const Json& value);

}  // namespace loratrain
