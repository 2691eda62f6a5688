#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "train/adapter_parts.h"
#include "train/directive.h"
#include "train/generation.h"
#include "train/orders/additions_verdict.h"
#include "train/orders/grow_run.h"
#include "train/state_copies.h"
#include "train/trainer_parts.h"

namespace loratrain {

/// Whether a rank learns what its replica's samples of evaluations come to: lane 0 of a last stage.
bool learns_evaluations(const Plan& plan, int rank);

/// Does on one rank what the conductor decides: a function per kind of directive, each collective
/// over the ranks, and what it returns only rank 0 gets. Rank 0 calls them itself as it posts a
/// directive; the others get the directive and perform() it.
class Performer {
  public:
    using Meanwhile = std::function<void()>;

    /// `parts` outlive it.
    explicit Performer(const TrainerParts& parts);
    /// Rank 0: `has_posted` says whether all that it has posted has reached a rank; of evaluations
    /// and references (PipelineRunner::Hooks::has_window).
    void ask_for_posted(std::function<bool(int rank)> has_posted) {
        has_posted_ = std::move(has_posted);
    }

    /// Other ranks. `hooks`: of the streams that train; `tell` sends a text to rank 0, which does
    /// not wait for it.
    void perform(const Directive& directive, const PipelineRunner::Hooks& hooks,
                 const std::function<void(std::string)>& tell);

    /// `hooks` as PipelineRunner::run: those of a stream's first window are the stream's.
    void train(const JointWindow& window, const PipelineRunner::Hooks& hooks);
    /// Between two windows of a stream, now and then while the next is waited for: what the last
    /// one has computed is told.
    void go_on_reading() { parts_.run.runner().go_on_reading(); }
    /// Results by adapter.
    std::vector<EvalResult> evaluate(const JointWindow& window, const Meanwhile& meanwhile);
    /// The reference of one adapter, which is resident: Stage::references() of all ranks have it
    /// then, and the adapter is as it was.
    void refer(const JointWindow& window, const Meanwhile& meanwhile);
    void set_references(AdapterId adapter, const std::vector<double>& losses);
    const ReferenceLosses& references() const;
    /// What a resident adapter writes behind the prompts of its evaluation data (GenerateJob), in
    /// their order; replicas share them.
    std::vector<GeneratedText> generate(AdapterId adapter, const Meanwhile& meanwhile);
    /// `state` is rank 0's.
    void save(const RunState& state);
    /// Of these adapters alone, in a folder of checkpoints of its own; both arguments behind them
    /// are rank 0's.
    void store(const std::vector<AdapterId>& adapters, const RunState& state,
               const std::string& root);
    /// All stages' tensors of an adapter.
    std::vector<NamedTensor> gather(AdapterId adapter);
    /// The same from what all ranks have of it (own_parameters()); any thread may.
    std::vector<NamedTensor> join(AdapterId adapter, const AdapterParts::ByRank& all) const;
    /// What this rank has of an adapter, also while others train.
    std::vector<float> own_parameters(AdapterId adapter);
    /// Between two windows of a stream, see StateCopies.
    void copy_states(const std::vector<AdapterId>& adapters, StateCopies::Deliver deliver);
    void keep_parameters(const std::vector<AdapterAtStep>& adapters, StateCopies::Deliver deliver);
    const StateCopies& copies() const { return copies_; }
    /// Also between two windows of a stream.
    void admit(const std::vector<AdapterId>& adapters);
    void release(AdapterId adapter);
    /// What a checkpoint in `directory` has of it.
    void load(AdapterId adapter, const std::string& directory);
    /// InputError on all ranks, and nothing has changed, where the file is refused (grow_run.h);
    /// rank 0's `accept` may refuse it too.
    void add(const InboxFile& file, const std::function<void()>& accept);
    /// Between two windows of a stream, each rank for itself: RunGrowth::check, and what it keeps.
    void check(const InboxFile& file);
    /// Rank 0: the plan with the first that is kept.
    const std::string& plan_with_addition() const { return growth_->plan_text(); }
    /// RunGrowth::take of that one, between two windows while none is planned.
    void take_addition(const std::string& plan);
    void drop_additions() { growth_.reset(); }

  private:
    const Window& own_part(const JointWindow& window) const;

    AdditionsVerdict check_all(const std::vector<InboxFile>& files);
    GrowingRun growing_run(const std::function<void()>& accept) const;

    const TrainerParts& parts_;
    StateCopies copies_;
    std::function<bool(int rank)> has_posted_;
    std::optional<RunGrowth> growth_;  ///< checked and not taken
};

}  // namespace loratrain
