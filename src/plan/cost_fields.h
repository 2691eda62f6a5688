#pragma once

#include "base/archive.h"
#include "plan/costs.h"

/// Fields of costs (base/archive.h) in plan.yaml, costs.json and between ranks. All are seconds and
/// at least 0.
namespace loratrain {

template <class Archive>
void fields(Archive& archive, CostLine& line) {
    archive.list(at_least(0, line.fixed), at_least(0, line.per_token), at_least(0, line.per_square),
                 at_least(0, line.per_segment));
}

template <class Archive>
void fields(Archive& archive, HostLine& line) {
    archive.list(at_least(0, line.fixed), at_least(0, line.per_segment));
}

template <class Archive>
void fields(Archive& archive, NewShapeLine& line) {
    archive.list(at_least(0, line.each), at_least(0, line.first), at_least(0, line.met),
                 at_least(0, line.per_row));
}

template <class Archive>
void fields(Archive& archive, LinkCost& link) {
    archive.list(at_least(0, link.fixed), at_least(0, link.per_byte));
}

template <class Archive>
void fields(Archive& archive, HostCosts& host) {
    archive("layer_forward", host.layer_forward);
    archive("layer_backward", host.layer_backward);
    archive("forward", host.forward);
    archive("backward", host.backward);
    archive("head", at_least(0, host.head));
    archive("new_rows", host.new_rows);
    archive("new_targets", host.new_targets);
}

/// The optimizer step's costs in a CostModel.
struct StepCosts {
    double& fixed;
    double& per_parameter;
};

template <class Archive>
void fields(Archive& archive, StepCosts& step) {
    archive.list(at_least(0, step.fixed), at_least(0, step.per_parameter));
}

template <class Archive>
void fields(Archive& archive, CostModel& costs) {
    StepCosts step{costs.step_fixed, costs.step_per_parameter};
    archive("source", costs.source);
    archive("layer_forward", costs.layer_forward);
    archive("layer_backward", costs.layer_backward);
    archive("first_layer_saving", at_least(0, costs.first_layer_saving));
    archive("head", costs.head);
    archive("host", costs.host);
    archive("step", step);
    archive("message", costs.message);
    archive("between_hosts", costs.between_hosts);
    archive.unless("layer_transfer", at_least(0, costs.layer_transfer), 0);
    archive.unless("layer_traffic", at_least(0, costs.layer_traffic), 0);
    archive.unless("link_power", at_least(0, costs.link_power), 0);
    archive.unless("offload_per_token", at_least(0, costs.offload_per_token), 0);
    archive("full_speed_ranks", at_least(0, costs.full_speed_ranks));
    archive("ranks_per_host", at_least(1, costs.ranks_per_host));
}

}  // namespace loratrain
