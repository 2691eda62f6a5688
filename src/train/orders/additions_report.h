#pragma once

#include <string>
#include <vector>

namespace loratrain {

/// What a rank has found of inbox files that others train beside (CheckAdditions).
struct AdditionsReport {
    std::vector<std::string> problems;  ///< per file, in order; "" = none
};

/// For the way to rank 0; reading what was written gives the same, any other text is an Error.
std::string to_text(const AdditionsReport& report);
bool is_additions_report(const std::string& text);
AdditionsReport additions_report_from_text(const std::string& text);

}  // namespace loratrain
