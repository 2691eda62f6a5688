#pragma once

#include <chrono>
#include <deque>
#include <mutex>
#include <optional>
#include <string>

#include "comm/text_channel.h"
#include "train/workers/worker_message.h"

namespace loratrain {

class Dispatcher;

/// The way of a worker's leader to the dispatcher and back: gathers what it reports, sends it now
/// and then, and keeps decisions until the leader obeys them. None of it waits for the dispatcher.
class DispatcherLink {
  public:
    /// Of several workers. `leaders`: among the leaders of all, its root where the dispatcher is.
    /// `dispatcher`: on that rank, else null. All outlive the link.
    DispatcherLink(int worker, TextChannel& leaders, Dispatcher* dispatcher);
    /// Of a joint run: all goes to the dispatcher by direct calls.
    explicit DispatcherLink(Dispatcher& dispatcher);
    ~DispatcherLink();
    DispatcherLink(const DispatcherLink&) = delete;
    DispatcherLink& operator=(const DispatcherLink&) = delete;

    int worker() const { return worker_; }
    bool is_joint() const { return leaders_ == nullptr; }

    // Goes out with the next report.
    void trained(std::int64_t tokens, std::int32_t round);
    void wrote(AdapterId adapter, std::string metrics_line);
    void report(AdapterId adapter, const AdapterState& state);
    /// The trial has been evaluated at a rung.
    void report_at_rung(AdapterId adapter, const AdapterState& state);
    void report_places(int places) { report_.places = places; }
    void report_saved(const std::vector<AdapterId>& adapters, const std::vector<AdapterId>& ended,
                      double seconds);
    void report_returned(const ReturnedAdapter& returned) { report_.returned.push_back(returned); }
    void report_stopped(const std::string& why) { report_.stopped = why; }
    void send();

    // The job grows with an inbox file; where the dispatcher is, it takes part.
    void accept(const InboxFile& file);
    /// Error on other ranks: what the first worker has taken, all must take.
    void refuse(const InboxFile& file, const std::string& why);
    void added(const InboxFile& file);
    void look_again(const InboxFile& file);

    // Of a joint run (Dispatcher).
    void recall();
    void begin();
    void judge(const std::vector<AdapterId>& at_rung);
    /// Nothing where there are several workers: the dispatcher looks for orders itself.
    void look_for_orders();

    /// Training has thrown here: where the dispatcher is, the run's status says why.
    void record_failure(const std::string& why);

    /// Lets messages travel, and sends what has been gathered for long enough; to be called often.
    void look();
    /// Decisions that have come, the oldest first. Whoever obeys them removes them.
    std::deque<Decisions>& decisions() { return decisions_; }

  private:
    void take_decisions();

    int worker_ = 0;
    TextChannel* leaders_ = nullptr;
    Dispatcher* dispatcher_;
    WorkerReport report_;
    std::mutex log_mutex_;  ///< any thread may log
    std::deque<Decisions> decisions_;
    std::chrono::steady_clock::time_point sent_ = std::chrono::steady_clock::now();
};

}  // namespace loratrain
