#include "plan/text/action_text.h"

#include <array>
#include <charconv>

#include "base/error.h"

namespace loratrain {

namespace {

struct Code {
    ActionKind kind;
    std::string_view letters;
};

constexpr std::array<Code, 10> codes{{{ActionKind::recv_forward, "rf"},
                                      {ActionKind::forward, "F"},
                                      {ActionKind::send_forward, "sf"},
                                      {ActionKind::recv_backward, "rb"},
                                      {ActionKind::backward, "B"},
                                      {ActionKind::send_backward, "sb"},
                                      {ActionKind::step, "S"},
                                      {ActionKind::recv_norms, "rn"},
                                      {ActionKind::send_norms, "sn"},
                                      {ActionKind::no_op, "N"}}};

bool has_number(ActionKind kind) {
    return kind != ActionKind::recv_norms && kind != ActionKind::send_norms &&
           kind != ActionKind::no_op;
}

/// Reads an action's text from left to right.
class Reader {
  public:
    explicit Reader(std::string_view text) : text_(text), rest_(text) {}

    ActionKind kind() {
        for (const Code& code : codes) {
            if (take(code.letters)) return code.kind;
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
    std::string text;
    for (const Code& code : codes) {
        if (code.kind == action.kind) text = code.letters;
    }
    if (has_number(action.kind)) {
        text += std::to_string(action.kind == ActionKind::step ? action.batch
                                                               : number(action.microbatch));
    }
    for (std::size_t i = 0; i < action.carried.size(); ++i) {
        text += (i == 0 ? '[' : ',');
        text += std::to_string(action.carried[i]);
    }
    if (!action.carried.empty()) text += ']';
    return text;
}

Action action_from_text(std::string_view text) {
    Reader reader(text);
    Action action;
    action.kind = reader.kind();
    if (action.kind == ActionKind::step) {
        action.batch = reader.integer();
    } else if (has_number(action.kind)) {
        action.microbatch = MicrobatchId{reader.integer()};
    }
    if (reader.take("[")) {
        do action.carried.push_back(reader.integer());
        while (reader.take(","));
        reader.expect("]");
    }
    reader.expect_end();
    return action;
}

}  // namespace loratrain
