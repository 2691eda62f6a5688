#include "train/orders/additions_report.h"

#include <sstream>
#include <string_view>

#include "base/error.h"

namespace loratrain {

namespace {

constexpr std::string_view report_word = "additions";

}  // namespace

/// "additions 0 12\n", the bytes of each, then the problems as they are.
std::string to_text(const AdditionsReport& report) {
    std::string text(report_word);
    for (const std::string& problem : report.problems) text += cat(" ", problem.size());
    text += "\n";
    for (const std::string& problem : report.problems) text += problem;
    return text;
}

bool is_additions_report(const std::string& text) {
    return text.starts_with(report_word);
}

AdditionsReport additions_report_from_text(const std::string& text) {
    LORATRAIN_CHECK(is_additions_report(text), "this is no report on additions");
    const std::size_t end = text.find('\n');
    LORATRAIN_CHECK(end != std::string::npos, "a report on additions is cut off");
    std::istringstream sizes(text.substr(report_word.size(), end - report_word.size()));
    AdditionsReport report;
    std::size_t at = end + 1;
    for (std::size_t size = 0; sizes >> size; at += size) {
        LORATRAIN_CHECK(size <= text.size() - at, "a report on additions is cut off");
        report.problems.push_back(text.substr(at, size));
    }
    LORATRAIN_CHECK(sizes.eof() && at == text.size(), "a report on additions is damaged");
    return report;
}

}  // namespace loratrain
