#include "plan/cost/built_in_costs.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/sizes.h"

#include "base/operators.h"
#include "base/text.h"
#include "plan/memory/streamed_layers.h"
#include "plan/tensor_shard.h"

namespace loratrain {

namespace {

/// Sustained rates of one device in FLOP/s, and times in seconds. `matrix` and `attention` of the
/// H200 are what steps of llama-3.1-8b with four adapters of r = 16 on all linears took there, at
/// its power limit, in microbatches of 8192 tokens: 18.4k tokens/s of samples of 2048, 15.2k of
/// samples of 8192. Fitted to its layers in microbatches of 500 to 7000 tokens: what does not grow
/// with tokens, and the head, 3.4 us a target; in fp8, where codes were made by ops of their own,
/// 24.2k tokens/s of samples of 2048. Those of the H100 are what a profile of the same took there,
/// of 2048 to 8192 tokens and samples of up to 4096 (tests/bench/device_rates.py; the step's of
/// adapters of r = 8 to 128), with kernels that were slower than today's. Links are the H200's for
/// both, as its peaks are. All others are scaled by the maker's peaks from what the H200 did with
/// those kernels, 574 and 340 TFLOP/s: dense bf16 (989.4 TFLOP/s; A100 312 as an SXM module, L40S
/// 362, A40 150, A10 125, L4 121), memory (`memory_peak`) for what `matrix` takes beside the head's
/// plain products and for optimizer steps, and links (900 GB/s; 600, PCIe 4's 64 for the rest).
/// Between hosts 0.8 of the network adapter that such a device usually has for itself: 400 Gbit/s,
/// A100 200, L40S and A40 100, A10 and L4 25, a processor 10.
struct DeviceRates {
    std::string_view name;
    double matrix;     ///< linears with their adapters, norms and elementwise work
    double fp8;        ///< the same with linears in fp8; 0 = they are not computed there
    double head;       ///< the head's plain products
    double attention;  ///< causal attention, forward and backward
    double layer_fixed;
    double lost_tokens;  ///< a microbatch's GEMMs take longer by so many: unfilled tiles and waves
    double message_fixed;
    double message_bytes;    ///< per second
    double between_fixed;    ///< of a message between hosts; an estimate of all, as the next
    double between_bytes;    ///< per second, from one rank to another
    double sum_bytes;        ///< per second, of a sum over lanes, sent and received
    double memory_bytes;     ///< per second, of an optimizer step
    double memory_peak;      ///< of a GPU, bytes per second
    double host_bytes;       ///< per second, from the host's memory; an estimate of all
    double peer_bytes;       ///< per second, from another rank's of the host; an estimate of all
    std::string_view doubt;  ///< why they are estimates; "" = measured
};

constexpr std::string_view scaled_from_h200 =
    ", an estimate: an h200's rates, scaled by the maker's peaks";

constexpr std::array<DeviceRates, 10> devices{{
    {"h200", 620e12, 850e12, 610e12, 490e12, 60e-6, 400.0, 20e-6, 200e9, 30e-6, 40e9, 320e9, 2.5e12,
     4.8e12, 50e9, 300e9, ""},
    {"h100", 587e12, 818e12, 604e12, 319e12, 60e-6, 360.0, 20e-6, 200e9, 30e-6, 40e9, 320e9,
     1.74e12, 3.35e12, 50e9, 300e9, ""},
    {"a100", 184e12, 0.0, 192e12, 107e12, 60e-6, 400.0, 20e-6, 133e9, 30e-6, 20e9, 213e9, 1.06e12,
     2.04e12, 24e9, 200e9, scaled_from_h200},
    {"a100-40", 184e12, 0.0, 192e12, 107e12, 60e-6, 400.0, 20e-6, 133e9, 30e-6, 20e9, 213e9,
     0.81e12, 1.555e12, 24e9, 200e9, scaled_from_h200},
    {"l40s", 198e12, 0.0, 223e12, 124e12, 60e-6, 400.0, 20e-6, 14e9, 30e-6, 10e9, 23e9, 0.45e12,
     0.864e12, 24e9, 20e9, scaled_from_h200},
    {"a6000", 90e12, 0.0, 95e12, 53e12, 60e-6, 400.0, 20e-6, 14e9, 30e-6, 10e9, 23e9, 0.4e12,
     0.768e12, 24e9, 20e9, scaled_from_h200},
    {"a40", 87e12, 0.0, 92e12, 51e12, 60e-6, 400.0, 20e-6, 14e9, 30e-6, 10e9, 23e9, 0.36e12,
     0.696e12, 24e9, 20e9, scaled_from_h200},
    {"a10", 73e12, 0.0, 77e12, 43e12, 60e-6, 400.0, 20e-6, 14e9, 50e-6, 2.5e9, 23e9, 0.31e12,
     0.6e12, 24e9, 20e9, scaled_from_h200},
    {"l4", 66e12, 0.0, 75e12, 42e12, 60e-6, 400.0, 20e-6, 14e9, 50e-6, 2.5e9, 23e9, 0.16e12, 0.3e12,
     24e9, 20e9, scaled_from_h200},
    {"cpu", 300e9, 0.0, 350e9, 100e9, 20e-6, 0.0, 5e-6, 5e9, 30e-6, 1e9, 5e9, 10e9, 0.0, 5e9, 5e9,
     ", an estimate: processors differ"},
}};

constexpr double fp32_on_gpu = 1.0 / 20.0;  // no TF32
constexpr double sums_of_a_pass = 2.0;      // over lanes, in a layer
constexpr double numbers_of_norms = 3.0;    // of a row, likewise: 2 forward, 4 backward
constexpr double forward_share = 0.45;      // of a layer's matrix time
constexpr double forward_of_attention = 1.0 / 3.5;
/// Of attention's rate: heads that tensor cores do not take in bf16, from a step of qwen3.5-4b on
/// an H200 when its heads of 256 took the plain kernels, and the delta rule with its convolution
/// and norm, from those operators there.
constexpr double plain_attention_share = 0.01;
constexpr double rule_share = 0.16;
constexpr double power_of_links = 0.022;  // of two H200s, while anything goes between them
constexpr double bytes_per_stepped_parameter = 32.0;
/// Of memory_peak, in passes over the rows of experts: fitted to steps of qwen3-30b-a3b with four
/// adapters of r = 16 on an H200, in microbatches of 8192 tokens: 28.8k tokens/s with LoRA on
/// attention, 23.6k with LoRA in experts too.
constexpr double expert_rows_share = 0.28;
constexpr double widening_share = 0.75;  // of memory_peak: an H200 widened nf4 at 3.6 TB/s

/// Of any host of a GPU: an estimate, of about 30 launches in a layer's forward and 45 in its
/// backward, 4 us each, and some more for the tables of every adapter. Shapes that are new are left
/// out: a run meets few after its first minutes.
constexpr HostCosts host_of_gpu{
    {120e-6, 2e-6}, {180e-6, 3e-6}, {60e-6, 5e-6}, {20e-6, 2e-6}, 80e-6, {}, {}};

/// nullptr: the device is not known.
const DeviceRates* known_rates(std::string_view device) {
    const auto* found = std::find_if(devices.begin(), devices.end(),
                                     [&](const DeviceRates& d) { return d.name == device; });
    return found != devices.end() ? found : nullptr;
}

/// Of a device that is not known, the h100's.
const DeviceRates& rates_of(std::string_view device) {
    const DeviceRates* known = known_rates(device);
    return known != nullptr ? *known : devices[1];
}

/// What narrower matrices, and whole experts that tokens choose unevenly, leave of a lane's speed:
/// .97, .92, .85 of 2, 4 and 8 lanes.
double lane_efficiency(std::int32_t tensor) {
    const double doublings = std::log2(static_cast<double>(tensor));
    return 1.0 - 0.01 * doublings * (doublings + 2.0);
}

/// Seconds in which a GPU widens the experts of a quantised layer, whatever the rows: a mean of the
/// layers. Other linears take little beside the products of a microbatch.
double widening_of_experts(const ModelSpec& model, DType compute, const DeviceRates& rates) {
    if (!model.quantization || rates.memory_peak == 0.0) return 0.0;
    std::int64_t of_layers = 0;
    for_layers(model, 0, model.layers, [&](const LayerSpec& layer, std::int64_t number) {
        const ExpertSpec* experts = layer.experts();
        if (experts == nullptr) return;
        of_layers += number * (experts_gate_up_shape(*experts, model.hidden_size).elements() +
                               experts_down_shape(*experts, model.hidden_size).elements());
    });
    const double weights = static_cast<double>(of_layers) / static_cast<double>(model.layers);
    const double read = static_cast<double>(traits_of(model.quantization->format).bits) / 8.0;
    const double bytes = read + static_cast<double>(size_of(compute));
    return weights * bytes / (widening_share * rates.memory_peak);
}

/// Parameters of the linears that read the input of the first layer.
double input_parameters(const ModelSpec& model) {
    const bool net = model.layer(0).delta_net() != nullptr;
    const LinearGroup group = net ? LinearGroup::delta_in : LinearGroup::qkv;
    return static_cast<double>(group_shape(model, 0, group).out * model.hidden_size);
}

/// Of all layers, those that have the linear.
double share_of_layers(const ModelSpec& model, Linear linear) {
    std::int64_t with = 0;
    for_layers(model, 0, model.layers, [&](const LayerSpec& layer, std::int64_t number) {
        if (has_linear(layer, linear)) with += number;
    });
    return static_cast<double>(with) / static_cast<double>(model.layers);
}

/// Of the delta rule in chunks of C rows, forward and backward, a mean of the layers: products of
/// k, q with k, of both with what is written, of the system that makes it, and of the state.
double rule_flop(const ModelSpec& model) {
    constexpr double of_passes = 3.5;  // forward, and backward with the states made again
    double flop = 0.0;
    for_layers(model, 0, model.layers, [&](const LayerSpec& layer, std::int64_t number) {
        const DeltaNetSpec* net = layer.delta_net();
        if (net == nullptr) return;
        const auto heads = static_cast<double>(number * net->value_heads);
        const auto keys = static_cast<double>(net->key_dim);
        const auto values = static_cast<double>(net->value_dim);
        const auto rows = static_cast<double>(delta_chunk);
        flop += heads * (rows * (3.0 * keys + 2.0 * values) + 6.0 * keys * values);
    });
    return of_passes * flop / static_cast<double>(model.layers);
}

}  // namespace

CostLine lane_sums(const ModelSpec& model, DType compute, const LinkCost& link,
                   std::int32_t tensor) {
    if (tensor == 1) return {};
    const double row =
        static_cast<double>(model.hidden_size) * static_cast<double>(size_of(compute));
    const double travelled = 2.0 * (tensor - 1) / tensor;
    const AttentionSpec* attention = model.attention_layers();
    const double norms = attention != nullptr && attention->qk_norm_whole ? 1.0 : 0.0;
    const double of_norms = norms * numbers_of_norms * static_cast<double>(size_of(DType::f32));
    return {(sums_of_a_pass + norms) * link.fixed,
            travelled * (sums_of_a_pass * row + of_norms) * link.per_byte, 0.0};
}

LinkCost lane_link(std::string_view device) {
    const DeviceRates& rates = rates_of(device);
    return {rates.message_fixed, 1.0 / rates.sum_bytes};
}

LinkCost link_between_hosts(std::string_view device) {
    const DeviceRates& rates = rates_of(device);
    return {rates.between_fixed, 1.0 / rates.between_bytes};
}

void add_to_layers(const CostLine& line, double times, CostModel& costs) {
    for (CostLine* layer : {&costs.layer_forward, &costs.layer_backward}) {
        layer->fixed = std::max(0.0, layer->fixed + times * line.fixed);
        layer->per_token = std::max(0.0, layer->per_token + times * line.per_token);
    }
}

CostModel built_in_costs(const ModelSpec& whole, DType compute, std::string_view device,
                         std::int32_t tensor, bool fp8_linears) {
    const ModelSpec model = lane_model(whole, tensor);
    const DeviceRates& rates = rates_of(device);
    const bool known = rates.name == device;
    const bool cpu = rates.name == "cpu";
    const double speed =
        (!cpu && compute == DType::f32 ? fp32_on_gpu : 1.0) * lane_efficiency(tensor);

    const auto head = static_cast<double>(model.vocab_size * model.hidden_size);
    const double layer =
        (static_cast<double>(matmul_parameters(model)) - head) / static_cast<double>(model.layers);
    const double matrix = fp8_linears && rates.fp8 > 0.0 ? rates.fp8 : rates.matrix;
    const double linear = 4.0 * layer / (matrix * speed);
    const AttentionSpec& heads = model.attention();
    const bool plain =
        !cpu && compute == DType::bf16 && !kernels::attention_on_tensor_cores(heads.head_dim);
    const double attention = 6.0 * static_cast<double>(heads.q_size()) /
                             (rates.attention * speed * (plain ? plain_attention_share : 1.0));

    const double rule = rule_flop(model) / (rule_share * rates.attention * speed);
    const double fixed = rates.layer_fixed + rates.lost_tokens * linear;

    CostModel costs;
    costs.layer_forward = {fixed * forward_share,
                           linear * forward_share + rule * forward_of_attention,
                           attention * forward_of_attention};
    costs.layer_backward = {fixed * (1.0 - forward_share),
                            linear * (1.0 - forward_share) + rule * (1.0 - forward_of_attention),
                            attention * (1.0 - forward_of_attention)};
    costs.first_layer_saving = input_parameters(model) / layer;
    costs.head = {rates.layer_fixed, 4.0 * head / (rates.head * speed), 0.0};
    if (!cpu) costs.host = host_of_gpu;
    costs.step_fixed = rates.layer_fixed;
    costs.step_per_parameter = bytes_per_stepped_parameter / rates.memory_bytes;
    costs.message = {rates.message_fixed, 1.0 / rates.message_bytes};
    add_to_layers(lane_sums(model, compute, lane_link(device), tensor), 1.0, costs);
    if (!fp8_linears) {
        add_to_layers({widening_of_experts(model, compute, rates), 0.0, 0.0}, 1.0, costs);
    }
    costs.source =
        cat("built in for ", rates.name, rates.doubt,
            known ? std::string() : cat(", an estimate, as '", device, "' is not known"));
    return costs;
}

void add_dora(const Job& job, const ModelSpec& model, CostModel& costs) {
    double layer = 0.0;
    double forward = 0.0;
    double backward = 0.0;
    for (int i = 0; i < linear_count; ++i) {
        const auto linear = static_cast<Linear>(i);
        const LinearShape shape = linear_shape(model, linear);
        const double share = share_of_layers(model, linear);
        const auto product = share * static_cast<double>(shape.in * shape.out);
        layer += product;
        const bool kept = linear != Linear::qkv && linear != Linear::delta_qkvz &&
                          linear != Linear::delta_ba && !has_bias(model, linear);
        for (const AdapterJob& adapter : job.adapters) {
            if (!adapter.use_dora || !adapter.targets_linear(linear)) continue;
            const bool drops = adapter.lora_dropout > 0.0;
            if (drops) forward += product;
            backward += drops ? 2.0 * product : (kept ? 0.0 : product);
        }
    }
    if (backward == 0.0) return;
    const double one =
        costs.layer_forward.per_token / (layer * static_cast<double>(job.adapters.size()));
    costs.layer_forward.per_token += forward * one;
    costs.layer_backward.per_token += backward * one;
}

void add_experts(const Job& job, const ModelSpec& model, std::string_view device,
                 CostModel& costs) {
    const DeviceRates& rates = rates_of(device);
    if (rates.memory_peak == 0.0) return;
    const bool lora = targets_experts(job, model);
    std::int64_t numbers = 0;  // of a token, in all layers
    for_layers(model, 0, model.layers, [&](const LayerSpec& layer, std::int64_t number) {
        const ExpertSpec* experts = layer.experts();
        if (experts == nullptr) return;
        // gate_up, its product and their gradients; outputs and gradients of inputs
        std::int64_t of_row = 10 * experts->size + 4 * model.hidden_size;
        // S, dS and the gradients of A and B read inputs and gradients of outputs; a product is
        // kept
        if (lora) of_row += 7 * experts->size + 4 * model.hidden_size;
        numbers += number * experts->per_token * of_row;
    });
    const double bytes = static_cast<double>(numbers) * static_cast<double>(size_of(DType::bf16)) /
                         static_cast<double>(model.layers);
    const double seconds = bytes / (expert_rows_share * rates.memory_peak);
    costs.layer_forward.per_token += forward_share * seconds;
    costs.layer_backward.per_token += (1.0 - forward_share) * seconds;
}

void add_transfers(const Job& job, const Plan& plan, std::string_view device, std::int32_t tensor,
                   CostModel& costs) {
    if (resident_layers(job) == all_layers) return;
    const ModelSpec model = lane_model(plan.model, tensor);
    const WeightFormat format = plan.fp8_linears ? WeightFormat::e4m3 : linear_format(plan);
    double bytes = 0.0;
    for (int i = 0; i < linear_count; ++i) {
        const auto linear = static_cast<Linear>(i);
        const LinearShape shape = linear_shape(model, linear);
        const WeightLayout layout = weight_layout(traits_of(format), {shape.out, shape.in});
        bytes += share_of_layers(model, linear) * static_cast<double>(layout.bytes);
    }
    const DeviceRates& rates = rates_of(device);
    const bool shared = job.model.residency.kind == Residency::Kind::shared;
    costs.layer_transfer = bytes / (shared ? rates.peer_bytes : rates.host_bytes);
    if (rates.memory_peak == 0.0) return;
    costs.layer_traffic = (shared ? 0.5 : 1.0) * bytes / rates.memory_peak;
    costs.link_power = shared ? power_of_links : 0.0;
}

void add_offload(double bytes_of_token, std::string_view device, CostModel& costs) {
    const DeviceRates& rates = rates_of(device);
    if (rates.name != device || rates.name == "cpu") return;
    costs.offload_per_token = bytes_of_token / rates.host_bytes;
}

void take_unmeasured(const CostModel& built_in, CostModel& measured) {
    measured.offload_per_token = built_in.offload_per_token;
    measured.layer_traffic = built_in.layer_traffic;
    measured.link_power = built_in.link_power;
    if (measured.between_hosts || !built_in.between_hosts) return;
    measured.between_hosts = built_in.between_hosts;
    measured.ranks_per_host = built_in.ranks_per_host;
}

std::vector<std::string> device_names() {
    std::vector<std::string> names;
    names.reserve(devices.size());
    for (const DeviceRates& rates : devices) names.emplace_back(rates.name);
    return names;
}

bool computes_fp8(std::string_view device) {
    const DeviceRates* known = known_rates(device);
    return known == nullptr || known->fp8 > 0.0;
}

}  // namespace loratrain
