#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "train/checkpoint/state_at_round.h"
#include "train/worker.h"
#include "train/workers/dispatcher_link.h"

namespace loratrain {

/// The worker's side of the run's dispatcher (train/workers/dispatcher.h): reports what becomes of
/// adapters, and obeys decisions. During a stream: adapters that have not begun come, orders of
/// people (stop, add) are obeyed, trials leave at rungs and come again, ends are reported. All
/// other decisions need an empty pipeline. The worker loop calls it between streams.
class DispatchService : public Service {
  public:
    /// One of several workers owns nothing at first: the dispatcher gives it adapters.
    DispatchService(Worker& worker, DispatcherLink& dispatcher);

    bool needs_drain(std::int32_t round) override;
    bool change(const Progress& planned, StreamChange& change) override;
    void look_for_orders() override;

    /// Before the first step. `signal`: the first that came to any rank; 0 = none. `set_back`:
    /// newer checkpoints may exist.
    void begin(int signal, bool set_back);
    /// With an empty pipeline: obeys decisions, and saves if that is due. False if training is
    /// over.
    bool begin_turn();
    /// True if no admitted adapter has anything to train. Then it has ended them, or has waited a
    /// little for others.
    bool rest_without_work();
    /// The stream of `trained` has ended: reports ends and rungs.
    void after(const std::vector<AdapterId>& trained);
    /// After training: finishes the other ranks, and returns how the run has ended.
    ExitCode end();

    /// State for a checkpoint. One of several workers, which record ends elsewhere, has only
    /// adapters that it owns and that have not ended.
    RunState state() const;
    /// Why the worker has to stop now; "" = go on.
    std::string reason_to_stop();
    /// Why training has stopped before its end.
    const std::string& stop_reason() const { return stop_ordered_; }
    /// The remaining adapters continue in another deployment.
    bool redeploys() const { return redeploys_; }
    void record_failure(const std::string& why) { dispatcher_.record_failure(why); }

    /// During a stream: reports adapters that have ended and whose files are written or not wanted,
    /// if their ends are recorded outside of checkpoints.
    void look_for_ends();
    /// The files of these adapters, which have ended, are in the run directory.
    void on_ends(const std::vector<AdapterId>& ended);
    void on_checkpoint(const StateAtRound& saved, double seconds);
    /// Asks the dispatcher for as many adapters as have room beside those of `table`.
    void ask_for_adapters(const AdapterTable& table);
    /// A joint run: judges trials that were evaluated at rungs, and others by their values.
    void judge(const std::vector<AdapterId>& at_rung);

    /// The worker has more to save than its last checkpoint has.
    void note_change() { changed_ = true; }

  private:
    bool owns(AdapterId adapter) const { return worker_.adapters[adapter].owned; }
    std::vector<AdapterId> owned(const std::vector<AdapterId>& adapters) const;
    void rest();
    void stop_or_save();
    void save();
    void stop_working(const std::string& why);

    void report_trained(const std::vector<AdapterId>& trained);
    void report_at_rung(const std::vector<AdapterId>& trials);
    void report_rungs();
    std::vector<AdapterId> unreported_ends() const;
    void report_ends();
    void release_recorded();

    void hear();
    void obey(const Decisions& decisions);
    void take_update(const AdapterUpdate& update);
    void take_over(const GivenAdapter& given);
    void give_back(const std::vector<ReturnedAdapter>& returned);
    std::string store_for_others(const std::vector<AdapterId>& adapters);

    bool takes_orders_in_stream() const;
    bool takes_orders_before(std::int32_t round) const;
    bool any_needs_drain(std::int32_t round) const;
    bool need_drain(const Decisions& decisions, std::int32_t round) const;
    bool judge_parked(const Decisions& decisions) const;

    Worker& worker_;
    DispatcherLink& dispatcher_;
    std::chrono::milliseconds rest_;  ///< the next one
    int places_ = 0;                  ///< as reported to the dispatcher
    int moves_ = 0;                   ///< times that it has given adapters back
    std::string stop_ordered_;        ///< why the dispatcher has ordered a stop; "" = it has not
    bool begun_ = true;               ///< the dispatcher has reported the state of former starts
    bool resting_ = false;            ///< it has saved and trains no more
    bool has_trained_ = false;        ///< since stop_or_save()
    bool changed_ = false;            ///< since its last checkpoint
    bool redeploys_ = false;
    std::optional<ExitCode> over_;
};

}  // namespace loratrain
