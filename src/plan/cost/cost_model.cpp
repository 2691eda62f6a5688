#include "plan/cost/cost_model.h"

#include <algorithm>
#include <array>
#include <map>

#include "config/linears.h"
#include "plan/memory/offload.h"
#include "plan/memory/streamed_layers.h"
#include "plan/stage_layers.h"

namespace loratrain {

AttentionSpan::AttentionSpan(const ModelSpec& model) {
    std::map<std::int64_t, std::int64_t> counts;
    for_layers(model, 0, model.layers, [&](const LayerSpec& layer, std::int64_t number) {
        const AttentionSpec* attention = layer.if_attention();
        if (attention != nullptr) counts[attention->sliding_window] += number;
    });
    if (counts.size() == 1 && counts.begin()->second == model.layers && counts.count(0) > 0) return;
    for (const auto& [sliding_window, count] : counts) {
        layers_.push_back(
            {sliding_window, static_cast<double>(count) / static_cast<double>(model.layers)});
    }
}

double AttentionSpan::squares(std::int64_t tokens) const {
    const auto whole = static_cast<double>(tokens);
    if (layers_.empty()) return whole * whole;
    double sum = 0.0;
    for (const auto& [sliding_window, share] : layers_) {
        const double seen =
            sliding_window > 0 ? static_cast<double>(std::min(sliding_window, tokens)) : whole;
        sum += share * seen * (2.0 * whole - seen);
    }
    return sum;
}

void AdapterLoads::add(AdapterId adapter, const MicrobatchLoad& load) {
    total += load;
    const auto known = std::find_if(parts.begin(), parts.end(),
                                    [&](const Part& part) { return part.adapter == adapter; });
    if (known == parts.end()) {
        parts.push_back({adapter, load});
    } else {
        known->load += load;
    }
}

MicrobatchLoad AdapterLoads::of(const AdapterSpan& adapters) const {
    MicrobatchLoad sum;
    for (const Part& part : parts) {
        if (adapters.contains(part.adapter)) sum += part.load;
    }
    return sum;
}

std::int64_t AdapterLoads::segments(const AdapterSpan& adapters) const {
    if (adapters.is_all()) return std::max<std::int64_t>(1, std::ssize(parts));
    const auto count = std::count_if(parts.begin(), parts.end(), [&](const Part& part) {
        return adapters.contains(part.adapter);
    });
    return std::max<std::int64_t>(1, count);
}

AdapterLoads loads_of(const Microbatch& microbatch, const AttentionSpan& span) {
    AdapterLoads loads;
    for (const Segment& segment : microbatch.segments) {
        MicrobatchLoad load;
        for (const SampleRef& sample : segment.samples) {
            load += {sample.tokens, span.squares(sample.tokens), sample.targets};
        }
        loads.add(segment.adapter, load);
    }
    return loads;
}

MicrobatchLoad load_of(const Microbatch& microbatch, const AttentionSpan& span) {
    return loads_of(microbatch, span).total;
}

namespace {

constexpr double layers_at_ends = 2.0;  // beside which none comes that the pass needs

/// The share of transfers that does not make a stage slower; all in seconds.
double hidden(double transfers, double stage, double stage_without) {
    if (transfers <= 0.0) return 1.0;
    return std::clamp(1.0 - (stage - stage_without) / transfers, 0.0, 1.0);
}

/// Rows that a stage computes: in its whole layers, and in each that it shares.
struct StageRows {
    struct Layer {
        MicrobatchLoad load;
        double segments = 1.0;
        double seconds(const CostLine& line) const {
            return line.seconds(static_cast<double>(load.tokens), load.squares, segments);
        }
    };
    double whole_layers = 0.0;
    Layer whole;
    std::array<Layer, 2> shared;  ///< of no tokens where a layer is not shared
};

StageRows rows_of(const StagePlan& stage, const AdapterLoads& loads) {
    StageRows rows;
    rows.whole_layers = whole_layers(stage);
    rows.whole = {loads.total, static_cast<double>(loads.segments())};
    const std::array spans{stage.first_layer_adapters, stage.last_layer_adapters};
    for (std::size_t i = 0; i < spans.size(); ++i) {
        if (spans[i].is_all()) continue;
        rows.shared[i] = {loads.of(spans[i]), static_cast<double>(loads.segments(spans[i]))};
    }
    return rows;
}

double seconds_of_rows(const CostLine& line, const StageRows& rows) {
    double sum = rows.whole_layers * rows.whole.seconds(line);
    for (const StageRows::Layer& layer : rows.shared) {
        if (layer.load.tokens > 0) sum += layer.seconds(line);
    }
    return sum;
}

}  // namespace

double layers_seconds(const CostLine& layer, const StagePlan& stage, const AdapterLoads& loads) {
    return seconds_of_rows(layer, rows_of(stage, loads));
}

namespace {

/// Of a pass, in turn.
std::int32_t transfers_of(const StagePlan& stage) {
    if (stage.resident_layers >= stage.layer_count) return 0;
    return streamed_layers(stage) - stream_buffers(stage);
}

/// What so many seconds of computation last beside the transfers of a pass.
double beside_transfers(double seconds, const CostModel& costs, const StagePlan& stage) {
    const std::int32_t transfers = transfers_of(stage);
    if (transfers == 0) return seconds;
    return (1.0 + costs.link_power) * seconds + transfers * costs.layer_traffic;
}

std::int32_t kept_of(const StagePlan& stage) {
    return std::min(stage.kept_layers, stage.layer_count);
}

std::int32_t offloaded_of(const StagePlan& stage) {
    return std::min(stage.offloaded_layers, stage.layer_count - kept_of(stage));
}

}  // namespace

double recomputed_share(const StagePlan& stage) {
    if (stage.layer_count == 0) return 0.0;
    return 1.0 - static_cast<double>(kept_of(stage) + offloaded_of(stage)) /
                     static_cast<double>(stage.layer_count);
}

namespace {

/// What the device computes of a microbatch, and what the host takes for it.
struct StageWork {
    double forward = 0.0;
    double backward = 0.0;        ///< with what is recomputed
    double backward_alone = 0.0;  ///< without
    double host = 0.0;
    double device() const { return forward + backward_alone; }
};

StageWork stage_work(const CostModel& costs, const StagePlan& stage, const AdapterLoads& loads,
                     Recompute recompute) {
    const StageRows rows = rows_of(stage, loads);
    const double layers_forward = seconds_of_rows(costs.layer_forward, rows);
    double forward = layers_forward;
    if (stage.has_head) {
        forward += costs.head.seconds(static_cast<double>(loads.total.targets), 0.0);
    }
    double backward = seconds_of_rows(costs.layer_backward, rows);
    if (stage.has_embedding) {
        backward -= costs.first_layer_saving * costs.layer_backward.per_token *
                    static_cast<double>(loads.total.tokens);
    }
    StageWork work;
    work.forward = beside_transfers(forward, costs, stage);
    work.backward_alone = beside_transfers(backward, costs, stage);
    if (recompute == Recompute::layer) backward += recomputed_share(stage) * layers_forward;
    work.backward = beside_transfers(backward, costs, stage);
    work.host = host_seconds(costs.host, stage, loads);
    return work;
}

/// Of activations that go to the host or come from it in a pass.
double offload_seconds(const CostModel& costs, const StagePlan& stage, const AdapterLoads& loads) {
    return std::max(0, offloaded_of(stage) - most_offload_buffers) * costs.offload_per_token *
           static_cast<double>(loads.total.tokens);
}

/// What transfers of so many seconds let a pass be, which takes `seconds` without them.
double with_transfers(double seconds, double transfers, const StagePlan& stage) {
    if (transfers <= 0.0 || stage.layer_count == 0) return seconds;
    const double of_layers = seconds / stage.layer_count * layers_at_ends;
    return std::max(seconds, of_layers + transfers);
}

double streaming_seconds(const CostModel& costs, const StagePlan& stage) {
    return transfers_of(stage) * costs.layer_transfer;
}

/// `part`, of what the device computes, as long as the host lets it be.
double held_up(double part, const StageWork& work) {
    if (part >= work.host) return part;
    const double device = work.device();
    return device >= work.host || device <= 0.0 ? part : part * (work.host / device);
}

}  // namespace

double host_seconds(const HostCosts& host, const StagePlan& stage, const AdapterLoads& loads) {
    const auto segments = static_cast<double>(loads.segments());
    const double layer =
        host.layer_forward.seconds(segments) + host.layer_backward.seconds(segments);
    return host.forward.seconds(segments) + host.backward.seconds(segments) +
           stage.layer_count * layer + (stage.has_head ? host.head : 0.0);
}

bool is_held_up(const CostModel& costs, const StagePlan& stage, const AdapterLoads& loads) {
    const StageWork work = stage_work(costs, stage, loads, Recompute::none);
    return work.host > work.device();
}

PassSeconds pass_seconds(const CostModel& costs, const StagePlan& stage, const AdapterLoads& loads,
                         Recompute recompute, bool evaluation) {
    const StageWork work = stage_work(costs, stage, loads, recompute);
    const double streaming = streaming_seconds(costs, stage);
    const double offload = offload_seconds(costs, stage, loads);
    const double come_back = recompute == Recompute::layer ? offload : 0.0;
    return {with_transfers(held_up(work.forward, work),
                           std::max(streaming, evaluation ? 0.0 : offload), stage),
            with_transfers(held_up(work.backward, work), streaming + come_back, stage)};
}

double forward_seconds(const CostModel& costs, const StagePlan& stage, const AdapterLoads& loads,
                       bool evaluation) {
    return pass_seconds(costs, stage, loads, Recompute::none, evaluation).forward;
}

double backward_seconds(const CostModel& costs, const StagePlan& stage, const AdapterLoads& loads,
                        Recompute recompute) {
    return pass_seconds(costs, stage, loads, recompute).backward;
}

double stage_seconds(const CostModel& costs, const StagePlan& stage, const AdapterLoads& loads,
                     Recompute recompute) {
    const PassSeconds passes = pass_seconds(costs, stage, loads, recompute);
    return passes.forward + passes.backward;
}

double slowest_seconds(const CostModel& costs, const std::vector<StagePlan>& stages,
                       const AdapterLoads& loads, Recompute recompute) {
    double most = 0.0;
    for (const StagePlan& stage : stages) {
        most = std::max(most, stage_seconds(costs, stage, loads, recompute));
    }
    return most;
}

double hidden_share(const CostModel& costs, const StagePlan& stage, const AdapterLoads& loads,
                    Recompute recompute) {
    CostModel at_once = costs;
    at_once.layer_transfer = 0.0;
    return hidden(2.0 * streaming_seconds(costs, stage),
                  stage_seconds(costs, stage, loads, recompute),
                  stage_seconds(at_once, stage, loads, recompute));
}

double hidden_offload_share(const CostModel& costs, const StagePlan& stage,
                            const AdapterLoads& loads, Recompute recompute) {
    CostModel at_once = costs;
    at_once.offload_per_token = 0.0;
    return hidden(2.0 * offload_seconds(costs, stage, loads),
                  stage_seconds(costs, stage, loads, recompute),
                  stage_seconds(at_once, stage, loads, recompute));
}

HostCosts scaled(HostCosts host, double factor) {
    for (HostLine* line :
         {&host.layer_forward, &host.layer_backward, &host.forward, &host.backward}) {
        line->fixed *= factor;
        line->per_segment *= factor;
    }
    host.head *= factor;
    for (NewShapeLine* line : {&host.new_rows, &host.new_targets}) {
        line->each *= factor;
        line->per_row *= factor;
        line->first *= factor;
    }
    return host;
}

CostModel scaled(CostModel costs, double factor) {
    for (CostLine* line : {&costs.layer_forward, &costs.layer_backward, &costs.head}) {
        line->fixed *= factor;
        line->per_token *= factor;
        line->per_square *= factor;
        line->per_segment *= factor;
    }
    costs.host = scaled(costs.host, factor);
    costs.step_fixed *= factor;
    costs.step_per_parameter *= factor;
    return costs;
}

TokenFlop token_flop(const ModelSpec& model, double sample_tokens) {
    double attention = 0.0;
    for_layers(model, 0, model.layers, [&](const LayerSpec& layer, std::int64_t number) {
        const auto layers = static_cast<double>(number);
        if (const AttentionSpec* of = layer.if_attention()) {
            attention += 2.0 * layers * static_cast<double>(of->q_size()) * sample_tokens;
        } else if (const DeltaNetSpec* net = layer.delta_net()) {
            attention += 6.0 * layers * static_cast<double>(net->state_size());
        }
    });
    return {4.0 * static_cast<double>(matmul_parameters(model)), 3.0 * attention};
}

}  // namespace loratrain
