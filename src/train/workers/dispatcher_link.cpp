#include "train/workers/dispatcher_link.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/system.h"
#include "train/workers/dispatcher.h"

namespace loratrain {

namespace {

constexpr double seconds_between_reports = 0.5;

}  // namespace

DispatcherLink::DispatcherLink(const Job& job, int worker, TextChannel& leaders,
                               Dispatcher* dispatcher)
    : job_(job),
      worker_(worker),
      leaders_(leaders),
      dispatcher_(dispatcher),
      sent_(std::chrono::steady_clock::now()) {
    report_.worker = worker;
    log::forward_info([this](std::string text) {
        const std::lock_guard lock(log_mutex_);
        report_.log.push_back(std::move(text));
    });
}

DispatcherLink::~DispatcherLink() {
    log::forward_info({});
}

void DispatcherLink::trained(std::int64_t tokens, std::int32_t round) {
    report_.tokens += tokens;
    report_.round = std::max(report_.round, round);
}

void DispatcherLink::wrote(AdapterId adapter, std::string metrics_line) {
    report_.metrics.push_back({adapter, std::move(metrics_line)});
}

void DispatcherLink::report(AdapterId adapter, const AdapterState& state, bool at_rung) {
    std::erase_if(report_.states,
                  [&](const AdapterUpdate& update) { return update.adapter == adapter; });
    report_.states.push_back({adapter, state});
    if (at_rung) report_.at_rung.push_back(adapter);
}

void DispatcherLink::send() {
    sent_ = std::chrono::steady_clock::now();
    WorkerReport report;
    {
        const std::lock_guard lock(log_mutex_);
        if (report_.empty()) return;
        report = std::exchange(report_, {});
        report_.worker = worker_;
        report_.round = report.round;
    }
    if (dispatcher_ != nullptr) return dispatcher_->take(report);
    leaders_.send_report(to_text(report, job_));
}

void DispatcherLink::accept(const InboxFile& file) {
    if (dispatcher_ != nullptr) dispatcher_->accept(file);
}

void DispatcherLink::refuse(const InboxFile& file, const std::string& why) {
    if (dispatcher_ == nullptr)
        throw Error(cat(file.path, ": worker 0 has taken it, but here ", why));
    dispatcher_->refuse(file, why);
}

void DispatcherLink::added(const InboxFile& file) {
    if (dispatcher_ != nullptr) dispatcher_->added(file);
}

void DispatcherLink::record_failure(const std::string& why) {
    if (dispatcher_ != nullptr) dispatcher_->record_failure(why);
}

void DispatcherLink::look() {
    if (seconds_since(sent_) > seconds_between_reports) send();
    if (dispatcher_ != nullptr) {
        dispatcher_->serve();
        while (std::optional<Decisions> decisions = dispatcher_->next_of_own()) {
            decisions_.push_back(*std::move(decisions));
        }
        return;
    }
    while (const std::optional<std::string> text = leaders_.arrived()) {
        decisions_.push_back(decisions_from_text(*text));
    }
}

std::optional<Decisions> DispatcherLink::next() {
    if (decisions_.empty()) return std::nullopt;
    Decisions decisions = std::move(decisions_.front());
    decisions_.pop_front();
    return decisions;
}

bool DispatcherLink::any(const std::function<bool(const Decisions&)>& such) const {
    return std::any_of(decisions_.begin(), decisions_.end(), such);
}

}  // namespace loratrain
