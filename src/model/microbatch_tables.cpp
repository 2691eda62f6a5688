#include "model/microbatch_tables.h"

#include <algorithm>

#include "base/error.h"
#include "plan/stage_layers.h"

namespace loratrain {

namespace {

enum Table : std::uint8_t {
    ids,
    positions,
    sample_ids,
    offsets,
    rows,
    targets,
    bins,
    scales,
    first_offsets,
    last_offsets,
    weights
};

bool drops_out(const Job& job, const LayerRows& rows) {
    return !rows.evaluation &&
           std::any_of(rows.adapters.begin(), rows.adapters.end(),
                       [&](AdapterId adapter) { return job.adapter(adapter).lora_dropout > 0; });
}

}  // namespace

MicrobatchTables::MicrobatchTables(const ReplicaView& view, const StagePlan& stage,
                                   Backend& backend, void* memory)
    : view_(view), stage_(stage), backend_(backend), tables_{} {
    const std::uint64_t bytes = aligned(
        static_cast<std::uint64_t>(view.replica.microbatch_tokens + 1) * sizeof(std::int32_t));
    for (std::size_t i = 0; i < std::size(tables_); ++i) {
        tables_[i] = reinterpret_cast<std::int32_t*>(static_cast<char*>(memory) + i * bytes);
    }
}

const LayerRows& MicrobatchTables::in_layer(std::int32_t layer) const {
    if (adapters_in(stage_, layer).is_all()) return whole_;
    return layer == 0 ? first_ : last_;
}

void MicrobatchTables::set(const Job& job, const Microbatch& microbatch, const MicrobatchRows& from,
                           const LossTerms& terms) {
    whole_.tokens = static_cast<std::int64_t>(from.positions.size());
    LORATRAIN_CHECK(whole_.tokens <= view_.replica.microbatch_tokens, whole_.tokens,
                    " tokens in a microbatch of ", view_.replica.microbatch_tokens);
    whole_.evaluation = terms.evaluation;
    whole_.base_alone = terms.base_alone;
    whole_.offsets.assign(from.offsets.begin(), from.offsets.end());
    whole_.lengths.clear();
    for (const std::int32_t end : from.offsets.subspan(1)) {
        whole_.lengths.push_back(from.positions[static_cast<std::size_t>(end) - 1] + 1);
    }
    upload(tables_[ids], from.token_ids);
    upload(tables_[positions], from.positions);
    upload(tables_[sample_ids], from.sample_ids);
    upload(tables_[offsets], from.offsets);
    whole_.packed = {whole_.tokens,      std::ssize(whole_.offsets) - 1,
                     tables_[offsets],   whole_.offsets.data(),
                     tables_[positions], tables_[sample_ids]};
    set_columns(microbatch);
    set_segments(job, microbatch);
    set_part(job, stage_.first_layer_adapters, tables_[first_offsets], first_);
    set_part(job, stage_.last_layer_adapters, tables_[last_offsets], last_);
}

void MicrobatchTables::set_columns(const Microbatch& microbatch) {
    const LoraColumns& columns = microbatch.columns;
    LORATRAIN_CHECK(columns.first.size() == microbatch.segments.size() &&
                        columns.width <= view_.replica.saved_columns,
                    "a microbatch without planned LoRA columns");
    whole_.augmented = columns.augmented;
    whole_.width = columns.width;
    whole_.columns = columns.first;
    whole_.pads.clear();
    if (columns.lasting.empty()) {
        for (std::size_t s = 0; s < columns.first.size(); ++s) {
            whole_.pads.push_back({microbatch.segments[s].adapter, columns.first[s]});
        }
    }
    for (std::size_t a = 0; a < columns.lasting.size(); ++a) {
        whole_.pads.push_back({static_cast<AdapterId>(a), columns.lasting[a]});
    }
}

void MicrobatchTables::set_segments(const Job& job, const Microbatch& microbatch) {
    whole_.segments.clear();
    whole_.adapters.clear();
    std::int64_t row = 0;
    for (const Segment& segment : microbatch.segments) {
        const std::int64_t count = segment.tokens();
        whole_.segments.push_back({static_cast<std::int32_t>(whole_.segments.size()), row,
                                   row + count, static_cast<std::uint32_t>(segment.step)});
        whole_.adapters.push_back(segment.adapter);
        row += count;
    }
    whole_.has_dropout = drops_out(job, whole_);
    LORATRAIN_CHECK(row == whole_.tokens, row, " rows in segments, ", whole_.tokens,
                    " in the microbatch");
}

void MicrobatchTables::set_part(const Job& job, const AdapterSpan& adapters,
                                std::int32_t* device_offsets, LayerRows& part) {
    if (adapters.is_all()) return;
    part = whole_;
    part.segments.clear();
    part.adapters.clear();
    part.columns.clear();
    part.offsets.clear();
    part.tokens = 0;
    part.first_sample = 0;
    for (std::size_t s = 0; s < whole_.segments.size(); ++s) {
        if (!adapters.contains(whole_.adapters[s])) continue;
        LoraSegment segment = whole_.segments[s];
        if (part.segments.empty()) part.first_row = segment.begin;
        LORATRAIN_CHECK(segment.begin == part.first_row + part.tokens,
                        "the adapters of a shared layer are not neighbours in a microbatch");
        part.tokens += segment.end - segment.begin;
        segment.slot = static_cast<std::int32_t>(part.segments.size());
        segment.begin -= part.first_row;
        segment.end -= part.first_row;
        part.segments.push_back(segment);
        part.adapters.push_back(whole_.adapters[s]);
        part.columns.push_back(whole_.columns[s]);
    }
    part.has_dropout = drops_out(job, part);
    for (const std::int32_t offset : whole_.offsets) {
        const std::int64_t row = offset - part.first_row;
        if (row < 0) ++part.first_sample;
        if (row >= 0 && row <= part.tokens) part.offsets.push_back(static_cast<std::int32_t>(row));
    }
    const auto samples = part.offsets.size() - 1;
    const auto first = whole_.lengths.begin() + part.first_sample;
    part.lengths.assign(first, first + static_cast<std::ptrdiff_t>(samples));
    upload(device_offsets, part.offsets);
    part.packed = {part.tokens,
                   std::ssize(part.offsets) - 1,
                   device_offsets,
                   part.offsets.data(),
                   tables_[positions] + part.first_row,
                   tables_[sample_ids] + part.first_row};
}

void MicrobatchTables::add_label(LabelChunk& chunk, const LoraSegment& of) {
    const bool begins = chunk.segments.empty() || chunk.segments.back().slot != of.slot;
    if (begins) chunk.segments.push_back({of.slot, chunk.labels, chunk.labels, of.step});
    chunk.segments.back().end = ++chunk.labels;
}

void MicrobatchTables::set_labels(const Microbatch& microbatch, const MicrobatchRows& of,
                                  std::span<const float> scales_of_samples,
                                  std::span<const TokenLoss> forms, LabelBins by) {
    chunks_.clear();
    label_rows_.clear();
    label_targets_.clear();
    label_bins_.clear();
    label_scales_.clear();
    label_weights_.clear();
    ends_.clear();
    bin_count_ = by == LabelBins::targets ? 0 : samples();
    if (of.targets.empty()) return;
    const std::int64_t chunk_rows = logits_chunk(view_).rows;
    std::int32_t sample = 0;
    for (std::size_t s = 0; s < whole_.segments.size(); ++s) {
        const auto adapter = static_cast<std::int32_t>(number(microbatch.segments[s].adapter));
        for (std::int64_t row = whole_.segments[s].begin; row < whole_.segments[s].end; ++row) {
            while (row >= whole_.offsets[static_cast<std::size_t>(sample) + 1]) ++sample;
            const std::int32_t target = of.targets[static_cast<std::size_t>(row)];
            if (target < 0) continue;
            if (chunks_.empty() || chunks_.back().labels == chunk_rows ||
                chunks_.back().form != forms[s]) {
                const std::int64_t first = chunks_.empty() ? 0 : row;
                if (!chunks_.empty()) chunks_.back().row_count = first - chunks_.back().first_row;
                const std::size_t at = label_rows_.size();
                chunks_.push_back(
                    {first, 0, 0, tables_[Table::rows] + at, tables_[Table::targets] + at,
                     tables_[bins] + at, reinterpret_cast<const float*>(tables_[scales]) + at,
                     of.weights.empty() ? nullptr
                                        : reinterpret_cast<const float*>(tables_[weights]) + at,
                     forms[s]});
            }
            add_label(chunks_.back(), whole_.segments[s]);
            label_rows_.push_back(static_cast<std::int32_t>(row - chunks_.back().first_row));
            label_targets_.push_back(target);
            if (by == LabelBins::targets) {
                label_bins_.push_back(static_cast<std::int32_t>(bin_count_++));
            } else {
                label_bins_.push_back(by == LabelBins::samples ? sample : adapter);
            }
            label_scales_.push_back(scales_of_samples[static_cast<std::size_t>(sample)]);
            if (of.weights.empty()) continue;
            label_weights_.push_back(of.weights[static_cast<std::size_t>(row)]);
            label_scales_.back() *= label_weights_.back();
        }
    }
    if (!chunks_.empty()) chunks_.back().row_count = tokens() - chunks_.back().first_row;
    upload(tables_[Table::rows], label_rows_);
    upload(tables_[Table::targets], label_targets_);
    upload(tables_[bins], label_bins_);
    upload(tables_[scales], label_scales_);
    if (!label_weights_.empty()) upload(tables_[weights], label_weights_);
}

const std::int32_t* MicrobatchTables::end_ids() const {
    return tables_[Table::rows] + label_rows_.size();
}

void MicrobatchTables::set_ends(std::vector<std::int32_t> rows_of_ends) {
    ends_ = std::move(rows_of_ends);
    LORATRAIN_CHECK(std::ssize(label_rows_) + std::ssize(ends_) <= tokens(), ends_.size(),
                    " ends beside ", label_rows_.size(), " labels of ", tokens(), " rows");
    upload(tables_[Table::rows] + label_rows_.size(), ends_);
}

void MicrobatchTables::scale_labels(std::span<const float> scales_of_bins) {
    for (std::size_t i = 0; i < label_bins_.size(); ++i) {
        label_scales_[i] = scales_of_bins[static_cast<std::size_t>(label_bins_[i])];
        if (!label_weights_.empty()) label_scales_[i] *= label_weights_[i];
    }
    upload(tables_[scales], label_scales_);
}

void MicrobatchTables::upload(std::int32_t* table, std::span<const std::int32_t> values) {
    backend_.upload(table, values.data(), values.size() * sizeof(std::int32_t));
}

void MicrobatchTables::upload(std::int32_t* table, std::span<const float> values) {
    backend_.upload(table, values.data(), values.size() * sizeof(float));
}

}  // namespace loratrain
