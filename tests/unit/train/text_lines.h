#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "comm/text_channel.h"

namespace loratrain::test {

/// Both ends of a channel in one process: what the root posts arrives, and what is reported to the
/// root hears, at once.
class TextLines {
  public:
    TextChannel& root() { return root_; }
    TextChannel& other() { return other_; }
    /// Called whenever the other rank looks for texts: a test that plays the root.
    std::function<void()> on_look = {};

  private:
    class End : public TextChannel {
      public:
        explicit End(TextLines& lines) : lines_(lines) {}
        std::int64_t post(std::string text) override {
            lines_.posted_.push_back(std::move(text));
            return ++lines_.number_;
        }
        void progress() override {}
        std::optional<std::string> next_report() override { return next(lines_.reports_); }
        void send_report(std::string text) override { lines_.reports_.push_back(std::move(text)); }
        std::optional<std::string> arrived() override {
            if (lines_.on_look) lines_.on_look();
            return next(lines_.posted_);
        }

      private:
        static std::optional<std::string> next(std::deque<std::string>& texts) {
            if (texts.empty()) return std::nullopt;
            std::string text = std::move(texts.front());
            texts.pop_front();
            return text;
        }
        TextLines& lines_;
    };

    std::deque<std::string> posted_;
    std::deque<std::string> reports_;
    std::int64_t number_ = 0;
    End root_{*this};
    End other_{*this};
};

}  // namespace loratrain::test
