#pragma once

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "model/head.h"
#include "model/objective/objective.h"
#include "model/objective/reference_losses.h"

namespace loratrain {

/// Sums of a stage in backend memory. Sums per adapter travel in message tails (src/design.md
/// "Gradient norms ride on messages").
struct StageSums {
    double* partial = nullptr;   ///< squared gradients of this stage and of the stages above
    double* received = nullptr;  ///< `partial` of the stage above
    /// Squared gradients of all stages, once the sum has reached this stage.
    double* total = nullptr;
    double* loss = nullptr;        ///< losses of the running batch
    double* wrong = nullptr;       ///< tokens whose argmax is not the target
    double* sample_nll = nullptr;  ///< per sample or target of a microbatch (LabelBins)
    double* sample_wrong = nullptr;
};

/// The last stage's part of a microbatch: runs the head over its chunks as the adapters' objectives
/// need.
/// - Evaluation: one pass, for the sums per sample.
/// - No adapter needs a first pass: one pass, for the sums per adapter and the gradient. It makes
///   sums per sample instead if an objective compares hidden states.
/// - Otherwise: a first pass for the sums per sample, or for -log p of each target if an objective
///   scales rows, which the host reads (it waits for the backend); then a second pass for the
///   gradient. All adapters of the microbatch get their losses from the first pass.
///
/// If losses are reported by file, the single pass also makes sums per sample, and losses come from
/// them. The gradient that comparing hidden states adds (Objective::hidden_loss) comes last.
class LossPasses {
  public:
    /// Keeps references to all arguments.
    LossPasses(const Job& job, const Plan& plan, const ReferenceLosses& references,
               ObjectiveOf objective_of, Head& head, const StageSums& sums, Backend& backend);

    /// Sets the tables' labels as the first pass of run() needs them.
    void set_labels(const Microbatch& microbatch, const MicrobatchRows& rows,
                    const LossTerms& terms, MicrobatchTables& tables) const;

    /// Runs the passes on x [T, H], the output of the last layer. Adds to the sums per adapter; an
    /// evaluation overwrites the sums per sample instead. dx [T, H] becomes the gradient with
    /// respect to x; an evaluation does not use it.
    void run(const Microbatch& microbatch, const MicrobatchRows& rows, const LossTerms& terms,
             MicrobatchTables& tables, const TensorView& x, const TensorView& dx);

    /// Converts an evaluation's sums per sample `nll` to losses: fills losses[s] of the segment's
    /// samples and returns their rewards.
    RewardSums evaluated(const Segment& segment, double pairs_per_chosen_target,
                         std::span<const double> nll, std::span<double> losses) const;
    /// Sums over the samples of an adapter's step that have run on this stage.
    struct StepSums {
        RewardSums rewards = {};
        /// Per file; empty if losses by file are not reported.
        std::vector<double> file_losses = {};
    };
    StepSums take_sums(AdapterId adapter, std::int32_t step);

  private:
    /// What a first pass has found.
    struct FirstPass {
        std::vector<double> nll = {};  ///< z per sample
        /// Of all rows with a target (RolloutRows), if an objective scales rows; else empty.
        bool by_target = false;
        std::vector<double> target_nll = {};
        std::vector<double> entropies = {};
        std::vector<float> advantages = {};
        std::vector<float> logprobs = {};
    };
    /// A segment's place in a microbatch, in samples and in rows with a target.
    struct Place {
        std::size_t segment = 0;
        std::size_t first = 0;
        std::size_t count = 0;
        std::size_t first_target = 0;
        std::size_t targets = 0;
    };
    template <class Use>
    static void for_each_segment(const Microbatch& microbatch, const Use& use);

    bool needs_first_pass(const Microbatch& microbatch) const;
    bool scales_rows(const Microbatch& microbatch) const;
    bool compares_hidden(const Microbatch& microbatch) const;
    bool reports_files(const Microbatch& microbatch) const;
    /// Whether losses come from sums per sample, even if no scale needs them.
    bool sums_by_sample(const Microbatch& microbatch) const;
    /// For the samples whose hidden states are compared, the rows of their last labels' tokens.
    std::vector<std::int32_t> ends(const Microbatch& microbatch, const MicrobatchRows& rows) const;
    /// Hidden losses per segment, whose gradients it adds to dx; empty if no segment compares
    /// hidden states.
    std::vector<HiddenLoss> compare(const Microbatch& microbatch, const LossTerms& terms,
                                    const MicrobatchTables& tables, std::span<const double> nll,
                                    const TensorView& x, const TensorView& dx);
    const Objective& objective(const Segment& segment) const;
    std::int32_t group_samples(const Segment& segment) const;
    /// Reference losses of the segment's samples, which are those to evaluate on (`evaluation`) or
    /// to train on; empty if the objective has no reference.
    std::vector<double> references(const Segment& segment, bool evaluation) const;
    /// The segment's samples in training, and what the first pass has found of them.
    ObjectiveSamples samples_of(const Microbatch& microbatch, const LossTerms& terms,
                                const Place& place, const FirstPass& found,
                                std::span<const double> reference) const;
    /// Scales per sample of the microbatch, or per target. `found` may be empty if no objective
    /// needs it.
    std::vector<float> scales(const Microbatch& microbatch, const LossTerms& terms,
                              const FirstPass& found) const;
    /// Reads the sums of a first pass.
    FirstPass found(const Microbatch& microbatch, const MicrobatchRows& rows,
                    const MicrobatchTables& tables);
    void sums_per_sample(const MicrobatchTables& tables, const TensorView& x, const TensorView& dx);
    /// -log p and entropy of each target: in StageSums::sample_nll and in the place of
    /// StageSums::sample_wrong.
    void sums_per_target(const MicrobatchTables& tables, const TensorView& x);
    void add_to_step(const ObjectiveSamples& samples, const Segment& segment,
                     std::span<const double> losses);
    void add_losses(const Microbatch& microbatch, const LossTerms& terms, const FirstPass& found,
                    std::span<const HiddenLoss> compared);

    const Job& job_;
    const Plan& plan_;
    const ReferenceLosses& references_;
    ObjectiveOf objective_of_;
    Head& head_;
    const StageSums& sums_;
    Backend& backend_;
    /// Steps whose samples have not all run.
    std::map<std::pair<AdapterId, std::int32_t>, StepSums> steps_;
};

}  // namespace loratrain
