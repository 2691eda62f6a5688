#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "plan/plan.h"

namespace loratrain {

/// Short form of an action: kind, microbatch (step: batch), @slot, %buffer, >peer or <peer, carried
/// batches in brackets; what is -1 is left out.
///   F3@1 forward, B3@1%0 backward, S1 step of batch 1, rf3@1<0[0,2] sf3@1>2[0,2] receive and send
///   forward, rb3%0<2[1] sb3%0>0[1] receive and send backward, rn%0<0[0,2] sn%0>2[0,2] norms.
std::string action_text(const Action& action);

/// Reads action_text() back; throws Error on anything else.
Action action_from_text(std::string_view text);

/// What the text of a list leaves out, action by action: a slot or buffer that is the last one
/// named before, a peer that is that of the last action of the same kind.
class ActionShorthand {
  public:
    Action shorten(Action action);  ///< for writing
    Action expand(Action action);   ///< after reading

  private:
    template <class Visit>
    void visit_places(Action& action, Visit visit);

    std::int32_t slot_ = -1;
    std::int32_t buffer_ = -1;
    std::map<ActionKind, std::int32_t> peers_;
};

}  // namespace loratrain
