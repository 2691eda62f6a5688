#include "config/key_texts.h"

#include <filesystem>

#include "base/text.h"

namespace loratrain {

std::string value_text(double value) {
    std::string text = format_exact(value);
    const std::size_t exponent = text.find('e');
    if (exponent != std::string::npos && text.find('.') == std::string::npos) {
        text.insert(exponent, ".0");
    }
    return text;
}

std::optional<std::string> value_text(const EvalSplit& value) {
    if (!value.any()) return std::nullopt;
    return value.samples > 0 ? value_text(value.samples) : value_text(value.fraction);
}

std::optional<std::string> value_text(const std::optional<double>& value) {
    return value ? std::optional(value_text(*value)) : std::nullopt;
}

std::string written_path(const std::string& path) {
    return path.empty() ? path : std::filesystem::absolute(path).string();
}

}  // namespace loratrain
