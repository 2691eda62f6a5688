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

DispatcherLink::DispatcherLink(int worker, TextChannel& leaders, Dispatcher* dispatcher)
    : worker_(worker), leaders_(&leaders), dispatcher_(dispatcher) {
    report_.worker = worker;
    log::forward_info([this](std::string text) {
        const std::lock_guard lock(log_mutex_);
        report_.log.push_back(std::move(text));
    });
}

DispatcherLink::DispatcherLink(Dispatcher& dispatcher) : dispatcher_(&dispatcher) {}

DispatcherLink::~DispatcherLink() {
    if (!is_joint()) log::forward_info({});
}

// ---- reports

void DispatcherLink::trained(std::int64_t tokens, std::int32_t round) {
    report_.tokens += tokens;
    report_.round = std::max(report_.round, round);
}

void DispatcherLink::wrote(AdapterId adapter, std::string metrics_line) {
    report_.metrics.push_back({adapter, std::move(metrics_line)});
}

void DispatcherLink::report(AdapterId adapter, const AdapterState& state) {
    std::erase_if(report_.states,
                  [&](const AdapterUpdate& update) { return update.adapter == adapter; });
    report_.states.push_back({adapter, state});
}

void DispatcherLink::report_at_rung(AdapterId adapter, const AdapterState& state) {
    report(adapter, state);
    report_.at_rung.push_back(adapter);
}

void DispatcherLink::report_saved(const std::vector<AdapterId>& adapters,
                                  const std::vector<AdapterId>& ended, double seconds) {
    report_.saved = adapters;
    report_.saved_ends = ended;
    report_.saving_seconds = seconds;
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
    leaders_->send_report(to_bytes(report));
}

// ---- where the dispatcher is

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

void DispatcherLink::look_again(const InboxFile& file) {
    if (dispatcher_ != nullptr) dispatcher_->look_again(file);
}

void DispatcherLink::record_failure(const std::string& why) {
    if (dispatcher_ != nullptr) dispatcher_->record_failure(why);
}

void DispatcherLink::recall() {
    dispatcher_->recall();
}

void DispatcherLink::begin() {
    dispatcher_->begin();
}

void DispatcherLink::judge(const std::vector<AdapterId>& at_rung) {
    dispatcher_->judge(at_rung);
}

void DispatcherLink::look_for_orders() {
    if (!is_joint()) return;
    dispatcher_->look_for_orders();
    take_decisions();
}

// ---- decisions

void DispatcherLink::look() {
    if (seconds_since(sent_) > seconds_between_reports) send();
    if (dispatcher_ != nullptr) dispatcher_->serve();
    take_decisions();
}

void DispatcherLink::take_decisions() {
    if (dispatcher_ != nullptr) {
        while (std::optional<Decisions> decisions = dispatcher_->next_of_own()) {
            decisions_.push_back(*std::move(decisions));
        }
        return;
    }
    while (const std::optional<std::string> text = leaders_->arrived()) {
        decisions_.push_back(decisions_from_bytes(*text));
    }
}

}  // namespace loratrain
