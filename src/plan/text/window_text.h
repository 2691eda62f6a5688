#pragma once

#include <string>

#include "plan/plan.h"

namespace loratrain {

/// The one text form (YAML) of windows: for the broadcast and tests. Reading what was written gives
/// the same value; other texts are an Error.
std::string to_text(const Window& window);
Window window_from_text(const std::string& text);

}  // namespace loratrain
