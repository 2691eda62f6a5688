#pragma once

#include <string>

#include "plan/plan.h"

namespace loratrain {

/// Short form of an action, for messages: kind, microbatch (step: batch), @slot, %buffer, >peer or
/// <peer, carried batches in brackets; what is -1 is left out.
///   F3@1 forward, B3@1%0 backward, S1 step of batch 1, rf3@1<0[0,2] sf3@1>2[0,2] receive and send
///   forward, rb3%0<2[1] sb3%0>0[1] receive and send backward, rn%0<0[0,2] sn%0>2[0,2] norms.
std::string action_text(const Action& action);

}  // namespace loratrain
