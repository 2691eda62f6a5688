#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/tensor.h"
#include "config/job.h"
#include "config/model_spec.h"
#include "plan/costs.h"
#include "plan/plan.h"

namespace loratrain {

/// Built-in costs: an estimate from the sizes of the model and the rates of the device. `device`:
/// one of device_names(); any other name counts as h100 (CUDA). CostModel::source says so, and says
/// "an estimate" for rates that were not measured on such a device. Host costs are an estimate for
/// all. Depends on its arguments only. `compute`: compute type. `tensor`: lanes; each computes its
/// share (lane_model()), less well since its matrices are narrower, and takes part in two sums of
/// [T, hidden size] in a layer's forward and two in its backward. `fp8_linears`: Plan::fp8_linears.
/// On GPUs quantised experts cost a layer the time in which all of them are widened.
CostModel built_in_costs(const ModelSpec& model, DType compute, std::string_view device,
                         std::int32_t tensor = 1, bool fp8_linears = false);

/// Costs of the sums over lanes in a layer's forward; the same in its backward. For a sum each lane
/// sends and receives 2 (tensor - 1) / tensor of [T, hidden size] over `link`.
CostLine lane_sums(const ModelSpec& model, DType compute, const LinkCost& link,
                   std::int32_t tensor);
/// Built-in costs of sums between lanes on one host: fixed seconds of a sum, and per byte.
LinkCost lane_link(std::string_view device);
/// Built-in costs of messages between ranks of two hosts: an estimate for all devices.
LinkCost link_between_hosts(std::string_view device);
/// Adds `times` * line.fixed and line.per_token to a layer's forward and backward; the result is at
/// least 0.
void add_to_layers(const CostLine& line, double times, CostModel& costs);

/// Adds the work of the job's DoRA adapters beyond LoRA (model/dora_linear.cpp) to built-in costs,
/// as if all adapters had equally many tokens. Without dropout: in backward a product with W of
/// fused linears and those with a bias, whose outputs are not kept. With dropout: one product in
/// forward and two in backward of every target.
void add_dora(const Job& job, const ModelSpec& model, CostModel& costs);

/// Adds to built-in costs of a GPU what experts take beyond the time of as many FLOPs of dense
/// linears: the passes over the rows of all experts, k of each token, and those of LoRA in experts
/// if an adapter targets them. A mean over the layers.
void add_experts(const Job& job, const ModelSpec& model, std::string_view device, CostModel& costs);

/// Adds the costs of streamed layers to built-in costs of a job in which layers may stream
/// (resident_layers()). `plan`: its model and formats. On GPUs:
/// - layer_transfer: the copy from host memory, or from the rank that owns the layer;
/// - layer_traffic = bytes of the layer / peak rate of the memory; half of that for layers that
///   ranks share;
/// - link_power, for layers that ranks share.
/// Measured (tests/bench/RESULTS.md): 58 layers of 436 MB from the host made a microbatch on an
/// H100 7.3 and 7.7 ms longer; 7.6 ms by its 3.35 TB/s. GEMMs on two H200s at their power limit
/// were 2.2% slower while 15 GB/s went between them either way, 2.6% with 60 and 3.7% with 120, in
/// bursts or evenly.
void add_transfers(const Job& job, const Plan& plan, std::string_view device, std::int32_t tensor,
                   CostModel& costs);

/// Adds offload_per_token for a GPU whose link is known. `bytes_of_token`: a token's activations of
/// one layer; 0 = no job asks.
void add_offload(double bytes_of_token, std::string_view device, CostModel& costs);

/// Copies costs that no profile measures from built-in costs of the same job: offload_per_token,
/// layer_traffic, link_power, and between_hosts if no run has measured it.
void take_unmeasured(const CostModel& built_in, CostModel& measured);

/// Devices with built-in costs: "h200", "h100", "a100", "a100-40", "l40s", "a6000", "a40", "a10",
/// "l4", "cpu".
std::vector<std::string> device_names();
/// True if the device computes fp8 products with a scale per row. True for unknown devices.
bool computes_fp8(std::string_view device);

}  // namespace loratrain
