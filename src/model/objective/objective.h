#pragma once

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
    /// Per sample z_s = sum over its target rows of -log p(target), fp64; empty before a first
    /// pass.
    std::span<const double> nll;
};

/// What an adapter minimises: per batch (sum over its samples of loss_s) / denominator, where the
/// losses of a group are functions of that group's z alone and the denominator is
/// BatchPlan::denominator, which the planner counts (plan/loss_denominator.h).
///
/// Every such loss has the gradient scale_s (softmax(logits) - onehot(target)) in the logits of a
/// target row of sample s, with scale_s = (d sum of losses / d z_s) / denominator. Where the scales
/// depend on z, the last stage runs the head twice over a microbatch (loss_passes.h): for z, then
/// for the gradient. Objectives have no state; host arithmetic, called once per segment.
class Objective {
  public:
    virtual ~Objective() = default;

    /// Whether scales() reads z. If not, the head runs once and the loss of a batch is the sum of
    /// its z.
    virtual bool needs_first_pass() const = 0;

    /// scales[s] = scale_s; `denominator` may be 0 (a batch without targets), scales are 0 then.
    virtual void scales(const ObjectiveSamples& of, std::int64_t denominator,
                        std::span<float> scales) const = 0;

    /// losses[s] = loss_s from z, which is there; a group's loss may stand at any of its samples.
    virtual void losses(const ObjectiveSamples& of, std::span<double> losses) const = 0;
};

/// The objective of an adapter; lives as long as the program.
const Objective& objective_of(const AdapterJob& adapter);
using ObjectiveOf = const Objective& (*)(const AdapterJob&);

/// What a microbatch is run for.
struct LossTerms {
    /// Per segment: BatchPlan::denominator of its batch; not read for an evaluation.
    std::vector<std::int64_t> denominators;
    /// Forward only, without dropout; sums per sample of the microbatch instead of per adapter.
    bool evaluation = false;
};

}  // namespace loratrain
