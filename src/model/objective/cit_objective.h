#pragma once

#include "model/objective/cross_entropy_objective.h"

namespace loratrain {

/// Contrastive Instruction Tuning (Yan et al. 2024, CoIN), over N pairs of samples: an instruction
/// and its paraphrase, each with the same answer. Of a batch, with G = the cross-entropy of all
/// target tokens, as CrossEntropyObjective's, u_i and v_i = the hidden states of the two samples of
/// pair i (ObjectiveSamples::hidden) and S_ij = cos(u_i, v_j) / temperature:
///   C = (mean_i -log softmax(S_i:)_i + mean_j -log softmax(S_:j)_j) / 2,
///   L = G + w C, w = min(lambda, G / C), which is no function of the adapter to the gradient.
/// w is the smaller of both, as in mLoRA and in the authors' program: C weighs lambda, and less
/// where it would outweigh G. With the larger one in its place nothing bounds w as C falls.
/// Losses per sample are of G; evaluations too.
class CitObjective final : public CrossEntropyObjective {
  public:
    bool compares_hidden() const override { return true; }
    HiddenLoss hidden_loss(const ObjectiveSamples& of, double denominator) const override;
};

}  // namespace loratrain
