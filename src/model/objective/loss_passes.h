#pragma once

#include <span>
#include <vector>

#include "model/head.h"
#include "model/objective/objective.h"
#include "model/stage_sums.h"

namespace loratrain {

/// The last stage's part of a microbatch: runs the head over its chunks as the objectives of its
/// adapters ask.
///   evaluation: one pass for the sums per sample;
///   no adapter needs a first pass: one pass, sums per adapter and gradient;
///   else: a pass for the sums per sample, which the host reads (it waits for the backend), then
///   one for the gradient. All adapters of the microbatch get their losses from these sums.
class LossPasses {
  public:
    /// All are kept by reference.
    LossPasses(const Job& job, ObjectiveOf objective_of, Head& head, const StageSums& sums,
               Backend& backend);

    /// The tables' labels as the first of run()'s passes needs them.
    void set_labels(const Microbatch& microbatch, std::span<const std::int32_t> targets,
                    const LossTerms& terms, MicrobatchTables& tables) const;

    /// x: [T, H] output of the last layer. Adds to the sums per adapter, or for an evaluation
    /// overwrites those per sample. dx, [T, H], becomes the gradient with respect to x; unused for
    /// an evaluation.
    void run(const Microbatch& microbatch, const LossTerms& terms, MicrobatchTables& tables,
             const TensorView& x, const TensorView& dx);

  private:
    bool needs_first_pass(const Microbatch& microbatch) const;
    const Objective& objective(const Segment& segment) const;
    /// Per sample of the microbatch; `nll` likewise, or empty.
    std::vector<float> scales(const Microbatch& microbatch, const LossTerms& terms,
                              std::span<const double> nll) const;
    void first_pass(const MicrobatchTables& tables, const TensorView& x);
    std::vector<double> download_nll(const MicrobatchTables& tables);
    void add_losses(const Microbatch& microbatch, std::span<const double> nll);

    const Job& job_;
    ObjectiveOf objective_of_;
    Head& head_;
    const StageSums& sums_;
    Backend& backend_;
};

}  // namespace loratrain
