#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "comm/text_channel.h"
#include "train/workers/worker_message.h"

namespace loratrain {

class Dispatcher;

/// The way of a worker's leader to the dispatcher and back: gathers what it tells, sends it now and
/// then, and keeps orders until the leader obeys them. None of it waits for the dispatcher.
class DispatcherLink {
  public:
    /// `leaders`: among the leaders of all workers, its root where the dispatcher is. `dispatcher`:
    /// on that rank, else null. All outlive the link.
    DispatcherLink(const Job& job, int worker, TextChannel& leaders, Dispatcher* dispatcher);
    ~DispatcherLink();
    DispatcherLink(const DispatcherLink&) = delete;
    DispatcherLink& operator=(const DispatcherLink&) = delete;

    int worker() const { return worker_; }

    // Goes out with the next report.
    void trained(std::int64_t tokens, std::int32_t round);
    void wrote(AdapterId adapter, std::string metrics_line);
    void report(AdapterId adapter, const AdapterState& state, bool at_rung = false);
    void report_places(int places) { report_.places = places; }
    void report_saved(const std::vector<AdapterId>& adapters, double seconds) {
        report_.saved = adapters;
        report_.saving_seconds = seconds;
    }
    void report_returned(const ReturnedAdapter& returned) { report_.returned.push_back(returned); }
    void report_stopped(const std::string& why) { report_.stopped = why; }
    void send();

    // The job grows with an inbox file; where the dispatcher is, it takes part.
    void accept(const InboxFile& file);
    /// Error on other ranks: what the first worker has taken, all must take.
    void refuse(const InboxFile& file, const std::string& why);
    void added(const InboxFile& file);

    /// Training has thrown here: where the dispatcher is, the run's status says why.
    void record_failure(const std::string& why);

    /// Lets messages travel, and sends what has been gathered for long enough; to be called often.
    void look();
    /// The next orders that have come.
    std::optional<Decisions> next();
    /// Whether any that have come are such.
    bool any(const std::function<bool(const Decisions&)>& such) const;

  private:
    const Job& job_;
    int worker_;
    TextChannel& leaders_;
    Dispatcher* dispatcher_;
    WorkerReport report_;
    std::mutex log_mutex_;  ///< any thread may log
    std::deque<Decisions> decisions_;
    std::chrono::steady_clock::time_point sent_;
};

}  // namespace loratrain
