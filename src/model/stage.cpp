#include "model/stage.h"

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "io/tensor_names.h"
#include "plan/memory/engine_memory.h"

namespace loratrain {

namespace {

std::int32_t last_layer(const std::vector<LayerKeeping>& layers, Keeping how) {
    const auto found = std::find_if(layers.rbegin(), layers.rend(),
                                    [&](const LayerKeeping& layer) { return layer.how == how; });
    return static_cast<std::int32_t>(std::distance(found, layers.rend())) - 1;
}

/// ModelSpec::embedding_scale; rounded to bf16 where transformers multiplies in bf16.
float embedding_scale_of(const ModelSpec& model, DType computed) {
    const auto scale = static_cast<float>(model.embedding_scale());
    return model.embeds_scaled && computed == DType::bf16 ? to_float(to_bfloat16(scale)) : scale;
}

}  // namespace

Stage::Stage(const Job& job, const ReplicaView& view, std::size_t stage_index,
             const WeightSource& source, Backend& backend, ObjectiveOf objective_of,
             const StageLanes& lanes, SharedLayers* shared_layers)
    : job_(job),
      view_(view),
      stage_(view.replica.stages[stage_index]),
      backend_(backend),
      lanes_(lanes),
      weights_(view, stage_, source, backend, lanes.index(), shared_layers),
      workspace_(view, stage_, backend),
      bank_(job, view, stage_, backend, lanes,
            {[this](std::int32_t layer, Linear linear) { return row_norms(layer, linear); },
             [&source](std::int64_t layer, Linear linear) {
                 const LinearShape shape = linear_shape(source.spec(), linear);
                 std::vector<float> w(static_cast<std::size_t>(shape.out * shape.in));
                 source.read_rows(weight_name(layer, linear), 0,
                                  matrix(w.data(), DType::f32, shape.out, shape.in));
                 return w;
             },
             [&source](std::span<const std::int32_t> tokens) {
                 const std::int64_t hidden = source.spec().hidden_size;
                 std::vector<float> rows(tokens.size() * static_cast<std::size_t>(hidden));
                 float* row = rows.data();
                 for (const std::int32_t token : tokens) {
                     source.read_rows(embedding_name, token, matrix(row, DType::f32, 1, hidden));
                     row += hidden;
                 }
                 return rows;
             }}),
      keeping_(layer_keeping(view, stage_)),
      last_recomputed_(last_layer(keeping_, Keeping::recomputed)),
      layer_(view, stage_, bank_, workspace_, backend, lanes),
      embedding_scale_(embedding_scale_of(source.spec(), backend.compute_dtype())),
      embedding_lora_(bank_, workspace_, source.spec(), embedding_scale_, backend),
      trained_tokens_(bank_, source.spec(), embedding_scale_, backend) {
    for (std::int32_t i = 0; i < slot_count(view, stage_index); ++i) {
        slots_.push_back(std::make_unique<ActivationSlot>(view, stage_, workspace_, backend));
    }
    if (offloaded_layers(view, stage_) > 0) {
        offload_.emplace(view, stage_index, workspace_, backend);
    }
    auto doubles = [&](std::size_t count) {
        sum_buffers_.push_back(backend.allocate(aligned(count * sizeof(double)), "adapter sums"));
        return sum_buffers_.back().as<double>();
    };
    const auto adapters = static_cast<std::size_t>(view.plan.adapter_capacity);
    sums_.partial = doubles(adapters);
    sums_.received = doubles(adapters);
    sums_.total = doubles(adapters);
    sums_.loss = doubles(adapters);
    sums_.wrong = doubles(adapters);
    const auto samples = static_cast<std::size_t>(view.replica.microbatch_tokens) + 1;
    sums_.sample_nll = doubles(samples);
    sums_.sample_wrong = doubles(samples);
    if (stage_.has_head) {
        head_ = std::make_unique<Head>(
            view, weights_, workspace_, backend, lanes,
            HeadLora(bank_, workspace_, view.lane_model, stage_.layer_count, backend),
            TrainedTokens(bank_, source.spec(), embedding_scale_, backend));
        loss_ = std::make_unique<LossPasses>(job, view.plan, references_, objective_of, *head_,
                                             sums_, backend);
    }
    if (text_room(job, view).texts > 0) cache_.emplace(job, view, stage_, backend);
    const EngineLayout engine = engine_layout(job, view, stage_);
    backend.prepare_scratch({engine.operator_scratch, engine.gemm_timing, engine.attention_rows,
                             engine.attention_tiles, engine.attention_scores});
}

std::vector<float> Stage::row_norms(std::int32_t layer, Linear linear) {
    LORATRAIN_CHECK(!view_.plan.fp8_linears, "weights are kept as codes alone");
    GroupWeights& group =
        weights_.use(layer).groups[static_cast<std::size_t>(linear_group(linear))];
    const Scratch m =
        workspace_.matrix_of(group.matrix.view, augmented_shape(view_, linear_group(linear)));
    if (group.matrix.view.residence == WeightResidence::staged) group.packed_width = -1;
    const LinearShape shape = linear_shape(view_.lane_model, linear);
    std::int64_t first_row = 0;
    for_linears(view_.lane_model, group.shape,
                [&](Linear other, const LinearShape& /*of*/, std::int64_t row) {
                    if (other == linear) first_row = row;
                });
    std::vector<float> norms(static_cast<std::size_t>(shape.out));
    const std::size_t bytes = norms.size() * sizeof(float);
    const Buffer squares = backend_.allocate(aligned(bytes), "norms of weights");
    backend_.dora_norms(
        {m->row_range(first_row, shape.out).col_range(0, shape.in), {}, squares.as<float>()});
    if (is_cut_by_columns(linear)) {
        lanes_.all->all_reduce(matrix(squares.data(), DType::f32, 1, shape.out));
    }
    backend_.download(norms.data(), squares.data(), bytes);
    weights_.done(layer);
    for (float& norm : norms) norm = std::sqrt(norm);
    return norms;
}

TensorView Stage::input(std::int32_t slot, std::int64_t tokens) const {
    return slots_[static_cast<std::size_t>(slot)]->boundary(0, tokens);
}

TensorView Stage::output(std::int32_t slot, std::int64_t tokens) const {
    return slots_[static_cast<std::size_t>(slot)]->boundary(stage_.layer_count, tokens);
}

void Stage::forward(std::int32_t slot_index, const Microbatch& microbatch,
                    const MicrobatchRows& rows, const LossTerms& terms) {
    ActivationSlot& slot = *slots_[static_cast<std::size_t>(slot_index)];
    MicrobatchTables& tables = slot.tables();
    MicrobatchRows own = rows;
    own.token_ids = own_ids(rows.token_ids);
    tables.set(job_, microbatch, own, terms);
    if (loss_) loss_->set_labels(microbatch, rows, terms, tables);
    forward_layers(slot_index, terms.evaluation ? Pass::forward : Pass::backward);
    if (!loss_) return;
    const std::int64_t t = tables.tokens();
    loss_->run(microbatch, rows, terms, tables, slot.boundary(stage_.layer_count, t),
               slot.loss_gradient(t));
}

void Stage::forward_layers(std::int32_t slot_index, Pass next) {
    const ActivationSlot& slot = *slots_[static_cast<std::size_t>(slot_index)];
    const MicrobatchTables& tables = slot.tables();
    const std::int64_t t = tables.tokens();
    expect_layers(tables, Pass::forward, next);
    if (stage_.has_embedding) embed(slot);
    pack_factors(tables);
    for (std::int32_t l = 0; l < stage_.layer_count; ++l) {
        const ProfilerRange range(backend_, "layer forward", stage_.first_layer + l);
        const LayerRows& computed = tables.in_layer(l);
        pass_others(slot, l);
        if (computed.tokens == 0) continue;
        LayerWeights& weights = use_layer(l, computed);
        if (offload_) offload_->begin_forward(slot_index, l);
        layer_.forward(l, weights, computed, slot.layer(l),
                       slot.boundary(l + 1, t).row_range(computed.first_row, computed.tokens));
        weights_.done(l);
        if (offload_ && next == Pass::backward) offload_->end_forward(l, computed.tokens);
        if (between_layers_) between_layers_();
    }
    resident_slot_ = slot_index;
}

void Stage::forward_texts(const Microbatch& microbatch, const MicrobatchRows& rows,
                          TextCache::Rows what, std::int64_t first) {
    MicrobatchTables& tables = slots_.front()->tables();
    MicrobatchRows own = rows;
    own.token_ids = own_ids(rows.token_ids);
    LossTerms terms;
    terms.evaluation = true;
    tables.set(job_, microbatch, own, terms);
    if (head_) {
        const std::vector<float> scales(static_cast<std::size_t>(tables.samples()), 1.0F);
        const std::vector<TokenLoss> forms(microbatch.segments.size());
        tables.set_labels(microbatch, rows, scales, forms, LabelBins::samples);
    }
    cache_->expect(what, first);
    layer_.use_cache(&*cache_);
    forward_layers(0, Pass::forward);
    layer_.use_cache(nullptr);
}

std::vector<ChosenToken> Stage::choose_tokens(std::span<const TokenDraw> draws) {
    const ActivationSlot& slot = *slots_.front();
    return head_->choose_tokens(slot.tables(),
                                slot.boundary(stage_.layer_count, slot.tables().tokens()), draws,
                                cache_->chosen());
}

void Stage::text_logits(const Head::LogitsUse& use) {
    const ActivationSlot& slot = *slots_.front();
    head_->target_logits(slot.tables(), slot.boundary(stage_.layer_count, slot.tables().tokens()),
                         use);
}

void Stage::pack_factors(const MicrobatchTables& tables) {
    std::vector<DecoderLayer::Computed> computed;
    for (std::int32_t l = 0; l < stage_.layer_count; ++l) {
        const LayerRows& rows = tables.in_layer(l);
        if (rows.tokens == 0 || weights_.streams(l)) continue;
        computed.push_back({l, weights_.layer(l), rows});
    }
    layer_.pack(computed);
}

LayerWeights& Stage::use_layer(std::int32_t l, const LayerRows& rows) {
    LayerWeights& weights = weights_.use(l);
    if (!weights_.streams(l)) return weights;
    const DecoderLayer::Computed computed{l, weights, rows};
    layer_.pack({&computed, 1});
    return weights;
}

void Stage::expect_layers(const MicrobatchTables& tables, Pass now, Pass usually_next) {
    if (!weights_.streams()) return;
    std::vector<std::int32_t> order;
    const auto add = [&](Pass pass, const auto& is_computed) {
        const std::size_t first = order.size();
        for (std::int32_t l = 0; l < stage_.layer_count; ++l) {
            if (is_computed(l)) order.push_back(l);
        }
        if (pass == Pass::backward) {
            std::reverse(order.begin() + static_cast<std::ptrdiff_t>(first), order.end());
        }
    };
    add(now, [&](std::int32_t l) { return tables.in_layer(l).tokens > 0; });
    add(next_pass_.value_or(usually_next), [](std::int32_t) { return true; });
    next_pass_.reset();
    weights_.expect(order);
}

void Stage::embed(const ActivationSlot& slot) {
    const MicrobatchTables& tables = slot.tables();
    const TensorView x = slot.boundary(0, tables.tokens());
    backend_.gather_rows({x, weights_.embedding().dense(), tables.token_ids(), embedding_scale_});
    trained_tokens_.embed(tables.all_rows(), tables.token_ids(), x);
    embedding_lora_.forward(tables.all_rows(), tables.token_ids(), x);
    lanes_.all->all_reduce(x);
    add_noise(tables.all_rows(), x);
}

void Stage::add_noise(const LayerRows& rows, const TensorView& x) {
    if (rows.evaluation) return;
    const double scale = view_.lane_model.embeds_scaled ? 1.0 : view_.lane_model.embedding_scale();
    std::size_t sample = 0;
    for (std::size_t s = 0; s < rows.segments.size(); ++s) {
        const AdapterJob& adapter = job_.adapter(rows.adapters[s]);
        const LoraSegment& segment = rows.segments[s];
        for (; rows.offsets[sample] < segment.end; ++sample) {
            if (adapter.neftune_noise_alpha == 0.0) continue;
            const std::int64_t first = rows.offsets[sample];
            const std::int64_t count = rows.offsets[sample + 1] - first;
            const double size = static_cast<double>(count * x.cols);
            backend_.add_noise(
                {x.row_range(first, count), rows.packed.positions + first,
                 rows.packed.sample_ids + first,
                 tensor_key(adapter.seed, adapter.random_name(), "neftune"), segment.step,
                 static_cast<float>(scale * (adapter.neftune_noise_alpha / std::sqrt(size)))});
        }
    }
}

std::span<const std::int32_t> Stage::own_ids(std::span<const std::int32_t> token_ids) {
    if (lanes_.count() == 1) return token_ids;
    const Slice own = weights_.vocabulary();
    own_ids_.clear();
    for (const std::int32_t id : token_ids) {
        const std::int64_t row = id - own.first;
        own_ids_.push_back(row >= 0 && row < own.count ? static_cast<std::int32_t>(row) : -1);
    }
    return own_ids_;
}

void Stage::pass_others(const ActivationSlot& slot, std::int32_t l) {
    const std::int64_t t = slot.tables().tokens();
    const LayerRows& computed = slot.tables().in_layer(l);
    const std::int64_t end = computed.first_row + computed.tokens;
    for (const auto& [first, count] :
         {std::pair(std::int64_t{0}, computed.first_row), std::pair(end, t - end)}) {
        if (count == 0) continue;
        backend_.copy({slot.boundary(l + 1, t).row_range(first, count),
                       slot.boundary(l, t).row_range(first, count)});
    }
}

bool Stage::is_lost(std::int32_t slot, std::int32_t l) const {
    if (keeping_[static_cast<std::size_t>(l)].how != Keeping::recomputed) return false;
    return l != last_recomputed_ || slot != resident_slot_;
}

void Stage::backward(std::int32_t slot_index, const TensorView& d_output,
                     const TensorView& d_input) {
    ActivationSlot& slot = *slots_[static_cast<std::size_t>(slot_index)];
    const MicrobatchTables& tables = slot.tables();
    const Scratch gradient = workspace_.residual(tables.tokens());
    backend_.copy({gradient, head_ ? slot.loss_gradient(tables.tokens()) : d_output});
    expect_layers(tables, Pass::backward, Pass::forward);
    if (offload_) offload_->begin_backward(slot_index, tables);
    pack_factors(tables);
    const bool to_embedding =
        stage_.has_embedding && (embedding_lora_.is_wanted(tables.all_rows()) ||
                                 trained_tokens_.is_wanted(tables.all_rows()));
    for (std::int32_t l = stage_.layer_count - 1; l >= 0; --l) {
        const ProfilerRange range(backend_, "layer backward", stage_.first_layer + l);
        const bool need_dx = l > 0 || !stage_.has_embedding || to_embedding;
        const LayerRows& computed = tables.in_layer(l);
        if (computed.tokens == 0) continue;
        const LayerActivations saved = slot.layer(l);
        LayerWeights& weights = use_layer(l, computed);
        if (is_lost(slot_index, l)) {
            const ProfilerRange again(backend_, "layer recompute", stage_.first_layer + l);
            layer_.recompute(l, weights, computed, saved);
        }
        if (offload_) offload_->use(l);
        layer_.backward(l, weights, computed, saved,
                        gradient->row_range(computed.first_row, computed.tokens), need_dx);
        weights_.done(l);
        if (offload_) offload_->done(l);
        if (between_layers_) between_layers_();
    }
    resident_slot_ = -1;
    for (const AdapterId adapter : tables.all_rows().adapters) bank_.added_gradients(adapter);
    if (to_embedding) {
        embedding_lora_.backward(tables.all_rows(), tables.token_ids(), gradient);
        trained_tokens_.embed_backward(tables.all_rows(), tables.token_ids(), gradient);
    }
    if (!stage_.has_embedding) backend_.copy({d_input, gradient});
}

void Stage::finish_batch(AdapterId adapter, bool add_received) {
    const auto i = static_cast<std::int32_t>(index(adapter));
    bank_.sum_over_lanes(adapter);
    bank_.sum_squares(adapter, sums_.partial + i);
    if (add_received)
        backend_.move_doubles({sums_.partial, sums_.received, {&i, 1}, {&i, 1}, true});
}

std::unique_ptr<Readback> Stage::loss_to_report(AdapterId adapter) const {
    if (!stage_.has_head || !lanes_.is_first()) return nullptr;
    const ReadPart loss{sums_.loss + index(adapter), sizeof(double)};
    return backend_.read_later({&loss, 1});
}

void Stage::set_total(AdapterId adapter, double squares) {
    backend_.upload(sums_.total + index(adapter), &squares, sizeof(squares));
}

void Stage::step(AdapterId adapter, double learning_rate) {
    const std::size_t i = index(adapter);
    bank_.step(adapter, learning_rate, sums_.total + i);
    backend_.zero(sums_.loss + i, sizeof(double));
    backend_.zero(sums_.wrong + i, sizeof(double));
}

std::vector<float> Stage::logits(std::int32_t slot_index) {
    const ActivationSlot& slot = *slots_[static_cast<std::size_t>(slot_index)];
    const std::int64_t t = slots_[static_cast<std::size_t>(slot_index)]->tables().tokens();
    std::vector<float> values(static_cast<std::size_t>(t * view_.lane_model.vocab_size));
    head_->logits(slot.boundary(stage_.layer_count, t), 0, t, values.data());
    return values;
}

}  // namespace loratrain
