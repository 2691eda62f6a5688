#pragma once

#include <compare>
#include <cstdint>
#include <optional>

namespace loratrain {

/// What an adapter minimises (model/objective/). sft: cross-entropy over target tokens; dpo, cpo,
/// simpo and orpo: losses of pairs of a chosen and a rejected sample (pair_objectives.h); kto: of
/// single samples that are desirable or not (kto_objective.h); cit: of an instruction and its
/// paraphrase, both with the answer (cit_objective.h). dpo and kto compare with a reference: the
/// base model, or that with an adapter.
enum class Loss : std::uint8_t { sft, dpo, cpo, simpo, orpo, kto, cit };
/// How a margin of rewards becomes a loss; nll and dft: how -log p of tokens does, of sft.
enum class LossType : std::uint8_t { sigmoid, hinge, ipo, nll, dft };

/// Keys and meaning are TRL's, of cit mLoRA's.
struct LossJob {
    Loss loss = Loss::sft;
    LossType type = LossType::sigmoid;  ///< of dpo and cpo; of sft, where not dft, it is nll
    double beta = 0.1;                  ///< scale of rewards; of orpo: weight of the odds ratio
    double label_smoothing = 0.0;       ///< sigmoid: share of pairs that are the wrong way round
    double simpo_gamma = 0.5;           ///< the margin of rewards that simpo aims at
    /// Weight of the chosen samples' cross-entropy; none = 1 for cpo, 0 for simpo.
    std::optional<double> cpo_alpha = {};
    double desirable_weight = 1.0;    ///< of kto: of the losses of desirable samples
    double undesirable_weight = 1.0;  ///< of the others
    /// Of sft, in training alone (backend/ops/loss.h, TokenLoss); label_smoothing_factor is the key
    /// of transformers.
    double label_smoothing_factor = 0.0;
    double z_loss = 0.0;
    double temperature = 0.05;  ///< of cit: what similarities are divided by
    double lambda = 1.0;        ///< of cit: largest weight of the contrastive loss

    /// It has rewards, which are reported beside it (RewardSums).
    bool has_rewards() const { return loss != Loss::sft && !is_contrastive(); }
    /// Its samples are pairs: chosen, rejected.
    bool is_of_pairs() const { return has_rewards() && loss != Loss::kto; }
    /// It compares all samples of a global batch, which are pairs too, with each other: one
    /// microbatch has them all. Evaluations are of -log p.
    bool is_contrastive() const { return loss == Loss::cit; }
    /// It needs the samples' log-probabilities under the reference.
    bool has_reference() const { return loss == Loss::dpo || loss == Loss::kto; }
    /// It has a margin that becomes a loss by its type.
    bool has_types() const { return loss == Loss::dpo || loss == Loss::cpo; }
    bool has_label_smoothing() const {
        return loss == Loss::simpo || (has_types() && type == LossType::sigmoid);
    }
    /// sft: the loss of a token is multiplied by its probability, which is not differentiated.
    bool is_dft() const { return loss == Loss::sft && type == LossType::dft; }
    bool has_cpo_alpha() const { return loss == Loss::cpo || loss == Loss::simpo; }
    /// Of the chosen samples' cross-entropy.
    double nll_weight() const {
        if (loss == Loss::orpo) return 1.0;
        return has_cpo_alpha() ? cpo_alpha.value_or(loss == Loss::cpo ? 1.0 : 0.0) : 0.0;
    }

    friend auto operator<=>(const LossJob&, const LossJob&) = default;
};

}  // namespace loratrain
