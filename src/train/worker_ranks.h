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

/// All ranks of a worker, as its rank 0 sees them (rank 0 included). Every rank executes orders in
/// the same order. Other ranks get an order at once; rank 0 executes its part in perform_ordered(),
/// before the next window that it orders. Reports come back from all ranks.
class WorkerRanks {
  public:
    virtual ~WorkerRanks() = default;

    virtual int count() const = 0;
    /// The worker's ranks on rank 0's host as a share of all ranks there.
    virtual double share_of_host() const = 0;
    /// Where rank 0 holds the adapter.
    virtual Residence residence(AdapterId adapter) const = 0;

    /// Orders a command other than TrainWindow.
    virtual void order(const WorkerCommand& command) = 0;
    /// Executes rank 0's part of all orders before the next window that it trains.
    virtual void perform_ordered() = 0;
    virtual void order_window(const PlannedWindow& window) = 0;
    /// Trains rank 0's part of the first ordered window that it has not trained. Call
    /// perform_ordered() before.
    virtual void train(const JointWindow& window, const PipelineRunner::Hooks& hooks) = 0;
    /// With an empty pipeline: orders GenerateTexts and returns the texts. The adapter has ended
    /// and is resident.
    virtual std::vector<GeneratedText> generate(AdapterId adapter) = 0;
    /// With an empty pipeline: orders WriteTexts and returns the texts. The adapters are resident.
    virtual std::vector<GeneratedText> write_texts(const std::vector<TextOrder>& orders) = 0;
    /// Waits until all ranks have the last order.
    virtual void finish() = 0;

    /// Lets orders travel. Call it often.
    virtual void progress() = 0;
    /// Reports results of the last window. Call it often between two windows of a stream.
    virtual void go_on_reading() = 0;
    /// The next report of any rank, in each rank's order; none = none has come. Does not wait.
    virtual std::optional<Report> report() = 0;
    /// The first signal that another rank has reported; 0 = none.
    virtual int reported_signal() = 0;

    /// Counters of an adapter when it was copied for a checkpoint (CopyStates).
    virtual AdapterBank::Counters copied_counters(AdapterId adapter) const = 0;
    /// The adapter's tensors, joined from all ranks' parameters (Executor::join).
    virtual std::vector<NamedTensor> join(AdapterId adapter,
                                          const AdapterParts::ByRank& all) const = 0;
    /// Reference losses, known on all ranks (services/loss_references.h).
    virtual ReferenceValues references(const ReferenceId& reference) const = 0;
    /// After CheckAdditions: the plan with the first kept file, as bytes.
    virtual std::string plan_with_addition() const = 0;
};

}  // namespace loratrain
