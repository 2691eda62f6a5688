#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/activity.h"
#include "base/ids.h"
#include "plan/plan.h"

namespace loratrain {

enum class ActionRole : std::uint8_t { compute, send, receive };

/// Properties of the kinds of actions in a stage's list, and texts of actions.

/// Which number an action has.
enum class ActionNumber : std::uint8_t { microbatch, batch, none };

/// Properties of a kind of action.
struct ActionTraits {
    ActionKind kind;
    std::string_view letters;  ///< in action_text(); none is the beginning of another
    ActionRole role;
    Channel channel;  ///< of messages
    ActionNumber number;
    activity::Task task;
    std::string_view word;  ///< in traces: the computation, or the wait for a message
};

/// In the order of ActionKind. PipelineRunner performs actions, Simulator predicts them,
/// StreamChecker proves them.
inline constexpr std::array<ActionTraits, 10> action_kinds = [] {
    using enum ActionRole;
    using enum ActionNumber;
    using Kind = ActionKind;
    using activity::Task;
    constexpr Channel up = Channel::forward;
    constexpr Channel down = Channel::backward;
    constexpr Channel norms = Channel::norms;
    constexpr Channel unused = {};
    constexpr std::string_view sending = "wait for a send";
    return std::array<ActionTraits, 10>{{
        {Kind::recv_forward, "rf", receive, up, microbatch, Task::receive_input, "wait for input"},
        {Kind::forward, "F", compute, unused, microbatch, Task::forward, "forward"},
        {Kind::send_forward, "sf", send, up, microbatch, Task::send_output, sending},
        {Kind::recv_backward, "rb", receive, down, microbatch, Task::receive_gradient,
         "wait for gradient"},
        {Kind::backward, "B", compute, unused, microbatch, Task::backward, "backward"},
        {Kind::send_backward, "sb", send, down, microbatch, Task::send_gradient, sending},
        {Kind::step, "S", compute, unused, batch, Task::step, "step"},
        {Kind::reduce, "R", compute, unused, batch, Task::reduce, "reduce"},
        {Kind::recv_norms, "rn", receive, norms, none, Task::receive_norms, "wait for norms"},
        {Kind::send_norms, "sn", send, norms, none, Task::send_norms, sending},
    }};
}();

constexpr const ActionTraits& traits_of(ActionKind kind) {
    return action_kinds[static_cast<std::size_t>(kind)];
}

constexpr bool in_order_of_kinds() {
    for (std::size_t i = 0; i < action_kinds.size(); ++i) {
        if (action_kinds[i].kind != static_cast<ActionKind>(i)) return false;
    }
    return true;
}
static_assert(in_order_of_kinds());

constexpr bool computes(ActionKind kind) {
    return traits_of(kind).role == ActionRole::compute;
}

/// True if messages of the channel go to the next stage.
constexpr bool goes_up(Channel channel) {
    return channel != Channel::backward;
}

/// Number of the action's microbatch or batch in the stream; -1 = none.
inline std::int32_t number_of(const Action& action) {
    switch (traits_of(action.kind).number) {
        case ActionNumber::microbatch:
            return number(action.microbatch);
        case ActionNumber::batch:
            return action.batch;
        case ActionNumber::none:
            break;
    }
    return -1;
}

/// Short form of an action for messages: letters of its kind, microbatch (step: batch), @slot,
/// %buffer, >peer of a send or <peer of a receive, [carried batches]. Values of -1 are left out.
///   F3@1 forward, B3@1%0 backward, S1 step of batch 1, rf3@1<0[0,2] sf3@1>2[0,2] receive and send
///   forward, rb3%0<2[1] sb3%0>0[1] receive and send backward, rn%0<0[0,2] sn%0>2[0,2] norms.
std::string action_text(const Action& action);

}  // namespace loratrain
