#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "comm/directive_channel.h"
#include "train/workers/worker_message.h"

namespace loratrain {

class Desk;

/// The way of a worker's leader to the desk and back: gathers what it tells, sends it now and then,
/// and keeps orders until the leader obeys them. None of it waits for the desk.
class WorkerLink {
  public:
    /// `leaders`: among the leaders of all workers, its root where the desk is. `desk`: on that
    /// rank, else null. All outlive the link.
    WorkerLink(const Job& job, int worker, DirectiveChannel& leaders, Desk* desk);
    ~WorkerLink();
    WorkerLink(const WorkerLink&) = delete;
    WorkerLink& operator=(const WorkerLink&) = delete;

    int worker() const { return worker_; }

    // Goes out with the next report.
    void trained(std::int64_t tokens, std::int32_t round);
    void wrote(AdapterId adapter, std::string metrics_line);
    void tell(AdapterId adapter, const AdapterState& state, bool at_rung = false);
    void tell_places(int places) { report_.places = places; }
    void tell_saved(const std::vector<AdapterId>& adapters, double seconds) {
        report_.saved = adapters;
        report_.saving_seconds = seconds;
    }
    void tell_returned(const ReturnedAdapter& returned) { report_.returned.push_back(returned); }
    void tell_stopped(const std::string& why) { report_.stopped = why; }
    void send();

    // The job grows with an inbox file; where the desk is, it takes part.
    void accept(const InboxFile& file);
    /// Error on other ranks: what the first worker has taken, all must take.
    void refuse(const InboxFile& file, const std::string& why);
    void added(const InboxFile& file);

    /// Training has thrown here: where the desk is, the run's status says why.
    void record_failure(const std::string& why);

    /// Lets messages travel, and sends what has been gathered for long enough; to be called often.
    void look();
    /// The next orders that have come.
    std::optional<DeskOrders> next();
    /// Whether any that have come are such.
    bool any(const std::function<bool(const DeskOrders&)>& such) const;

  private:
    const Job& job_;
    int worker_;
    DirectiveChannel& leaders_;
    Desk* desk_;
    WorkerReport report_;
    std::mutex log_mutex_;  ///< any thread may log
    std::deque<DeskOrders> orders_;
    std::chrono::steady_clock::time_point sent_;
};

}  // namespace loratrain
