#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"
#include "io/json_text.h"

namespace loratrain {

/// Typed access to the keys of a JSON object. null counts as missing. Every wrong type or value
/// becomes a problem at `where` that names the key, with `prefix` in front, and the value.
class JsonReader {
  public:
    JsonReader(const Json& object, std::string where, std::string prefix, Problems& problems);

    /// The value; null if the key is missing.
    const Json& get(const char* key) const;
    bool has(const char* key) const { return !get(key).is_null(); }
    bool contains(const char* key) const { return object_.contains(key); }

    std::optional<std::int64_t> count(const char* key);  ///< whole, 1 .. 2^31 - 1
    std::int64_t required_count(const char* key);        ///< 0 if refused
    std::optional<double> positive(const char* key);
    double required_positive(const char* key);  ///< 1 if refused
    bool flag(const char* key);
    std::string text(const char* key);

    /// Adds the problem "KEY is VALUE, rule".
    void wrong(const char* key, const std::string& rule, const std::string& hint = "");
    void missing(const char* key);
    void add(const std::string& what, const std::string& hint = "");
    const std::string& where() const { return where_; }
    Problems& problems() { return problems_; }

  private:
    const Json& object_;
    std::string where_;
    std::string prefix_;
    Problems& problems_;
};

}  // namespace loratrain
