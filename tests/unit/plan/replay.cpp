#include "unit/plan/replay.h"

#include <algorithm>
#include <deque>
#include <vector>

#include "plan/action_traits.h"

namespace loratrain::plan_test {

namespace {

class Replay {
  public:
    Replay(const Window& window, SendBuffers buffers)
        : window_(window),
          buffers_(buffers),
          next_(window.actions.size(), 0),
          clock_(next_.size(), 0),
          up_(next_.size() + 1),
          down_(next_.size() + 1) {}

    Timeline run() {
        for (bool progress = true; progress;) {
            progress = false;
            for (std::size_t s = 0; s < next_.size(); ++s) {
                while (advance(s)) progress = true;
            }
        }
        Timeline result{true, 0};
        for (std::size_t s = 0; s < next_.size(); ++s) {
            result.finished = result.finished && next_[s] == window_.actions[s].size();
            result.makespan = std::max(result.makespan, clock_[s]);
        }
        return result;
    }

  private:
    struct Link {
        std::deque<std::int64_t> sent;  ///< when
    };

    bool advance(std::size_t s) {
        if (next_[s] == window_.actions[s].size() || !act(s, window_.actions[s][next_[s]])) {
            return false;
        }
        ++next_[s];
        return true;
    }

    bool act(std::size_t s, const Action& action) {
        const ActionTraits& traits = traits_of(action.kind);
        const bool up = goes_up(traits.channel);
        switch (traits.role) {
            case ActionRole::receive:
                return receive(s, up ? up_[s] : down_[s + 1]);
            case ActionRole::send:
                return up ? send(s, up_[s + 1], buffers_.forward)
                          : send(s, down_[s], buffers_.backward);
            case ActionRole::compute:
                break;
        }
        if (action.kind == ActionKind::step) return true;
        return compute(s, action, action.kind == ActionKind::forward ? 1 : 2);
    }

    bool receive(std::size_t s, Link& link) {
        if (link.sent.empty()) return false;
        clock_[s] = std::max(clock_[s], link.sent.front());
        link.sent.pop_front();
        return true;
    }
    bool send(std::size_t s, Link& link, std::size_t buffers) {
        if (link.sent.size() >= buffers) return false;
        link.sent.push_back(clock_[s]);
        return true;
    }
    bool compute(std::size_t s, const Action& action, std::int64_t cost) {
        clock_[s] += cost * window_.microbatches[index(action.microbatch)].tokens();
        return true;
    }

    const Window& window_;
    SendBuffers buffers_;
    std::vector<std::size_t> next_;
    std::vector<std::int64_t> clock_;
    std::vector<Link> up_;    ///< into stage s from below
    std::vector<Link> down_;  ///< out of stage s downwards
};

}  // namespace

Timeline replay(const Window& window, SendBuffers buffers) {
    return Replay(window, buffers).run();
}

}  // namespace loratrain::plan_test
