#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "config/job.h"
#include "plan/plan.h"

namespace loratrain {

/// The interface of an adapter's loss, and what it sees of samples.

/// The rows with a target of samples of rollouts, one sample after another; sample s has
/// SampleRef::targets of them.
struct RolloutRows {
    std::span<const double> nll;        ///< -log p(target)
    std::span<const double> reference;  ///< the same under the reference; empty without one
    std::span<const float> advantages;
    std::span<const float> logprobs;    ///< log p(target) of the sampler
    std::span<const double> entropies;  ///< of the row's distribution
};

/// Samples of one adapter and step as an objective sees them: whole groups (AdapterPlan), in the
/// order of the batch.
struct ObjectiveSamples {
    std::span<const SampleRef> samples;
    /// Per sample z_s = sum over its target rows of weight * -log p(target), in fp64. Empty before
    /// a first pass.
    std::span<const double> nll;
    /// Per sample z_s under the reference (reference_losses.h). Empty if the objective has no
    /// reference.
    std::span<const double> reference = {};
    LossJob loss = {};
    /// LossJob::nll_weight() * pairs per target of chosen samples, over the whole batch.
    double nll_share = 0.0;
    std::int32_t group_samples = 1;  ///< AdapterPlan's number of samples per group
    /// [samples, H]: per sample the head's input (after the final norm) at the token of the
    /// sample's last label, which ends the answer. Empty unless the objective compares hidden
    /// states.
    std::span<const float> hidden = {};
    /// Empty unless the objective scales rows (Objective::scales_rows).
    RolloutRows rows = {};
};

/// Part of a batch's loss that comes from comparing hidden states.
struct HiddenLoss {
    double value = 0.0;           ///< added to the sum of the samples' losses
    double compared = 0.0;        ///< the comparison's own loss, for reports
    std::vector<float> gradient;  ///< of the batch's loss with respect to ObjectiveSamples::hidden
};

/// Metrics that TRL reports beside a loss, as sums:
/// - rewards of chosen (desirable) and of rejected samples, and the log-probabilities of both;
/// - `accuracies`: pairs whose chosen sample has the larger reward;
/// - `kl`: KL of groups with KL samples;
/// - `compared`: HiddenLoss::compared of a batch;
/// - of rollouts `ratios`: p(target) / p of the sampler, and the largest; `clipped`: tokens whose
///   ratio the loss clips; `kl`: k3 to the reference; `entropies` of the distributions that tokens
///   are targets of. The number of tokens is `tokens`.
struct RewardSums {
    double chosen = 0.0;
    double rejected = 0.0;
    double accuracies = 0.0;
    double logps_chosen = 0.0;
    double logps_rejected = 0.0;
    double chosen_samples = 0.0;  ///< number of samples; in pairs there are as many rejected ones
    double rejected_samples = 0.0;
    double kl = 0.0;
    double kl_groups = 0.0;
    double compared = 0.0;
    double ratios = 0.0;
    double largest_ratio = 0.0;
    double clipped = 0.0;
    double tokens = 0.0;
    double entropies = 0.0;

    /// All values in the order of the members, for reading and writing.
    using Values = std::array<double, 15>;
    Values values() const;
    static RewardSums of(const Values& values);
    void add(const RewardSums& other);
};

/// Means of RewardSums per chosen or rejected sample, pair, group or token; NaN if there are none.
struct RewardMeans {
    double chosen = 0.0;
    double rejected = 0.0;
    double accuracies = 0.0;
    double logps_chosen = 0.0;
    double logps_rejected = 0.0;
    double kl = 0.0;
    double compared = 0.0;  ///< per batch
    double ratio = 0.0;
    double largest_ratio = 0.0;
    double clipped = 0.0;
    double entropy = 0.0;

    double margin() const { return chosen - rejected; }
};
RewardMeans means_of(const RewardSums& sums);

/// An adapter's loss: per batch (sum over its samples of loss_s) / denominator. The losses of a
/// group are functions of that group's z alone. The denominator is BatchPlan::denominator, which
/// the planner counts (plan/sample_counts.h).
///
/// In the logits of a target row of sample s the gradient is scale_s weight (softmax(logits) -
/// onehot(target)), with scale_s = (d sum of losses / d z_s) / denominator. If the scales depend on
/// z, the last stage runs the head twice over a microbatch (loss_passes.h): for z, then for the
/// gradient. An objective that compares hidden states has each batch in one microbatch
/// (LossJob::is_contrastive) and adds hidden_loss() to the loss.
///
/// An objective may scale the rows of a sample unlike each other (scales_rows()); then row_scales()
/// takes the place of scales(), and losses() and rewards() read ObjectiveSamples::rows.
///
/// Objectives have no state. They compute on the host and are called once per segment.
class Objective {
  public:
    virtual ~Objective() = default;

    /// Whether scales() reads z. If not, the head runs once, and the loss of a batch is the sum of
    /// its z.
    virtual bool needs_first_pass() const = 0;

    /// Sets scales[s] = scale_s. `denominator` may be 0 (a batch without targets); the scales are
    /// then 0.
    virtual void scales(const ObjectiveSamples& of, double denominator,
                        std::span<float> scales) const = 0;

    virtual bool scales_rows() const { return false; }
    /// Sets the scale of each row of ObjectiveSamples::rows; `denominator` as in scales().
    virtual void row_scales(const ObjectiveSamples& /*of*/, double /*denominator*/,
                            std::span<float> /*scales*/) const {}

    /// Sets losses[s] = loss_s, from z, which must be set. A group's loss may stand at any of its
    /// samples.
    virtual void losses(const ObjectiveSamples& of, std::span<double> losses) const = 0;

    virtual bool compares_hidden() const { return false; }
    /// Hidden loss of a whole batch, from z and `hidden`.
    virtual HiddenLoss hidden_loss(const ObjectiveSamples& /*of*/, double /*denominator*/) const {
        return {};
    }

    /// Rewards, from z; zeros if the objective has no rewards.
    virtual RewardSums rewards(const ObjectiveSamples& /*of*/) const { return {}; }
};

/// The objective of an adapter, an object that lives as long as the program.
const Objective& objective_of(const AdapterJob& adapter);
using ObjectiveOf = const Objective& (*)(const AdapterJob&);

/// How the losses of a microbatch are computed.
struct LossTerms {
    /// Per segment: BatchPlan::denominator of its batch. An evaluation does not read it.
    std::vector<double> denominators;
    /// Forward only, without dropout; sums are per sample of the microbatch instead of per adapter.
    bool evaluation = false;
    /// Only with `evaluation`: runs the base model without adapters.
    bool base_alone = false;
    /// Only with `evaluation`: sums are per row with a target instead of per sample.
    bool by_target = false;
    /// Per segment: BatchPlan::pairs_per_chosen_target() of its batch. Only losses of pairs read
    /// it.
    std::vector<double> pairs_per_chosen_target = {};
};

}  // namespace loratrain
