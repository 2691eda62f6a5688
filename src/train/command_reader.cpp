#include "train/command_reader.h"

#include <string>
#include <utility>

#include "base/threads.h"

namespace loratrain {

namespace {

constexpr std::size_t long_text = std::size_t{4} << 10U;  // a thread takes longer to begin

}  // namespace

void CommandReader::look() {
    while (std::optional<std::string> text = channel_.arrived()) read(*std::move(text));
}

WorkerCommand CommandReader::next(const std::function<void()>& meanwhile) {
    if (taken_.empty()) return command_from_bytes(channel_.next(meanwhile));
    std::future<WorkerCommand> first = std::move(taken_.front());
    taken_.pop_front();
    return first.get();
}

void CommandReader::read(std::string text) {
    if (text.size() < long_text) {
        taken_.push_back(std::async(std::launch::deferred,
                                    [text = std::move(text)] { return command_from_bytes(text); }));
        return;
    }
    taken_.push_back(std::async(std::launch::async, [text = std::move(text)] {
        const BackgroundWork background;
        return command_from_bytes(text);
    }));
}

}  // namespace loratrain
