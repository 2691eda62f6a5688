#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "train/checkpoint/adapter_transfer.h"
#include "train/command.h"
#include "train/generation.h"
#include "train/orders/grow_run.h"
#include "train/report.h"
#include "train/state_copies.h"
#include "train/trainer_parts.h"

namespace loratrain {

/// Whether a rank learns what its replica's samples of evaluations come to: lane 0 of a last stage.
bool learns_evaluations(const Plan& plan, int rank);

/// Performs on one rank what rank 0 orders (command.h). perform() of TrainWindow, ReferWindow and
/// GenerateTexts is collective over the ranks of the worker, that of all others is each rank's own.
class Executor {
  public:
    using Meanwhile = std::function<void()>;
    /// Takes what a rank tells rank 0.
    using Tell = std::function<void(Report)>;

    /// `parts` outlive it.
    explicit Executor(const TrainerParts& parts);
    /// Rank 0: `has_posted` says whether all that it has posted has reached a rank; of references
    /// (PipelineRunner::Hooks::has_window).
    void ask_for_posted(std::function<bool(int rank)> has_posted) {
        has_posted_ = std::move(has_posted);
    }

    /// `hooks`: of the streams that train; their between_actions is called now and then in all that
    /// takes long.
    void perform(const WorkerCommand& command, const PipelineRunner::Hooks& hooks,
                 const Tell& tell);
    /// TrainWindow. `hooks` as PipelineRunner::run: those of a stream's first window are the
    /// stream's.
    void train(const JointWindow& window, const PipelineRunner::Hooks& hooks);
    /// GenerateTexts: what a resident adapter writes behind the prompts of its evaluation data
    /// (GenerateJob), in their order; replicas share them.
    std::vector<GeneratedText> generate(AdapterId adapter, const Meanwhile& meanwhile);
    /// Between two windows of a stream, now and then while the next is waited for: what the last
    /// one has computed is reported.
    void go_on_reading() { parts_.run.runner().go_on_reading(); }

    /// An adapter's tensors from the parameters that ranks have of it. Where all ranks' are there,
    /// Error when replicas differ. Any thread may.
    std::vector<NamedTensor> join(AdapterId adapter, const AdapterParts::ByRank& all) const;
    const ReferenceLosses& references() const;
    /// Of an adapter that was copied for a checkpoint.
    const AdapterBank::Counters& copied_counters(AdapterId adapter) const {
        return copies_.counters(adapter);
    }
    /// Rank 0, after CheckAdditions: the plan with the first that is kept.
    const std::string& plan_with_addition() const { return growth_->plan(); }

  private:
    const Window& own_part(const JointWindow& window) const;
    /// The reference of one adapter, which is resident: Stage::references() of all ranks have it
    /// then, and the adapter is as it was.
    void refer(const JointWindow& window, const Meanwhile& meanwhile);
    void set_references(AdapterId adapter, const std::vector<double>& losses);
    std::vector<float> own_parameters(AdapterId adapter);
    void admit(const std::vector<AdapterId>& adapters);
    void release(AdapterId adapter);
    void load(AdapterId adapter, const std::string& directory);
    void check(const InboxFile& file);
    AdditionsReport check_all(const std::vector<InboxFile>& files);
    void take_addition(const std::string& plan);
    GrowingRun growing_run() const;

    const TrainerParts& parts_;
    StateCopies copies_;
    std::function<bool(int rank)> has_posted_;
    std::optional<RunGrowth> growth_;  ///< checked and not taken
};

}  // namespace loratrain
