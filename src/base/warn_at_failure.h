#pragma once

#include <functional>
#include <string_view>

namespace loratrain {

/// Does what is no reason to end a run: what it throws becomes a warning, behind `what`.
void warn_at_failure(const std::function<void()>& work, std::string_view what = "");

}  // namespace loratrain
