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

/// Adds what the job's DoRA adapters compute beyond LoRA (model/dora_linear.cpp) to built-in costs,
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

}  // namespace loratrain
