#include "model/head.h"

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace loratrain {

Head::Head(const ReplicaView& view, const FrozenWeights& weights, const Workspace& workspace,
           Backend& backend, const StageLanes& lanes, HeadLora lora, TrainedTokens tokens)
    : view_(view),
      weights_(weights),
      workspace_(workspace),
      backend_(backend),
      lanes_(lanes),
      lora_(std::move(lora)),
      tokens_(std::move(tokens)) {}

void Head::norm(const TensorView& x, const TensorView& y) {
    const auto eps = static_cast<float>(view_.lane_model.stream_eps());
    backend_.rms_norm({x, weights_.final_norm(), eps, 1, y, {}, norm_offset()});
}

void Head::norm_backward(const TensorView& x, const TensorView& d) {
    const auto eps = static_cast<float>(view_.lane_model.stream_eps());
    backend_.rms_norm_backward({x, weights_.final_norm(), eps, 1, d, d, false, {}, norm_offset()});
}

void Head::cap(const TensorView& logits) {
    const auto cap = static_cast<float>(view_.lane_model.logits_soft_cap);
    if (cap > 0.0F) backend_.soft_cap({logits, cap});
}

Scratch Head::head_block(std::int64_t first, std::int64_t count) {
    const WeightView block = weights_.head().row_range(first, count);
    return workspace_.matrix_of(block, {block.rows, block.cols});
}

void Head::project(const TensorView& normed, const TensorView& logits) {
    const std::int64_t block = logits_chunk(view_).vocab;
    for (std::int64_t v = 0; v < logits.cols; v += block) {
        const std::int64_t count = std::min(block, logits.cols - v);
        const Scratch w = head_block(v, count);
        Gemm op;
        op.a = normed;
        op.b = w;
        op.c = logits.col_range(v, count);
        op.transpose_b = true;
        op.alpha = static_cast<float>(1.0 / view_.lane_model.logits_scaling);
        backend_.gemm(op);
    }
}

void Head::project_backward(const TensorView& d_logits, const TensorView& dx, bool added) {
    const std::int64_t block = logits_chunk(view_).vocab;
    for (std::int64_t v = 0; v < d_logits.cols; v += block) {
        const std::int64_t count = std::min(block, d_logits.cols - v);
        const Scratch w = head_block(v, count);
        Gemm op;
        op.a = d_logits.col_range(v, count);
        op.b = w;
        op.c = dx;
        op.alpha = static_cast<float>(1.0 / view_.lane_model.logits_scaling);
        op.beta = v == 0 && !added ? 0.0F : 1.0F;
        backend_.gemm(op);
    }
}

void Head::loss(const MicrobatchTables& tables, const TensorView& x, double* loss_sums,
                double* wrong_counts, const TensorView& dx, double* entropies) {
    const bool gradient = dx.data != nullptr;
    if (gradient && tables.label_chunks().empty()) {
        backend_.scatter_rows({dx, workspace_.head_rows(0, 0), nullptr});
    }
    for (const MicrobatchTables::LabelChunk& chunk : tables.label_chunks()) {
        const TensorView rows = workspace_.head_rows(0, chunk.labels);
        const TensorView normed = workspace_.head_rows(1, chunk.labels);
        const TensorView d_rows = workspace_.head_rows(2, chunk.labels);
        Scratch s;
        const TensorView logits = logits_of(tables, chunk, x, s);
        if (entropies != nullptr) {
            TokenLoss entropy;
            entropy.entropy = true;
            cross_entropy({logits, chunk.targets, chunk.scales, chunk.bins, entropies, nullptr,
                           false, nullptr, entropy});
        }
        cross_entropy({logits, chunk.targets, chunk.scales, chunk.bins, loss_sums, wrong_counts,
                       gradient, chunk.weights, chunk.form,
                       static_cast<float>(view_.lane_model.logits_soft_cap)});
        if (!gradient) continue;
        const bool added =
            tokens_.project_backward(tables.all_rows(), chunk.segments, normed, logits, d_rows);
        project_backward(logits, d_rows, added);
        lora_.backward(tables.all_rows(), chunk.segments, normed, s, logits, d_rows);
        lanes_.all->all_reduce(d_rows);
        norm_backward(rows, d_rows);
        backend_.scatter_rows({dx.row_range(chunk.first_row, chunk.row_count), d_rows, chunk.ids});
    }
}

TensorView Head::logits_of(const MicrobatchTables& tables,
                           const MicrobatchTables::LabelChunk& chunk, const TensorView& x,
                           Scratch& s) {
    const TensorView rows = workspace_.head_rows(0, chunk.labels);
    const TensorView normed = workspace_.head_rows(1, chunk.labels);
    const TensorView logits = matrix(workspace_.logits(), backend_.compute_dtype(), chunk.labels,
                                     weights_.vocabulary().count);
    backend_.gather_rows({rows, x.row_range(chunk.first_row, chunk.row_count), chunk.ids});
    norm(rows, normed);
    project(normed, logits);
    tokens_.project(tables.all_rows(), chunk.segments, normed, logits);
    s = lora_.forward(tables.all_rows(), chunk.segments, normed, logits);
    cap(logits);
    return logits;
}

void Head::target_logits(const MicrobatchTables& tables, const TensorView& x,
                         const LogitsUse& use) {
    for (const MicrobatchTables::LabelChunk& chunk : tables.label_chunks()) {
        Scratch s;
        const TensorView logits = logits_of(tables, chunk, x, s);
        std::vector<float> host(static_cast<std::size_t>(logits.numel()));
        download_floats(logits, host.data());
        use(host, logits.cols);
    }
}

std::vector<ChosenToken> Head::choose_tokens(const MicrobatchTables& tables, const TensorView& x,
                                             std::span<const TokenDraw> draws,
                                             ChosenToken* chosen) {
    std::size_t first = 0;
    for (const MicrobatchTables::LabelChunk& chunk : tables.label_chunks()) {
        Scratch s;
        const TensorView logits = logits_of(tables, chunk, x, s);
        const auto count = static_cast<std::size_t>(chunk.labels);
        backend_.choose_tokens({logits, draws.subspan(first, count), chosen + first});
        first += count;
    }
    std::vector<ChosenToken> tokens(first);
    backend_.download(tokens.data(), chosen, first * sizeof(ChosenToken));
    const std::int64_t own = weights_.vocabulary().first;
    for (ChosenToken& token : tokens) token.token += static_cast<std::int32_t>(own);
    return tokens;
}

std::vector<float> Head::hidden_ends(const MicrobatchTables& tables, const TensorView& x) {
    const std::int64_t ends = std::ssize(tables.ends());
    const std::int64_t chunk = logits_chunk(view_).rows;
    std::vector<float> hidden(static_cast<std::size_t>(ends * x.cols));
    for (std::int64_t first = 0; first < ends; first += chunk) {
        const std::int64_t count = std::min(chunk, ends - first);
        const TensorView rows = workspace_.head_rows(0, count);
        const TensorView normed = workspace_.head_rows(1, count);
        backend_.gather_rows({rows, x, tables.end_ids() + first});
        norm(rows, normed);
        download_floats(normed, hidden.data() + first * x.cols);
    }
    return hidden;
}

void Head::add_end_gradient(const MicrobatchTables& tables, const TensorView& x, std::int64_t first,
                            std::span<const float> gradient, const TensorView& dx) {
    const std::int64_t end = first + std::ssize(gradient) / x.cols;
    const std::int64_t chunk = logits_chunk(view_).rows;
    for (std::int64_t row = first; row < end; row += chunk) {
        const std::int64_t count = std::min(chunk, end - row);
        const TensorView rows = workspace_.head_rows(0, count);
        const TensorView d_rows = workspace_.head_rows(2, count);
        backend_.gather_rows({rows, x, tables.end_ids() + row});
        upload_floats(d_rows, gradient.data() + (row - first) * x.cols);
        norm_backward(rows, d_rows);
        for (std::int64_t i = 0; i < count; ++i) {
            const std::int32_t place = tables.ends()[static_cast<std::size_t>(row + i)];
            backend_.copy({dx.row_range(place, 1), d_rows.row_range(i, 1)});
        }
    }
}

void Head::cross_entropy(const CrossEntropy& op) {
    if (lanes_.count() == 1) return backend_.cross_entropy(op);
    auto* statistics = static_cast<ShardStatistics*>(workspace_.statistics());
    const ShardedCrossEntropy sharded{op,
                                      weights_.vocabulary().first,
                                      view_.plan.model.vocab_size,
                                      lanes_.index(),
                                      lanes_.count(),
                                      statistics};
    backend_.shard_statistics(sharded);
    lanes_.all->all_gather(statistics + lanes_.index() * op.logits.rows,
                           static_cast<std::size_t>(op.logits.rows) * sizeof(ShardStatistics),
                           statistics);
    backend_.sharded_cross_entropy(sharded);
}

void Head::download_floats(const TensorView& values, float* host) {
    const auto count = static_cast<std::size_t>(values.numel());
    if (values.dtype == DType::f32) {
        backend_.download(host, values.data, count * sizeof(float));
        return;
    }
    std::vector<BFloat16> narrow(count);
    backend_.download(narrow.data(), values.data, count * sizeof(BFloat16));
    std::transform(narrow.begin(), narrow.end(), host, [](BFloat16 v) { return to_float(v); });
}

void Head::upload_floats(const TensorView& values, const float* host) {
    const auto count = static_cast<std::size_t>(values.numel());
    if (values.dtype == DType::f32) {
        backend_.upload(values.data, host, count * sizeof(float));
        return;
    }
    std::vector<BFloat16> narrow(count);
    std::transform(host, host + count, narrow.begin(), [](float v) { return to_bfloat16(v); });
    backend_.upload(values.data, narrow.data(), count * sizeof(BFloat16));
}

void Head::logits(const TensorView& x, std::int64_t first, std::int64_t rows, float* host) {
    LORATRAIN_CHECK(lanes_.count() == 1, "the logits of one lane of ", lanes_.count());
    const std::int64_t chunk = logits_chunk(view_).rows;
    const std::int64_t vocab = view_.lane_model.vocab_size;
    for (std::int64_t row = 0; row < rows; row += chunk) {
        const std::int64_t count = std::min(chunk, rows - row);
        const TensorView normed = workspace_.head_rows(1, count);
        const TensorView logits =
            matrix(workspace_.logits(), backend_.compute_dtype(), count, vocab);
        norm(x.row_range(first + row, count), normed);
        project(normed, logits);
        cap(logits);
        download_floats(logits, host + row * vocab);
    }
}

}  // namespace loratrain
