#pragma once

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "model/head.h"
#include "model/objective/objective.h"
#include "model/objective/reference_losses.h"
#include "model/stage_sums.h"

namespace loratrain {

/// The last stage's part of a microbatch: runs the head over its chunks as the objectives of its
/// adapters ask.
///   evaluation: one pass for the sums per sample;
///   no adapter needs a first pass: one pass, sums per adapter and gradient, or where one compares
///     hidden states sums per sample;
///   else: a pass for the sums per sample, which the host reads (it waits for the backend), then
///   one for the gradient. All adapters of the microbatch get their losses from these sums.
/// Where losses are reported by file, the one pass also makes sums per sample, and losses come from
/// them. What comparing hidden states adds to the gradient (Objective::hidden_loss) comes last.
class LossPasses {
  public:
    /// All are kept by reference.
    LossPasses(const Job& job, const Plan& plan, const ReferenceLosses& references,
               ObjectiveOf objective_of, Head& head, const StageSums& sums, Backend& backend);

    /// The tables' labels as the first of run()'s passes needs them.
    void set_labels(const Microbatch& microbatch, const MicrobatchRows& rows,
                    const LossTerms& terms, MicrobatchTables& tables) const;

    /// x: [T, H] output of the last layer. Adds to the sums per adapter, or for an evaluation
    /// overwrites those per sample. dx, [T, H], becomes the gradient with respect to x; unused for
    /// an evaluation.
    void run(const Microbatch& microbatch, const LossTerms& terms, MicrobatchTables& tables,
             const TensorView& x, const TensorView& dx);

    /// What an evaluation's sums per sample come to: losses[s] of the segment's samples; returns
    /// their rewards.
    RewardSums evaluated(const Segment& segment, double pairs_per_chosen_target,
                         std::span<const double> nll, std::span<double> losses) const;
    /// Of the samples of an adapter's step that have been run here.
    struct StepSums {
        RewardSums rewards = {};
        std::vector<double> file_losses = {};  ///< per file, where these are reported
    };
    StepSums take_sums(AdapterId adapter, std::int32_t step);

  private:
    bool needs_first_pass(const Microbatch& microbatch) const;
    bool compares_hidden(const Microbatch& microbatch) const;
    bool reports_files(const Microbatch& microbatch) const;
    /// Losses come of sums per sample, whatever scales need.
    bool sums_by_sample(const Microbatch& microbatch) const;
    /// Rows of the last labels' tokens, of the samples whose hidden states are compared.
    std::vector<std::int32_t> ends(const Microbatch& microbatch, const MicrobatchRows& rows) const;
    /// Per segment, added to dx; empty where none compares hidden states.
    std::vector<HiddenLoss> compare(const Microbatch& microbatch, const LossTerms& terms,
                                    const MicrobatchTables& tables, std::span<const double> nll,
                                    const TensorView& x, const TensorView& dx);
    const Objective& objective(const Segment& segment) const;
    std::int32_t group_samples(const Segment& segment) const;
    /// Of the segment, whose samples are those to evaluate on or to train on; empty without need.
    std::vector<double> references(const Segment& segment, bool evaluation) const;
    /// Per sample of the microbatch; `nll` likewise, or empty.
    std::vector<float> scales(const Microbatch& microbatch, const LossTerms& terms,
                              std::span<const double> nll) const;
    void first_pass(const MicrobatchTables& tables, const TensorView& x);
    void sums_per_sample(const MicrobatchTables& tables, const TensorView& x, const TensorView& dx);
    std::vector<double> download_nll(const MicrobatchTables& tables);
    void add_to_step(const ObjectiveSamples& samples, const Segment& segment,
                     std::span<const double> losses);
    void add_losses(const Microbatch& microbatch, const LossTerms& terms,
                    std::span<const double> nll, std::span<const HiddenLoss> compared);

    const Job& job_;
    const Plan& plan_;
    const ReferenceLosses& references_;
    ObjectiveOf objective_of_;
    Head& head_;
    const StageSums& sums_;
    Backend& backend_;
    std::map<std::pair<AdapterId, std::int32_t>, StepSums> steps_;  ///< under way
};

}  // namespace loratrain
