#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/command.h"
#include "train/generation.h"
#include "train/pipeline_runner.h"
#include "train/report.h"
#include "train/stream_planner.h"

namespace loratrain {

/// All ranks of a worker as its rank 0 sees them, itself included: what it orders, every rank
/// performs in the same order. The other ranks get an order at once; rank 0 performs its own part
/// with perform_ordered(), before the window that it orders next. Reports come back from all ranks.
class WorkerRanks {
  public:
    virtual ~WorkerRanks() = default;

    virtual int count() const = 0;
    /// This worker's share of all ranks that run on rank 0's host.
    virtual double share_of_host() const = 0;
    /// Where rank 0 has the adapter.
    virtual Residence residence(AdapterId adapter) const = 0;

    /// Not TrainWindow.
    virtual void order(const WorkerCommand& command) = 0;
    /// Rank 0's part of what has been ordered before the next window that it trains.
    virtual void perform_ordered() = 0;
    virtual void order_window(const PlannedWindow& window) = 0;
    /// Rank 0's part of the first window that has been ordered and that it has not trained. Call
    /// perform_ordered() before.
    virtual void train(const JointWindow& window, const PipelineRunner::Hooks& hooks) = 0;
    /// GenerateTexts of a resident adapter that has ended, with the pipeline empty: its texts.
    virtual std::vector<GeneratedText> generate(AdapterId adapter) = 0;
    /// The last order has been given: waits until all ranks have it.
    virtual void finish() = 0;

    /// Lets what has been ordered travel; to be called often.
    virtual void progress() = 0;
    /// Between two windows of a stream, now and then while the next is waited for.
    virtual void go_on_reading() = 0;
    /// The next report of any rank, in the order of each; none = none has come. Does not wait.
    virtual std::optional<Report> report() = 0;
    /// The first signal that was reported by another rank; 0 = none.
    virtual int reported_signal() = 0;

    /// Of an adapter that was copied for a checkpoint (CopyStates), as it was then.
    virtual AdapterBank::Counters copied_counters(AdapterId adapter) const = 0;
    /// An adapter's tensors from the parameters that ranks have of it (Executor::join).
    virtual std::vector<NamedTensor> join(AdapterId adapter,
                                          const AdapterParts::ByRank& all) const = 0;
    /// What references make of a dataset; known on all ranks.
    virtual std::vector<double> references(const ReferenceId& reference) const = 0;
    /// After CheckAdditions: the plan with the first file that is kept, as bytes.
    virtual std::string plan_with_addition() const = 0;
};

}  // namespace loratrain
