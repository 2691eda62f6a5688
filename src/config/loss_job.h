#pragma once

#include <compare>
#include <cstdint>
#include <optional>

namespace loratrain {

/// The keys of a job that choose an adapter's loss and its parameters.

/// The loss that an adapter minimises (model/objective/objectives.h). Losses with a reference
/// compare with the base model, or with the base model and an adapter.
///
/// | loss | samples | reference |
/// |---|---|---|
/// | sft | target tokens (cross-entropy) | no |
/// | dpo | pairs: chosen, rejected | yes |
/// | cpo, simpo, orpo | pairs: chosen, rejected | no |
/// | kto | single samples, desirable or not | yes |
/// | cit | an instruction and its paraphrase, both with the answer | no |
/// | importance_sampling, ppo, cispo, grpo | rollouts | with beta > 0 |
/// | dro | rollouts | no |
enum class Loss : std::uint8_t {
    sft,
    dpo,
    cpo,
    simpo,
    orpo,
    kto,
    cit,
    importance_sampling,
    ppo,
    cispo,
    dro,
    grpo
};
/// How a margin of rewards becomes a loss. nll and dft: how -log p of tokens becomes the loss of
/// sft.
enum class LossType : std::uint8_t { sigmoid, hinge, ipo, nll, dft };
/// How the losses of a batch's tokens become one, of losses of rollouts: the mean over all tokens
/// (DAPO), the mean over samples of the means over their tokens (GRPO), or the sum over samples x
/// max_completion_length (Dr. GRPO).
enum class LossAggregation : std::uint8_t { token, sequence, constant };

/// A loss and its parameters. Keys have the names and meanings of TRL; those of cit, of mLoRA; the
/// bounds of ratios are Tinker's clip_low_threshold and clip_high_threshold.
struct LossJob {
    Loss loss = Loss::sft;
    LossType type = LossType::sigmoid;  ///< of dpo and cpo; for sft, any value but dft means nll
    /// Scale of rewards; orpo: weight of the odds ratio; dro: weight of the squared log-ratio;
    /// other losses of rollouts: weight of the KL to the reference. None = usual_beta().
    std::optional<double> beta = {};
    double label_smoothing = 0.0;  ///< sigmoid: share of pairs that are the wrong way round
    double simpo_gamma = 0.5;      ///< the margin of rewards that simpo aims at
    /// Weight of the chosen samples' cross-entropy; none = 1 for cpo, 0 for simpo.
    std::optional<double> cpo_alpha = {};
    double desirable_weight = 1.0;    ///< kto: weight of the losses of desirable samples
    double undesirable_weight = 1.0;  ///< kto: weight of the losses of the other samples
    /// sft, only in training (backend/ops/loss.h, TokenLoss). label_smoothing_factor is the key of
    /// transformers.
    double label_smoothing_factor = 0.0;
    double z_loss = 0.0;
    double temperature = 0.05;  ///< cit: divisor of similarities
    double lambda = 1.0;        ///< cit: largest weight of the contrastive loss
    double clip_low = 0.8;      ///< ppo, grpo, cispo: bounds of the ratio (rollout_objective.h)
    double clip_high = 1.2;
    LossAggregation aggregation = LossAggregation::token;
    /// With LossAggregation::constant: what a sample's sum is divided by, in tokens.
    std::optional<std::int64_t> max_completion_length = {};
    /// Of a dataset that grows: steps that an adapter may have taken since it sampled a rollout
    /// (TokenSample::adapter_step); older ones are left out. None = any.
    std::optional<std::int32_t> max_staleness = {};

    /// The loss has rewards, which are reported with it (RewardSums).
    bool has_rewards() const { return loss != Loss::sft && !is_contrastive() && !is_of_rollouts(); }
    /// Samples are pairs: chosen, rejected.
    bool is_of_pairs() const { return has_rewards() && loss != Loss::kto; }
    /// The loss compares all samples of a global batch with each other. They are pairs too, and one
    /// microbatch has all of them. Evaluations measure -log p.
    bool is_contrastive() const { return loss == Loss::cit; }
    /// Samples are rollouts: tokens have an advantage and the log-probability of their sampler.
    /// Evaluations measure -log p.
    bool is_of_rollouts() const { return loss >= Loss::importance_sampling; }
    bool has_clip() const { return loss == Loss::ppo || loss == Loss::cispo || loss == Loss::grpo; }
    /// beta is the weight of the KL to the reference.
    bool has_kl() const { return is_of_rollouts() && loss != Loss::dro; }
    bool has_beta() const { return has_rewards() || is_of_rollouts(); }
    double usual_beta() const {
        if (loss == Loss::dro) return 0.05;
        return is_of_rollouts() ? 0.0 : 0.1;
    }
    double beta_or_usual() const { return beta.value_or(usual_beta()); }
    /// The loss needs the log-probabilities of the samples under the reference; of rollouts, those
    /// of their tokens.
    bool has_reference() const {
        return loss == Loss::dpo || loss == Loss::kto || (has_kl() && beta_or_usual() > 0.0);
    }
    /// The loss has a margin that LossType turns into a loss.
    bool has_types() const { return loss == Loss::dpo || loss == Loss::cpo; }
    bool has_label_smoothing() const {
        return loss == Loss::simpo || (has_types() && type == LossType::sigmoid);
    }
    /// sft: the loss of a token is multiplied by its probability, which is not differentiated.
    bool is_dft() const { return loss == Loss::sft && type == LossType::dft; }
    bool has_cpo_alpha() const { return loss == Loss::cpo || loss == Loss::simpo; }
    /// Weight of the chosen samples' cross-entropy.
    double nll_weight() const {
        if (loss == Loss::orpo) return 1.0;
        return has_cpo_alpha() ? cpo_alpha.value_or(loss == Loss::cpo ? 1.0 : 0.0) : 0.0;
    }

    /// The keys that evaluations depend on: those of losses without rewards are plain
    /// cross-entropy.
    LossJob evaluated() const {
        if (has_rewards()) return *this;
        LossJob plain;
        plain.loss = loss;
        return plain;
    }

    friend auto operator<=>(const LossJob&, const LossJob&) = default;
};

}  // namespace loratrain
