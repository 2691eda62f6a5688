#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "config/job.h"
#include "plan/plan.h"

namespace loratrain {

/// Samples of one adapter and step, as its objective sees them: whole groups (AdapterPlan), in the
/// order of their batch.
struct ObjectiveSamples {
    std::span<const SampleRef> samples;
    /// Per sample z_s = sum over its target rows of weight times -log p(target), fp64; empty before
    /// a first pass.
    std::span<const double> nll;
    /// The same under the reference (reference_losses.h); empty for an objective that has no
    /// reference.
    std::span<const double> reference = {};
    LossJob loss = {};
    /// LossJob::nll_weight() times pairs per target of chosen samples, of the whole batch.
    double nll_share = 0.0;
    std::int32_t group_samples = 1;  ///< as AdapterPlan's
    /// [samples, H]: per sample what the head multiplies (behind the final norm) at the token of
    /// its last label, the end of the answer; empty unless the objective compares it.
    std::span<const float> hidden = {};
};

/// What comparing hidden states adds to the loss of a batch.
struct HiddenLoss {
    double value = 0.0;           ///< to the sum of its samples' losses
    double compared = 0.0;        ///< the comparison's own loss, for reports
    std::vector<float> gradient;  ///< of the batch's loss in ObjectiveSamples::hidden
};

/// What TRL reports beside a loss, each summed: rewards of chosen (desirable) and of rejected
/// samples, pairs whose chosen one has the larger reward, log-probabilities of both, and of groups
/// with KL samples KL; or of a batch HiddenLoss::compared.
struct RewardSums {
    double chosen = 0.0;
    double rejected = 0.0;
    double accuracies = 0.0;
    double logps_chosen = 0.0;
    double logps_rejected = 0.0;
    double chosen_samples = 0.0;  ///< how many: of pairs as many of both
    double rejected_samples = 0.0;
    double kl = 0.0;
    double kl_groups = 0.0;
    double compared = 0.0;

    /// All, in this order, for reading and writing.
    using Values = std::array<double, 10>;
    Values values() const;
    static RewardSums of(const Values& values);
    void add(const RewardSums& other);
};

/// The same per chosen or rejected sample, pair and group; NaN of none.
struct RewardMeans {
    double chosen = 0.0;
    double rejected = 0.0;
    double accuracies = 0.0;
    double logps_chosen = 0.0;
    double logps_rejected = 0.0;
    double kl = 0.0;
    double compared = 0.0;  ///< of the batch

    double margin() const { return chosen - rejected; }
};
RewardMeans means_of(const RewardSums& sums);

/// What an adapter minimises: per batch (sum over its samples of loss_s) / denominator, where the
/// losses of a group are functions of that group's z alone and the denominator is
/// BatchPlan::denominator, which the planner counts (plan/sample_counts.h).
///
/// Every such loss has the gradient scale_s weight (softmax(logits) - onehot(target)) in the logits
/// of a target row of sample s, with scale_s = (d sum of losses / d z_s) / denominator. Where the
/// scales depend on z, the last stage runs the head twice over a microbatch (loss_passes.h): for z,
/// then for the gradient. One that compares hidden states has a batch in one microbatch
/// (LossJob::is_contrastive) and adds to the loss what comes of that. Objectives have no state;
/// host arithmetic, called once per segment.
class Objective {
  public:
    virtual ~Objective() = default;

    /// Whether scales() reads z. If not, the head runs once and the loss of a batch is the sum of
    /// its z.
    virtual bool needs_first_pass() const = 0;

    /// scales[s] = scale_s; `denominator` may be 0 (a batch without targets), scales are 0 then.
    virtual void scales(const ObjectiveSamples& of, double denominator,
                        std::span<float> scales) const = 0;

    /// losses[s] = loss_s from z, which is there; a group's loss may stand at any of its samples.
    virtual void losses(const ObjectiveSamples& of, std::span<double> losses) const = 0;

    virtual bool compares_hidden() const { return false; }
    /// Of a whole batch, from z and hidden.
    virtual HiddenLoss hidden_loss(const ObjectiveSamples& /*of*/, double /*denominator*/) const {
        return {};
    }

    /// From z; zeros of an objective without.
    virtual RewardSums rewards(const ObjectiveSamples& /*of*/) const { return {}; }
};

/// The objective of an adapter; lives as long as the program.
const Objective& objective_of(const AdapterJob& adapter);
using ObjectiveOf = const Objective& (*)(const AdapterJob&);

/// What a microbatch is run for.
struct LossTerms {
    /// Per segment: BatchPlan::denominator of its batch; not read for an evaluation.
    std::vector<double> denominators;
    /// Forward only, without dropout; sums per sample of the microbatch instead of per adapter.
    bool evaluation = false;
    /// Of an evaluation: of the base model alone, without adapters.
    bool base_alone = false;
    /// Per segment: BatchPlan::pairs_per_chosen_target() of its batch; for losses of pairs.
    std::vector<double> pairs_per_chosen_target = {};
};

}  // namespace loratrain
