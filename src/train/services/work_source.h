#pragma once

#include <string>
#include <vector>

#include "train/checkpoint/state_at_round.h"
#include "train/job_warnings.h"
#include "train/orders/inbox.h"
#include "train/worker.h"

namespace loratrain {

/// Where a worker gets its adapters, what people order, and who hears what becomes of adapters: the
/// worker itself, which then trains all of the run (local_source.h), or the run's dispatcher
/// (dispatched_source.h). A service among the others while the stream goes on; the worker loop asks
/// it between streams.
class WorkSource : public Service {
  public:
    /// Before the first step. `signal`: that came to any rank so far, 0 = none. `set_back`: newer
    /// checkpoints may exist.
    virtual void begin(int signal, bool set_back) = 0;
    /// With an empty pipeline: obeys what has been ordered. False: training is over.
    virtual bool begin_turn() = 0;
    /// True where none of those that are admitted is to train: it has done what there is to do for
    /// them, or has waited a little for others.
    virtual bool rest_without_work() { return false; }
    /// Of these, which trained, the stream has ended: ends, rungs, orders, checkpoints.
    virtual void after(const std::vector<AdapterId>& trained) = 0;
    /// After training: tells the other ranks, and returns how the run has ended.
    virtual ExitCode end() = 0;

    /// For a checkpoint: of a worker with a dispatcher, the adapters that it owns and that have not
    /// ended.
    virtual RunState state() const = 0;
    /// Why to stop now; "" = go on.
    virtual std::string reason_to_stop() = 0;
    /// Why training has stopped before its end.
    virtual const std::string& stop_reason() const = 0;
    /// What is left is to be trained in another deployment.
    virtual bool redeploys() const { return false; }
    virtual void record_failure(const std::string& why) = 0;

    /// While the stream goes on: records or reports adapters that have ended, and whose files are
    /// written or not wanted. `rungs_changed`: so that decisions at rungs are recorded too.
    virtual void look_for_ends(bool rungs_changed = false) = 0;
    /// What these, which have ended, leave is in the run directory.
    virtual void on_ends(const std::vector<AdapterId>& ended) = 0;
    virtual void on_checkpoint_begun() {}
    virtual void on_checkpoint(const StateAtRound& saved, double seconds) = 0;
    /// Adapters that have room beside those of the table, as it will be, may come.
    virtual void ask_for_adapters(const AdapterTable& /*table*/) {}

    // A file of the inbox adds adapters (growth.h).

    /// All ranks have found it good. InputError where it cannot be taken.
    virtual void accept(const InboxFile& file) = 0;
    virtual void refuse(const InboxFile& file, const std::string& why) = 0;
    /// The job has got what it adds, behind the tail.
    virtual void added(const InboxFile& file, const JobTail& tail) = 0;
};

// What sources do with an empty pipeline.

/// Ends an adapter as it is, by order: evaluated and exported where it has trained.
void stop_adapter(Worker& worker, AdapterId adapter);
/// Ends the trials of a sweep whose budget is spent; those under way are evaluated as they are.
void end_trials_by_budget(Worker& worker);
/// Logs what is to be said of a file's additions.
void warn_of_additions(const RunParts& parts, const InboxFile& file, const JobTail& tail);

}  // namespace loratrain
