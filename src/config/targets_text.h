#pragma once

#include <string>
#include <vector>

#include "config/job.h"

namespace loratrain {

/// An adapter's target modules as texts.

/// The list of targets, {"q_proj", "v_proj"}; empty = a regular expression, or all-linear.
std::vector<std::string> listed_targets(const AdapterJob& adapter);
/// The targets in words: "q_proj v_proj", or "all-linear".
std::string targets_text(const AdapterJob& adapter);

}  // namespace loratrain
