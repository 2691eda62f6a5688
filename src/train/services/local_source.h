#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "train/services/work_source.h"

namespace loratrain {

/// The worker trains all adapters of the run: it obeys the inbox itself, judges the trials of a
/// sweep, looks after its budget, and records what ends (sweep/, results.csv).
class LocalSource : public WorkSource {
  public:
    explicit LocalSource(Worker& worker) : worker_(worker) {}

    bool needs_drain(std::int32_t round) override;
    bool change(const Progress& planned, StreamChange& change) override;
    void look_for_orders() override;

    void begin(int signal, bool set_back) override;
    bool begin_turn() override;
    void after(const std::vector<AdapterId>& trained) override;
    ExitCode end() override;

    RunState state() const override { return worker_.adapters.state(worker_.clock.elapsed()); }
    std::string reason_to_stop() override { return worker_.reason_to_stop(); }
    const std::string& stop_reason() const override { return stop_reason_; }
    bool redeploys() const override { return redeploys_; }
    void record_failure(const std::string& why) override { worker_.journal.end("failed", why); }

    void look_for_ends(bool rungs_changed) override;
    void on_ends(const std::vector<AdapterId>& ended) override;
    void on_checkpoint_begun() override { stops_in_checkpoint_ = stopping_; }
    void on_checkpoint(const StateAtRound& saved, double seconds) override;

    void accept(const InboxFile& file) override { inbox_->accept(file); }
    void refuse(const InboxFile& file, const std::string& why) override;
    void added(const InboxFile& file, const JobTail& tail) override;

  private:
    // Orders of people.
    bool takes_orders_in_stream() const;
    bool orders_wait();
    bool orders_need_drain(std::int32_t round);
    void obey_orders();
    std::optional<AdapterId> take_stop(const std::string& name);
    void stop_in_stream(AdapterId adapter, const Progress& planned, StreamChange& change);
    void forget_obeyed(const std::set<std::string>& names);
    bool finished();
    void save();

    // Trials of a sweep.
    std::vector<AdapterId> ended_trials() const;
    void recall_trials();
    void search_trials(const std::vector<AdapterId>& trained);
    bool budget_spent() const;
    void release_trials();
    void wait_for_trials();

    Worker& worker_;
    std::string stop_reason_;
    bool redeploys_ = false;
    std::optional<Inbox> inbox_;  ///< once training begins
    Inbox::Orders orders_;
    std::set<std::string> stopping_;  ///< adapters whose stop files are obeyed
    std::set<std::string> stops_in_checkpoint_;
};

}  // namespace loratrain
