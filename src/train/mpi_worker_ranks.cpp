#include "train/mpi_worker_ranks.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"

namespace loratrain {

MpiWorkerRanks::MpiWorkerRanks(const TrainerParts& parts, Executor& executor,
                               CommandChannel& channel)
    : parts_(parts), executor_(executor), channel_(channel) {
    executor_.ask_for_posted([this](int rank) { return channel_.has_reached(rank); });
}

double MpiWorkerRanks::share_of_host() const {
    const int here = parts_.mpi.local_size();
    return static_cast<double>(std::min(here, parts_.mpi.size())) / here;
}

void MpiWorkerRanks::order(const WorkerCommand& command) {
    channel_.post(to_bytes(command));
    ordered_.push_back({command, trained_ + std::ssize(windows_)});
}

void MpiWorkerRanks::perform_ordered() {
    PipelineRunner::Hooks hooks;
    hooks.between_actions = meanwhile_;
    while (!ordered_.empty() && is_due(ordered_.front())) {
        const WorkerCommand command = std::move(ordered_.front().command);
        ordered_.pop_front();
        executor_.perform(command, hooks,
                          [this](Report report) { own_.push_back(std::move(report)); });
    }
}

void MpiWorkerRanks::order_window(const PlannedWindow& window) {
    windows_.push_back(channel_.post(window.command));
}

void MpiWorkerRanks::train(const JointWindow& window, const PipelineRunner::Hooks& hooks) {
    LORATRAIN_CHECK(!windows_.empty() && (ordered_.empty() || !is_due(ordered_.front())),
                    "a window trains before what was ordered");
    ++trained_;
    window_ = windows_.front();
    windows_.pop_front();
    PipelineRunner::Hooks with_window = hooks;  // a stream keeps those of its first window
    with_window.has_window = [this](int rank) { return channel_.has_reached(rank, window_); };
    executor_.train(window, with_window);
}

std::vector<GeneratedText> MpiWorkerRanks::generate(AdapterId adapter) {
    perform_ordered();
    channel_.post(to_bytes(GenerateTexts{adapter}));
    return executor_.generate(adapter, meanwhile_);
}

std::vector<GeneratedText> MpiWorkerRanks::write_texts(const std::vector<TextOrder>& orders) {
    perform_ordered();
    channel_.post(to_bytes(WriteTexts{orders}));
    return executor_.write_texts(orders, meanwhile_);
}

std::optional<Report> MpiWorkerRanks::report() {
    if (!own_.empty()) {
        Report first = std::move(own_.front());
        own_.pop_front();
        return first;
    }
    if (const std::optional<std::string> text = channel_.next_report())
        return report_from_bytes(*text);
    return std::nullopt;
}

}  // namespace loratrain
