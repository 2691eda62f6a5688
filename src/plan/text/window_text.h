#pragma once

#include <string>

#include "plan/plan.h"

namespace loratrain {

/// The one text form (YAML) of windows: for the broadcast and tests. Reading what was written gives
/// the same value; other texts are an Error.
std::string to_text(const Window& window);
Window window_from_text(const std::string& text);

/// Of a joint window: that of its only replica's; of several, a line of the reductions, then
/// theirs, each behind a line "---".
std::string to_text(const JointWindow& joint);
JointWindow joint_window_from_text(const std::string& text);

}  // namespace loratrain
