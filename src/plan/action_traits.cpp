#include "plan/action_traits.h"

namespace loratrain {

namespace {

std::string_view peer_sign(ActionKind kind) {
    return traits_of(kind).role == ActionRole::send ? ">" : "<";
}

}  // namespace

std::string action_text(const Action& action) {
    const ActionTraits& traits = traits_of(action.kind);
    std::string text(traits.letters);
    const auto append = [&](std::string_view sign, std::int32_t value) {
        text += sign;
        text += std::to_string(value);
    };
    if (traits.number != ActionNumber::none) append("", number_of(action));
    if (action.slot >= 0) append("@", action.slot);
    if (action.buffer >= 0) append("%", action.buffer);
    if (action.peer >= 0) append(peer_sign(action.kind), action.peer);
    for (std::size_t i = 0; i < action.carried.size(); ++i) {
        append(i == 0 ? "[" : ",", action.carried[i]);
    }
    if (!action.carried.empty()) text += ']';
    return text;
}

}  // namespace loratrain
