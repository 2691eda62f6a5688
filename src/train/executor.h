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

/// Executes the commands of rank 0 on one rank.

/// True for the rank that gets its replica's results of evaluations: lane 0 of the last stage.
bool learns_evaluations(const Plan& plan, int rank);

/// Executes rank 0's commands (command.h) on one rank. TrainWindow, ReferWindow and GenerateTexts
/// are collective over the ranks of the worker; all other commands are not.
class Executor {
  public:
    using Meanwhile = std::function<void()>;
    /// Sends a report to rank 0.
    using Tell = std::function<void(Report)>;

    /// `parts` outlive the executor.
    explicit Executor(const TrainerParts& parts);
    /// Rank 0: `has_posted` is true if a rank has received everything that rank 0 has posted. Used
    /// while references are computed (PipelineRunner::Hooks::has_window).
    void ask_for_posted(std::function<bool(int rank)> has_posted) {
        has_posted_ = std::move(has_posted);
    }

    /// Executes a command. `hooks`: for streams that train; between_actions is called often during
    /// all long commands.
    void perform(const WorkerCommand& command, const PipelineRunner::Hooks& hooks,
                 const Tell& tell);
    /// TrainWindow. `hooks`: as PipelineRunner::run.
    void train(const JointWindow& window, const PipelineRunner::Hooks& hooks);
    /// GenerateTexts: texts of a resident adapter after the prompts of its eval data (GenerateJob),
    /// in their order. Replicas share the work.
    std::vector<GeneratedText> generate(AdapterId adapter, const Meanwhile& meanwhile);
    /// WriteTexts: texts of resident adapters, in the order of the orders. Replicas share the work.
    std::vector<GeneratedText> write_texts(const std::vector<TextOrder>& orders,
                                           const Meanwhile& meanwhile);
    /// Reports results of the last window. Call it often between two windows of a stream.
    void go_on_reading() { parts_.run.runner().go_on_reading(); }

    /// The adapter's tensors, joined from ranks' parameters. Error if replicas differ, when all
    /// ranks' parameters are there. Thread-safe.
    std::vector<NamedTensor> join(AdapterId adapter, const AdapterParts::ByRank& all) const;
    const ReferenceLosses& references() const;
    /// Counters of an adapter when it was copied for a checkpoint.
    const AdapterBank::Counters& copied_counters(AdapterId adapter) const {
        return copies_.counters(adapter);
    }
    /// Rank 0, after CheckAdditions: the plan with the first kept file, as bytes.
    const std::string& plan_with_addition() const { return growth_->plan(); }

  private:
    const Window& own_part(const JointWindow& window) const;
    /// Computes the reference losses of a resident adapter's dataset (services/loss_references.h).
    /// Then all ranks have them in Stage::references(), and the adapter is as before.
    void refer(const JointWindow& window, const Meanwhile& meanwhile);
    void set_references(AdapterId adapter, const ReferenceValues& losses);
    std::vector<float> own_parameters(AdapterId adapter);
    void admit(const std::vector<AdapterId>& adapters);
    void release(AdapterId adapter);
    void load(AdapterId adapter, const std::string& directory);
    void check(const InboxFile& file);
    AdditionsReport check_all(const std::vector<InboxFile>& files);
    void take_addition(const std::string& plan);
    void add_samples(const AddSamples& added);
    GrowingRun growing_run() const;

    const TrainerParts& parts_;
    StateCopies copies_;
    std::function<bool(int rank)> has_posted_;
    std::optional<RunGrowth> growth_;  ///< inbox files that are checked and not taken
};

}  // namespace loratrain
