#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace loratrain {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;  ///< keys in the order in which they were added

/// JSON texts: parsed with errors that name the place, and written.

/// Raised by readers of the program's own files for values that the library would accept.
class JsonRefusal : public OrderedJson::exception {
  public:
    explicit JsonRefusal(const std::string& what) : OrderedJson::exception(own_id, what.c_str()) {}

  private:
    static constexpr int own_id = 600;  // the library's are below
};

/// Parses a JSON document. InputError for bad syntax (at "where:line", with `hint`), for keys given
/// twice, and for nesting so deep that the library's recursion would end the program.
Json parse_json(std::string_view text, const std::string& where,
                const std::string& hint = "the file may be truncated or was edited by hand");

/// Parses JSON that the program itself has written. OrderedJson::exception for bad syntax and for
/// deep nesting.
OrderedJson parse_ordered_json(std::string_view text);

/// parse_ordered_json() that returns a value with is_discarded() instead of throwing.
OrderedJson parse_json_or_discard(std::string_view text);

/// The key's value. OrderedJson::exception if it is missing or no whole number of at least `least`.
std::int32_t whole_number(const OrderedJson& object, const char* key, std::int32_t least = 0);

/// JSON text for files: on one line, or indented by `indent` spaces. Bytes that are not UTF-8
/// become the replacement character.
std::string dump_json(const Json& value, int indent = -1);
std::string dump_json(const OrderedJson& value, int indent = -1);

/// The text of a file's header, or of a tensor, with blanks up to a multiple of 8 bytes, so that
/// what follows it is aligned.
std::string dump_aligned_json(const Json& value);

/// The text of an error of the library, without the library's prefix.
std::string json_reason(const Json::exception& error);

/// "an object", "a string", ... for messages.
std::string json_kind(const Json& value);

/// The value as JSON text, shortened for messages.
std::string json_text(const Json& value);

}  // namespace loratrain
