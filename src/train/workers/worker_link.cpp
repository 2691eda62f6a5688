#include "train/workers/worker_link.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/system.h"
#include "train/workers/desk.h"

namespace loratrain {

namespace {

constexpr double seconds_between_reports = 0.5;

}  // namespace

WorkerLink::WorkerLink(const Job& job, int worker, DirectiveChannel& leaders, Desk* desk)
    : job_(job),
      worker_(worker),
      leaders_(leaders),
      desk_(desk),
      sent_(std::chrono::steady_clock::now()) {
    report_.worker = worker;
    log::forward_info([this](std::string text) {
        const std::lock_guard lock(log_mutex_);
        report_.log.push_back(std::move(text));
    });
}

WorkerLink::~WorkerLink() {
    log::forward_info({});
}

void WorkerLink::trained(std::int64_t tokens, std::int32_t round) {
    report_.tokens += tokens;
    report_.round = std::max(report_.round, round);
}

void WorkerLink::wrote(AdapterId adapter, std::string metrics_line) {
    report_.metrics.push_back({adapter, std::move(metrics_line)});
}

void WorkerLink::tell(AdapterId adapter, const AdapterState& state, bool at_rung) {
    std::erase_if(report_.states, [&](const AdapterNews& news) { return news.adapter == adapter; });
    report_.states.push_back({adapter, state});
    if (at_rung) report_.at_rung.push_back(adapter);
}

void WorkerLink::send() {
    sent_ = std::chrono::steady_clock::now();
    WorkerReport report;
    {
        const std::lock_guard lock(log_mutex_);
        if (report_.empty()) return;
        report = std::exchange(report_, {});
        report_.worker = worker_;
        report_.round = report.round;
    }
    if (desk_ != nullptr) return desk_->take(report);
    leaders_.tell(to_text(report, job_));
}

void WorkerLink::accept(const InboxFile& file) {
    if (desk_ != nullptr) desk_->accept(file);
}

void WorkerLink::refuse(const InboxFile& file, const std::string& why) {
    if (desk_ == nullptr) throw Error(cat(file.path, ": worker 0 has taken it, but here ", why));
    desk_->refuse(file, why);
}

void WorkerLink::added(const InboxFile& file) {
    if (desk_ != nullptr) desk_->added(file);
}

void WorkerLink::record_failure(const std::string& why) {
    if (desk_ != nullptr) desk_->record_failure(why);
}

void WorkerLink::look() {
    if (seconds_since(sent_) > seconds_between_reports) send();
    if (desk_ != nullptr) {
        desk_->serve();
        while (std::optional<DeskOrders> orders = desk_->next_of_own()) {
            orders_.push_back(*std::move(orders));
        }
        return;
    }
    while (const std::optional<std::string> text = leaders_.arrived()) {
        orders_.push_back(desk_orders_from_text(*text));
    }
}

std::optional<DeskOrders> WorkerLink::next() {
    if (orders_.empty()) return std::nullopt;
    DeskOrders orders = std::move(orders_.front());
    orders_.pop_front();
    return orders;
}

bool WorkerLink::any(const std::function<bool(const DeskOrders&)>& such) const {
    return std::any_of(orders_.begin(), orders_.end(), such);
}

}  // namespace loratrain
