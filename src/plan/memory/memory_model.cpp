#include "plan/memory/memory_model.h"

#include <algorithm>
#include <span>

#include "base/operators.h"
#include "base/tensor.h"
#include "base/token_choice.h"
#include "kernels/sizes.h"
#include "plan/memory/engine_memory.h"
#include "plan/memory/kind_memory.h"
#include "plan/memory/offload.h"
#include "plan/memory/state_sizes.h"
#include "plan/memory/streamed_layers.h"
#include "plan/stage_layers.h"

namespace loratrain {

namespace {

constexpr std::int64_t logits_chunk_bytes_cpu = 64LL << 20U;
constexpr std::int64_t logits_chunk_bytes_cuda = 256LL << 20U;
constexpr std::int64_t exchanged_values_cpu = 1 << 16;  ///< little beside small models
constexpr std::int64_t exchanged_values_cuda = 1 << 23;
constexpr std::int64_t logits_chunk_rows = 256;  ///< or a multiple: whole tiles of a product
constexpr std::int64_t staged_head_bytes = 64LL << 20U;

void add_tensors(const AdapterJob& adapter, const ModelSpec& model, std::int64_t layer,
                 Linear linear, StateSizes& sizes) {
    const int rank = target_rank(adapter, model, layer, linear);
    if (rank == 0 && linear != Linear::embedding) return;
    const LayerLinear target = target_of(model, layer, linear);
    const LinearShape& shape = target.shape;
    StateSizes one;
    for (const FormTensor& tensor : adapter.form.tensors) {
        if (!has_tensor(adapter, model, layer, linear, tensor)) continue;
        one.add(element_count(tensor_shape(tensor, rank, shape)), tensor.trained,
                optim_on(adapter, linear));
    }
    if (adapter.form.keeps_norms && rank > 0) one.norms += shape.out;
    sizes += one.times(target.experts.count);
}

StateSizes layer_sizes(const AdapterJob& adapter, const ModelSpec& model, std::int64_t layer) {
    StateSizes sizes;
    for (int i = 0; i < linear_count; ++i) {
        add_tensors(adapter, model, layer, static_cast<Linear>(i), sizes);
    }
    return sizes;
}

StateSizes outer_sizes(const AdapterJob& adapter, const ModelSpec& model,
                       const OuterLinears& with) {
    StateSizes sizes;
    for (const Linear linear : outer_linears) {
        const bool has = linear == Linear::head ? with.head : with.embedding;
        if (has) add_tensors(adapter, model, outer_layer(model, linear), linear, sizes);
    }
    return sizes;
}

/// Every layer has the same of the adapter.
bool has_alike_layers(const AdapterJob& adapter, const ModelSpec& model) {
    return !adapter.modules && (model.experts() == nullptr || model.dense_layers() == nullptr) &&
           (model.delta_nets() == nullptr || model.attention_layers() == nullptr);
}

/// In any so many layers: of one that has most.
StateSizes most_sizes(const AdapterJob& adapter, const ModelSpec& model, std::int64_t layers) {
    StateSizes most = layer_sizes(adapter, model, 0);
    const bool alike = has_alike_layers(adapter, model);
    for (std::int64_t layer = 1; !alike && layer < model.layers; ++layer) {
        most = StateSizes::most(most, layer_sizes(adapter, model, layer));
    }
    return most.times(layers);
}

std::uint64_t projected_bytes(const AdapterJob& adapter, const ModelSpec& model) {
    return aligned_array(projected_floats(adapter, model), size_of(DType::f32));
}

/// Both keep equally many tensors of equal shapes on the same linears.
bool are_as_large(const AdapterJob& a, const AdapterJob& b) {
    const auto alike = [](const FormTensor& one, const FormTensor& other) {
        return one.axes == other.axes && one.trained == other.trained && one.tokens == other.tokens;
    };
    return a.r == b.r && a.optim == b.optim && a.modules == b.modules && a.targets == b.targets &&
           a.targets_head == b.targets_head && a.targets_embedding == b.targets_embedding &&
           a.form.keeps_norms == b.form.keeps_norms && a.form.projects == b.form.projects &&
           std::equal(a.form.tensors.begin(), a.form.tensors.end(), b.form.tensors.begin(),
                      b.form.tensors.end(), alike);
}

/// adapter_bytes_on() of one adapter after another, counted once of those that are as large: a
/// sweep has a thousand.
class BytesOnStage {
  public:
    BytesOnStage(const StagePlan& stage, const Job& job, const ModelSpec& model)
        : stage_(stage), job_(job), model_(model) {}

    std::uint64_t of(AdapterId adapter) {
        const AdapterJob& wanted = job_.adapter(adapter);
        const LayerRange layers = layers_of(stage_, adapter);
        for (const Known& known : known_) {
            if (known.layers.first == layers.first && known.layers.count == layers.count &&
                are_as_large(job_.adapter(known.adapter), wanted)) {
                return known.bytes;
            }
        }
        known_.push_back({adapter, layers, adapter_bytes_on(stage_, adapter, job_, model_)});
        return known_.back().bytes;
    }

  private:
    struct Known {
        AdapterId adapter{};
        LayerRange layers;
        std::uint64_t bytes = 0;
    };

    const StagePlan& stage_;
    const Job& job_;
    const ModelSpec& model_;
    std::vector<Known> known_;
};

}  // namespace

bool joins_experts(const ReplicaView& view, const ExpertSpec& experts) {
    constexpr std::int64_t multiple = 8;
    return view.plan.backend == BackendKind::cuda && view.plan.compute == DType::bf16 &&
           view.lane_model.hidden_size % multiple == 0 && experts.size % multiple == 0 &&
           view.replica.saved_columns % multiple == 0;
}

namespace {

/// All but what joins_experts() has.
RoutesLayout plain_routes(std::int64_t rows, std::int64_t count, std::int64_t per_token) {
    RoutesLayout layout;
    const auto take = [&](std::int64_t numbers) {
        const std::uint64_t start = layout.bytes;
        layout.bytes += aligned_array(numbers, sizeof(std::int32_t));
        return start;
    };
    const std::int64_t copies = rows * per_token;
    layout.probabilities = take(rows * count);
    layout.weights = take(copies);
    layout.chosen = take(copies);
    layout.places = take(copies);
    layout.rows = take(copies);
    layout.offsets = take(count + 1);
    return layout;
}

}  // namespace

RoutesLayout shared_routes_layout(const ReplicaView& view) {
    return plain_routes(view.replica.microbatch_tokens, 1, 1);
}

RoutesLayout routes_layout(const ReplicaView& view, const ExpertSpec& experts) {
    const std::int64_t rows = view.replica.microbatch_tokens;
    RoutesLayout layout = plain_routes(rows, experts.count, experts.per_token);
    const auto take = [&](std::int64_t numbers) {
        const std::uint64_t start = layout.bytes;
        layout.bytes += aligned_array(numbers, sizeof(std::int32_t));
        return start;
    };
    const std::int64_t copies = rows * experts.per_token;
    if (!joins_experts(view, experts)) return layout;
    layout.tiles =
        take(kernels::most_expert_tiles(copies, experts.held()) * kernels::expert_tile_bytes / 4);
    layout.counters = take(2);
    layout.entries = take(copies);
    return layout;
}

std::uint64_t layer_slot_bytes(const ReplicaView& view) {
    std::uint64_t bytes = 0;
    for (const LayerSpec& layer : view.lane_model.descriptions) {
        LayerActivations saved;
        bytes = std::max(bytes, saved_arrays(view, layer, saved).bytes());
    }
    return bytes;
}

std::uint64_t boundary_bytes(const ReplicaView& view) {
    return aligned_array(view.replica.microbatch_tokens * view.lane_model.hidden_size,
                         compute_bytes(view.plan)) +
           message_tail_bytes(view.plan);
}

std::uint64_t link_room(const ReplicaView& view) {
    // Larger messages take long to compute, and little in comparison to wait for.
    constexpr std::uint64_t most = std::uint64_t{32} << 20U;
    constexpr std::uint64_t least = std::uint64_t{64} << 10U;
    constexpr std::uint64_t messages = 2;  // a receiver may be late for the first
    const bool linked = view.plan.backend == BackendKind::cpu && view.replica.stages.size() > 1;
    return linked ? std::clamp(messages * boundary_bytes(view), least, most) : 0;
}

std::uint64_t link_room(const Plan& plan) {
    std::uint64_t most = 0;
    for (const ReplicaView& view : views_of(plan)) most = std::max(most, link_room(view));
    return most;
}

std::uint64_t table_bytes(const ReplicaView& view) {
    constexpr std::int64_t tables = 11;
    return aligned_array(tables * (view.replica.microbatch_tokens + 1), sizeof(std::int32_t)) +
           tables * tensor_alignment;
}

std::int32_t kept_layers(const ReplicaView& view, const StagePlan& stage) {
    if (view.replica.recompute != Recompute::layer) return stage.layer_count;
    return std::min(stage.kept_layers, stage.layer_count);
}

std::uint64_t slot_bytes(const ReplicaView& view, const StagePlan& stage) {
    const auto boundaries = static_cast<std::uint64_t>(stage.layer_count) + 1;
    const auto layers = static_cast<std::uint64_t>(kept_layers(view, stage));
    std::uint64_t bytes =
        layers * layer_slot_bytes(view) + boundaries * boundary_bytes(view) + table_bytes(view);
    if (stage.has_head) {
        bytes += aligned_array(view.replica.microbatch_tokens * view.lane_model.hidden_size,
                               compute_bytes(view.plan));
    }
    return bytes;
}

std::int32_t slot_count(const ReplicaView& view, std::size_t stage_index) {
    return std::max(1, view.replica.max_in_flight - static_cast<std::int32_t>(stage_index));
}

std::uint64_t message_tail_bytes(const Plan& plan) {
    return aligned(2 * static_cast<std::uint64_t>(plan.adapter_capacity) * sizeof(double));
}

std::int64_t exchanged_at_once(const Plan& plan) {
    return plan.backend == BackendKind::cuda ? exchanged_values_cuda : exchanged_values_cpu;
}

std::uint64_t exchange_bytes(const Plan& plan) {
    if (!plan.joint) return 0;
    const std::uint64_t both = aligned_array(2 * exchanged_at_once(plan), size_of(DType::f32));
    if (plan.backend != BackendKind::cuda) return both;
    return both + sizeof(double) + kernels::add_parts_bytes;  // of a batch, and of the blocks
}

LogitsChunk logits_chunk(const ReplicaView& view) {
    const ModelSpec& model = view.lane_model;
    LogitsChunk chunk;
    const auto row_bytes = model.vocab_size * static_cast<std::int64_t>(compute_bytes(view.plan));
    const bool cuda = view.plan.backend == BackendKind::cuda;
    chunk.rows = (cuda ? logits_chunk_bytes_cuda : logits_chunk_bytes_cpu) / row_bytes;
    if (chunk.rows > logits_chunk_rows) chunk.rows -= chunk.rows % logits_chunk_rows;
    chunk.rows = std::clamp<std::int64_t>(chunk.rows, 1, view.replica.microbatch_tokens);
    chunk.vocab = model.vocab_size;
    if (head_is_staged(view.plan)) {
        const auto head_row =
            model.hidden_size * static_cast<std::int64_t>(compute_bytes(view.plan));
        chunk.vocab = std::clamp<std::int64_t>(staged_head_bytes / head_row, 1, model.vocab_size);
    }
    return chunk;
}

std::uint64_t WorkspaceLayout::total() const {
    return input + gradient + residual + inner + branch + layer + offload + kinds + staged +
           logits + head_rows + statistics + codes + code_scales + messages + links + exchange +
           scalars;
}

WorkspaceLayout workspace_layout(const ReplicaView& view, const StagePlan& stage) {
    const ModelSpec& model = view.lane_model;
    const std::uint64_t e = compute_bytes(view.plan);
    const std::int64_t t = view.replica.microbatch_tokens;
    const std::int64_t r = view.replica.saved_columns;
    WorkspaceLayout layout;
    std::int64_t widest_in = 0;  // with the columns behind it
    std::int64_t widest_linear = 0;
    std::int64_t widest_out = 0;
    std::int64_t largest_group = 0;
    std::int64_t widest_codes = 0;
    std::int64_t transposed = 0;
    for (const LinearGroup group : linear_groups) {
        const LinearGroupShape shape = group_shape(model, group);
        widest_in = std::max(widest_in, shape.in + column_blocks(view, group) * r);
        for (const Linear linear : shape.list()) {
            widest_linear = std::max({widest_linear, shape.in, linear_shape(model, linear).out});
        }
        widest_out = std::max(widest_out, shape.out + shape.count * r);
        widest_codes = std::max({widest_codes, shape.in, shape.out});
        if (view.plan.fp8_one_order) transposed = std::max(transposed, shape.in * shape.out);
        largest_group = std::max(largest_group, augmented_shape(view, group).elements());
    }
    for (const LayerSpec& layer : model.descriptions) {
        largest_group = std::max(largest_group, largest_product(layer, model.hidden_size));
        if (layer.norms.has_after()) layout.branch = aligned_array(t * (model.hidden_size + r), e);
    }
    KindScratch scratch;
    for (const ScratchMatrix* matrix : kind_scratch(view, scratch)) layout.kinds += matrix->bytes();
    layout.input = aligned_array(t * widest_in, e);
    layout.gradient = aligned_array(t * widest_out, e);
    layout.residual = aligned_array(t * (model.hidden_size + r), e);
    layout.inner = aligned_array(t * widest_linear, e);
    if (view.replica.recompute == Recompute::layer) {
        const std::uint64_t one = layer_slot_bytes(view);
        const auto buffers = static_cast<std::uint64_t>(offload_buffers(view, stage));
        if (buffers == 0 || recomputed_layers(view, stage) > 0) layout.layer = one;
        layout.offload = buffers * one;
    }
    if (view.plan.fp8_linears) {
        layout.codes = aligned_array(t * widest_codes, 1);
        layout.code_scales = aligned_array(t, size_of(DType::f32));
    }
    const LogitsChunk chunk = logits_chunk(view);
    const std::int64_t group = weights_are_staged(view.plan) ? largest_group : 0;
    const bool with_head = stage.has_head && head_is_staged(view.plan);
    const std::int64_t head = with_head ? chunk.vocab * model.hidden_size : 0;
    layout.staged = std::max(aligned_array(std::max(group, head), e), aligned_array(transposed, 1));
    if (stage.has_head) {
        layout.logits = aligned_array(chunk.rows * model.vocab_size, e);
        layout.head_rows = 3 * aligned_array(chunk.rows * model.hidden_size, e);
        layout.statistics = shard_statistics_bytes(view);
    }
    if (view.replica.stages.size() > 1) {
        const int neighbours = (stage.has_embedding ? 0 : 1) + (stage.has_head ? 0 : 1);
        layout.messages = 2 * gradient_buffers * boundary_bytes(view);
        layout.links = 2 * static_cast<std::uint64_t>(neighbours) * link_room(view);
    }
    layout.exchange = exchange_bytes(view.plan);
    const std::int64_t adapters = view.plan.adapter_capacity;
    layout.scalars = 5 * aligned_array(adapters, sizeof(double)) +
                     aligned_array(2 * adapters, sizeof(std::int64_t)) +
                     2 * aligned_array(t + 1, sizeof(double)) + lane_squares_bytes(view);
    return layout;
}

std::uint64_t lane_squares_bytes(const ReplicaView& view) {
    const std::int64_t lanes = view.replica.tensor;
    return lanes > 1 ? aligned_array(1 + lanes, sizeof(double)) : 0;
}

std::uint64_t shard_statistics_bytes(const ReplicaView& view) {
    const std::int64_t lanes = view.replica.tensor;
    return lanes > 1 ? aligned_array(lanes * logits_chunk(view).rows, sizeof(ShardStatistics)) : 0;
}

std::int64_t adapter_parameters(const AdapterJob& adapter, const ModelSpec& model,
                                std::int64_t layers) {
    return most_sizes(adapter, model, layers).trained;
}

std::int64_t projected_floats(const AdapterJob& adapter, const ModelSpec& model) {
    if (!adapter.form.projects) return 0;
    std::int64_t features = 0;
    for (const LinearGroup group : linear_groups) {
        const LinearGroupShape shape = group_shape(model, group);
        bool any = false;
        for (const Linear linear : shape.list()) {
            if (!adapter.targets_linear(linear)) continue;
            any = true;
            features += 3 * linear_shape(model, linear).out;
        }
        if (any) features += shape.in;
    }
    return adapter.r * features;
}

std::uint64_t adapter_bytes(const AdapterJob& adapter, const ModelSpec& model, std::int64_t layers,
                            const OuterLinears& with) {
    StateSizes sizes = most_sizes(adapter, model, layers);
    sizes += outer_sizes(adapter, model, with);
    return sizes.bytes() + projected_bytes(adapter, model);
}

std::uint64_t adapter_bytes_on(const StagePlan& stage, AdapterId adapter, const Job& job,
                               const ModelSpec& model) {
    const AdapterJob& of = job.adapter(adapter);
    const LayerRange layers = layers_of(stage, adapter);
    const OuterLinears with{stage.has_head, stage.has_embedding};
    if (has_alike_layers(of, model)) return adapter_bytes(of, model, layers.count, with);
    StateSizes sizes = outer_sizes(of, model, with);
    for (std::int64_t layer = layers.first; layer < layers.first + layers.count; ++layer) {
        sizes += layer_sizes(of, model, layer);
    }
    return sizes.bytes() + projected_bytes(of, model);
}

std::uint64_t largest_adapter_bytes(const StagePlan& stage, const Job& job,
                                    const ModelSpec& model) {
    BytesOnStage bytes(stage, job, model);
    std::uint64_t largest = 0;
    for (std::size_t a = 0; a < job.adapters.size(); ++a) {
        largest = std::max(largest, bytes.of(static_cast<AdapterId>(a)));
    }
    return largest;
}

namespace {

/// What all adapters write together, and the longest of it.
struct WantedTexts {
    std::int64_t texts = 0;
    std::int64_t longest = 0;
};

WantedTexts wanted_texts(const Job& job) {
    WantedTexts rollouts;
    for (const AdapterJob& adapter : job.adapters) {
        if (!adapter.rewards.wanted()) continue;
        rollouts.texts += adapter.global_batch_size;
        rollouts.longest = std::max(rollouts.longest, adapter.rewards.max_new_tokens);
    }
    const GenerateJob& generate = job.eval.generate;
    const std::int64_t longest = generate.wanted() ? generate.max_new_tokens : 0;
    return {std::max(generate.samples, rollouts.texts), std::max(longest, rollouts.longest)};
}

/// What layers [first, first + count) keep.
std::uint64_t layers_bytes(const TextRoom& room, const ReplicaView& view, std::int64_t first,
                           std::int64_t count) {
    std::uint64_t bytes = 0;
    for_layers(view.lane_model, first, count, [&](const LayerSpec& layer, std::int64_t number) {
        LayerCache cache;
        bytes +=
            static_cast<std::uint64_t>(number) * cached_arrays(room, view, layer, cache).bytes();
    });
    return bytes;
}

}  // namespace

TextRoom text_room(const Job& job, const ReplicaView& view) {
    const WantedTexts wanted = wanted_texts(job);
    if (wanted.texts == 0) return {};
    const std::int64_t texts = std::min(wanted.texts, view.replica.texts_at_once);
    const std::int64_t microbatches = (texts + few_texts - 1) / few_texts;
    return {texts, microbatches * view.replica.microbatch_tokens + texts * wanted.longest};
}

std::uint64_t text_cache_bytes(const Job& job, const ReplicaView& view, const StagePlan& stage) {
    const TextRoom room = text_room(job, view);
    if (room.texts == 0) return 0;
    return layers_bytes(room, view, stage.first_layer, stage.layer_count) +
           aligned_array(room.texts, sizeof(std::int32_t)) +
           aligned_array(room.texts, sizeof(ChosenToken));
}

MemoryPlan stage_memory(const Job& job, const ReplicaView& view, std::size_t stage_index) {
    const StagePlan& stage = view.replica.stages[stage_index];
    const ModelSpec& model = view.lane_model;
    MemoryPlan memory;
    memory.weights = frozen_bytes(view, stage);
    memory.host =
        static_cast<std::uint64_t>(streamed_layers(stage)) * host_layer_bytes(streamed_layer(view));
    memory.host_activations = offload_host_bytes(view, stage_index);
    BytesOnStage bytes(stage, job, model);
    for (const AdapterId adapter : view.plan.first_admitted) memory.adapters += bytes.of(adapter);
    memory.adapters = std::max(memory.adapters, largest_adapter_bytes(stage, job, model));
    memory.activations =
        static_cast<std::uint64_t>(slot_count(view, stage_index)) * slot_bytes(view, stage);
    memory.workspace = workspace_layout(view, stage).total() + text_cache_bytes(job, view, stage);
    memory.engine = engine_layout(job, view, stage).total();
    return memory;
}

}  // namespace loratrain
