#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/services/work_source.h"
#include "train/workers/dispatcher_link.h"

namespace loratrain {

/// The run's dispatcher (train/workers/dispatcher.h) gives the worker adapters, one by one, judges
/// its trials, and hears what becomes of them. While the stream goes on, adapters that have not
/// begun come, trials leave at rungs and come again, and ends are reported; what else the
/// dispatcher decides needs an empty pipeline.
class DispatchedSource : public WorkSource {
  public:
    /// Takes what is owned out of the table: the dispatcher gives it.
    DispatchedSource(Worker& worker, DispatcherLink& dispatcher);

    bool needs_drain(std::int32_t round) override;
    bool change(const Progress& planned, StreamChange& change) override;

    void begin(int signal, bool /*set_back*/) override { worker_.signal = signal; }
    bool begin_turn() override;
    bool rest_without_work() override;
    void after(const std::vector<AdapterId>& trained) override;
    ExitCode end() override;

    RunState state() const override;
    std::string reason_to_stop() override;
    const std::string& stop_reason() const override { return stop_ordered_; }
    void record_failure(const std::string& why) override { dispatcher_.record_failure(why); }

    void look_for_ends(bool rungs_changed) override;
    void on_ends(const std::vector<AdapterId>& ended) override;
    void on_checkpoint(const StateAtRound& saved, double seconds) override;
    void ask_for_adapters(const AdapterTable& table) override;

    void accept(const InboxFile& file) override { dispatcher_.accept(file); }
    void refuse(const InboxFile& file, const std::string& why) override {
        dispatcher_.refuse(file, why);
    }
    void added(const InboxFile& file, const JobTail& tail) override;

  private:
    bool owns(AdapterId adapter) const { return worker_.adapters[adapter].owned; }
    void rest();
    int places(const AdapterTable& table) const;
    void report_trained(const std::vector<AdapterId>& trained);
    void report_rungs();
    void report_ends();
    void save();
    void stop_working(const std::string& why);

    void obey(const Decisions& decisions);
    void take_update(const AdapterUpdate& update);
    void take_over(const GivenAdapter& given);
    void give_back(const std::vector<ReturnedAdapter>& returned);
    std::string store_for_others(const std::vector<AdapterId>& adapters);
    bool need_drain(const Decisions& decisions) const;
    bool judge_parked(const Decisions& decisions) const;

    Worker& worker_;
    DispatcherLink& dispatcher_;
    int places_ = 0;            ///< that were reported to the dispatcher
    int moves_ = 0;             ///< in which it has given adapters back
    std::string stop_ordered_;  ///< by the dispatcher: why
    bool begun_ = false;        ///< it has heard of the dispatcher
    bool resting_ = false;      ///< it has saved and trains no more
    std::optional<ExitCode> over_;
};

}  // namespace loratrain
