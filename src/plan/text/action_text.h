#pragma once

#include <string>
#include <string_view>

#include "plan/plan.h"

namespace loratrain {

/// Short form of an action: kind, microbatch (step: batch), carried batches in brackets.
///   F3 forward, B3 backward, S1 step of batch 1, rf3[0,2] sf3[0,2] receive and send forward,
///   rb3[1] sb3[1] receive and send backward, rn[0,2] sn[0,2] receive and send norms, N no-op.
std::string action_text(const Action& action);

/// Reads action_text() back; throws Error on anything else.
Action action_from_text(std::string_view text);

}  // namespace loratrain
