#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "config/job.h"
#include "config/model_spec.h"
#include "plan/cost/attention_span.h"
#include "plan/cost/costs.h"
#include "plan/plan.h"

namespace loratrain {

/// Estimate from the sizes of the model and rates of the device that computes in `compute`, one of
/// device_names(); any other name counts as h100 (CUDA) and says so in `source`, as rates do that
/// were not measured on such a device: "an estimate". What hosts take is an estimate for all.
/// Depends on its arguments alone. Of `tensor` lanes each computes its share (lane_model) less
/// well, as its matrices are narrower, and takes part in two sums of [T, hidden size] in a layer's
/// forward and two in its backward. `fp8_linears`: Plan's.
CostModel built_in_costs(const ModelSpec& model, DType compute, std::string_view device,
                         std::int32_t tensor = 1, bool fp8_linears = false);

/// What a layer's forward, and likewise its backward, takes for sums over lanes, each of which
/// sends and receives 2 (tensor - 1) / tensor of [T, hidden size] for a sum, over such a link.
CostLine lane_sums(const ModelSpec& model, DType compute, const LinkCost& link,
                   std::int32_t tensor);
/// Of lanes on one host, built in: a sum's fixed seconds, and what a byte takes.
LinkCost lane_link(std::string_view device);
/// Of messages between ranks of two hosts, built in: an estimate for all devices.
LinkCost link_between_hosts(std::string_view device);
/// Adds so many times that line's fixed and per_token to a layer's forward and backward, down to 0.
void add_to_layers(const CostLine& line, double times, CostModel& costs);

/// Adds what the job's DoRA adapters compute beyond LoRA (model/dora_linear.h) to built-in costs,
/// as if all adapters had as many tokens: a product with W of o, down and linears with a bias in
/// the backward pass, or with dropout one in the forward and two in the backward pass of every
/// target.
void add_dora(const Job& job, const ModelSpec& model, CostModel& costs);

/// Adds what a layer that streams takes to come from host memory, or from the rank that holds it,
/// to built-in costs of a job in which any may (resident_layers()). `plan`: its model and formats.
/// Of a GPU also layer_traffic = bytes of the layer / the memory's peak rate; of layers that ranks
/// hold for each other half of that, and link_power. Measured (tests/bench/RESULTS.md): 58 layers
/// of 436 MB from the host made a microbatch on an H100 7.3 and 7.7 ms longer, 7.6 by its 3.35
/// TB/s; GEMMs on two H200s at their power limit were 2.2% slower while 15 GB/s went between them
/// either way, 2.6% with 60 and 3.7% with 120, in bursts or evenly.
void add_transfers(const Job& job, const Plan& plan, std::string_view device, std::int32_t tensor,
                   CostModel& costs);

/// The rate at which a token's activations of one layer, so many bytes, go to the host and back, to
/// the costs of a GPU whose link is known (0 = no job asks).
void add_offload(double bytes_of_token, std::string_view device, CostModel& costs);

/// Gives measured costs what no profile measures, of built-in ones of the same job:
/// offload_per_token, layer_traffic and link_power; between_hosts where no run has measured it.
void take_unmeasured(const CostModel& built_in, CostModel& measured);

/// The devices whose costs are built in: "h200", "h100", "a100", "a100-40", "l40s",
/// "a6000", "a40", "a10", "l4", "cpu".
std::vector<std::string> device_names();
/// Whether fp8 products with a scale per row are made there; what is not known is taken to.
bool computes_fp8(std::string_view device);

MicrobatchLoad load_of(const Microbatch& microbatch, const AttentionSpan& span);
AdapterLoads loads_of(const Microbatch& microbatch, const AttentionSpan& span);

/// Seconds of a stage's stream; forward of the stage with the head includes loss and its gradient,
/// backward includes the second forward of `Recompute::layer`, of layers that are not kept, and in
/// the model's first layer no gradient of its input. The host runs ahead: a microbatch takes the
/// longer of what the device computes and of what the host takes to queue it, forward and backward
/// together. Where that is the host's, both are longer in proportion. Layers that stream come
/// beside that: where S of a stage's do through B buffers, S - B come in a pass in turn, at the
/// ends of which something else than a transfer is waited for, and S - B times layer_traffic is
/// added to what the device computes, which link_power makes longer. Beside it come, too,
/// activations that layers have in host memory (plan/memory/offload.h): in forward they go, but not
/// of an evaluation, which has no backward; in backward they come instead of being computed again;
/// of all layers but those that are in buffers.
struct PassSeconds {
    double forward = 0.0;
    double backward = 0.0;
};
PassSeconds pass_seconds(const CostModel& costs, const StagePlan& stage, const AdapterLoads& loads,
                         Recompute recompute, bool evaluation = false);
/// One of the two.
double forward_seconds(const CostModel& costs, const StagePlan& stage, const AdapterLoads& loads,
                       bool evaluation = false);
double backward_seconds(const CostModel& costs, const StagePlan& stage, const AdapterLoads& loads,
                        Recompute recompute);
/// Both, and the largest of several stages.
double stage_seconds(const CostModel& costs, const StagePlan& stage, const AdapterLoads& loads,
                     Recompute recompute);
double slowest_seconds(const CostModel& costs, const std::vector<StagePlan>& stages,
                       const AdapterLoads& loads, Recompute recompute);
/// What computation hides of the transfers of a microbatch's forward and backward: 1 where it takes
/// no longer than for what they take of the memory's rate.
double hidden_share(const CostModel& costs, const StagePlan& stage, const AdapterLoads& loads,
                    Recompute recompute);
/// The same of activations that go to the host and come back.
double hidden_offload_share(const CostModel& costs, const StagePlan& stage,
                            const AdapterLoads& loads, Recompute recompute);
/// What the host takes for a microbatch's forward and backward.
double host_seconds(const HostCosts& host, const StagePlan& stage, const AdapterLoads& loads);
/// Whether that is longer than what the device computes.
bool is_held_up(const CostModel& costs, const StagePlan& stage, const AdapterLoads& loads);
/// What the stage's layers take of either, with `layer` the costs of one.
double layers_seconds(const CostLine& layer, const StagePlan& stage, const AdapterLoads& loads);

/// Costs of computation, and what the host takes, `factor` times as high.
CostModel scaled(CostModel costs, double factor);
HostCosts scaled(HostCosts host, double factor);

}  // namespace loratrain
