#include "plan/schedule/action_text.h"

#include <charconv>
#include <utility>

#include "base/error.h"
#include "plan/action_traits.h"

namespace loratrain {

namespace {

std::string_view peer_sign(ActionKind kind) {
    return traits_of(kind).role == ActionRole::send ? ">" : "<";
}

/// Reads an action's text from left to right.
class Reader {
  public:
    explicit Reader(std::string_view text) : text_(text), rest_(text) {}

    ActionKind kind() {
        for (const ActionTraits& traits : action_kinds) {
            if (take(traits.letters)) return traits.kind;
        }
        fail();
    }
    bool take(std::string_view word) {
        if (!rest_.starts_with(word)) return false;
        rest_.remove_prefix(word.size());
        return true;
    }
    std::int32_t integer() {
        std::int32_t value = 0;
        const auto result = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
        if (result.ec != std::errc{}) fail();
        rest_.remove_prefix(static_cast<std::size_t>(result.ptr - rest_.data()));
        return value;
    }
    /// The number behind a sign, if that is there.
    void read_behind(std::string_view sign, std::int32_t& value) {
        if (take(sign)) value = integer();
    }
    void expect(std::string_view word) {
        if (!take(word)) fail();
    }
    void expect_end() const {
        if (!rest_.empty()) fail();
    }

  private:
    [[noreturn]] void fail() const { throw Error(cat("plan text: '", text_, "' is no action")); }

    std::string_view text_;
    std::string_view rest_;
};

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

Action action_from_text(std::string_view text) {
    Reader reader(text);
    Action action;
    action.kind = reader.kind();
    const ActionNumber number = traits_of(action.kind).number;
    if (number == ActionNumber::batch) action.batch = reader.integer();
    if (number == ActionNumber::microbatch) action.microbatch = MicrobatchId{reader.integer()};
    reader.read_behind("@", action.slot);
    reader.read_behind("%", action.buffer);
    reader.read_behind(peer_sign(action.kind), action.peer);
    if (reader.take("[")) {
        do action.carried.push_back(reader.integer());
        while (reader.take(","));
        reader.expect("]");
    }
    reader.expect_end();
    return action;
}

/// Calls visit(number, the last one before) for what the kind of action has.
template <class Visit>
void ActionShorthand::visit_places(Action& action, Visit visit) {
    const ActionTraits& traits = traits_of(action.kind);
    if (traits.has_slot) visit(action.slot, slot_);
    if (traits.has_buffer) visit(action.buffer, buffer_);
    if (!computes(action.kind))
        visit(action.peer, peers_.try_emplace(action.kind, -1).first->second);
}

Action ActionShorthand::shorten(Action action) {
    visit_places(action, [](std::int32_t& value, std::int32_t& last) {
        if (value == std::exchange(last, value)) value = -1;
    });
    return action;
}

Action ActionShorthand::expand(Action action) {
    visit_places(action, [](std::int32_t& value, std::int32_t& last) {
        if (value < 0) value = last;
        last = value;
    });
    return action;
}

}  // namespace loratrain
