#pragma once

#include <chrono>
#include <deque>
#include <mutex>
#include <optional>
#include <string>

#include "comm/text_channel.h"
#include "train/records/journal.h"
#include "train/workers/worker_message.h"

namespace loratrain {

class Dispatcher;

/// Link between rank 0 of a worker and the dispatcher. It gathers reports and sends them now and
/// then, and keeps decisions until the worker obeys them. It never waits for the dispatcher.
class DispatcherLink : public WorkerReports {
  public:
    /// Several workers. `leaders`: rank 0 of each worker; its root has the dispatcher.
    /// `dispatcher`: null on other ranks. All outlive the link.
    DispatcherLink(int worker, TextChannel& leaders, Dispatcher* dispatcher);
    /// A joint run: direct calls of the dispatcher.
    explicit DispatcherLink(Dispatcher& dispatcher);
    ~DispatcherLink() override;
    DispatcherLink(const DispatcherLink&) = delete;
    DispatcherLink& operator=(const DispatcherLink&) = delete;

    int worker() const { return worker_; }
    bool is_joint() const { return leaders_ == nullptr; }

    // Sent with the next report.
    void trained(std::int64_t tokens, std::int32_t round) override;
    void wrote(AdapterId adapter, std::string metrics_line) override;
    void report(AdapterId adapter, const AdapterState& state) override;
    /// The trial has been evaluated at a rung.
    void report_at_rung(AdapterId adapter, const AdapterState& state);
    void report_places(int places) { report_.places = places; }
    void report_saved(const std::vector<AdapterId>& adapters, const std::vector<AdapterId>& ended,
                      double seconds);
    void report_returned(const ReturnedAdapter& returned) { report_.returned.push_back(returned); }
    void report_stopped(const std::string& why) { report_.stopped = why; }
    void send();

    // An inbox file adds adapters: passed on to the dispatcher on its rank.
    void accept(const InboxFile& file);
    /// Error on other ranks: all workers have to take what the first one has taken.
    void refuse(const InboxFile& file, const std::string& why);
    void added(const InboxFile& file);
    void look_again(const InboxFile& file);

    // A joint run (Dispatcher).
    void recall();
    void begin();
    void judge(const std::vector<AdapterId>& at_rung);
    /// Does nothing with several workers: the dispatcher looks for orders itself.
    void look_for_orders();

    /// Training has thrown: the dispatcher on this rank, if any, records why.
    void record_failure(const std::string& why);

    /// Lets messages travel, and sends reports that are old enough. Call it often.
    void look() override;
    /// Decisions that have come, oldest first. The caller removes those that it obeys.
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
