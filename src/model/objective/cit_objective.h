#pragma once

#include "model/objective/cross_entropy_objective.h"

namespace loratrain {

/// Contrastive Instruction Tuning (Yan et al. 2024, CoIN), over N pairs of samples: an instruction
/// and its paraphrase, with the same answer. Symbols, for a batch: G = cross-entropy of all target
/// tokens (CrossEntropyObjective); u_i and v_i = hidden states of the two samples of pair i
/// (ObjectiveSamples::hidden); S_ij = cos(u_i, v_j) / temperature.
///   C = (mean_i -log softmax(S_i:)_i + mean_j -log softmax(S_:j)_j) / 2,
///   L = G + w C, w = min(lambda, G / C); the gradient treats w as a constant.
/// w is the minimum, as in mLoRA and in the authors' program: the weight of C is lambda, and less
/// where lambda C would exceed G. With the maximum nothing would bound w as C falls. Losses per
/// sample are those of G, in evaluations too.
class CitObjective final : public CrossEntropyObjective {
  public:
    bool compares_hidden() const override { return true; }
    HiddenLoss hidden_loss(const ObjectiveSamples& of, double denominator) const override;
};

}  // namespace loratrain
