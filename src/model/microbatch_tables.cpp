#include "model/microbatch_tables.h"

#include <algorithm>

#include "base/error.h"

namespace loratrain {

namespace {

constexpr std::int32_t pad_multiple = 16;
constexpr std::int32_t free_columns = 64;  // one step of a GEMM kernel along its inner dimension

enum Table : std::uint8_t { ids, positions, sample_ids, offsets, rows, targets, bins, scales };

std::int32_t round_up(std::int32_t value) {
    return (value + pad_multiple - 1) / pad_multiple * pad_multiple;
}

}  // namespace

MicrobatchTables::MicrobatchTables(const Plan& plan, Backend& backend, void* memory)
    : plan_(plan), backend_(backend), tables_{} {
    const std::uint64_t bytes =
        aligned(static_cast<std::uint64_t>(plan.microbatch_tokens + 1) * sizeof(std::int32_t));
    for (std::size_t i = 0; i < std::size(tables_); ++i) {
        tables_[i] = reinterpret_cast<std::int32_t*>(static_cast<char*>(memory) + i * bytes);
    }
}

PackedRows MicrobatchTables::packed_rows() const {
    PackedRows packed;
    packed.tokens = tokens_;
    packed.samples = samples();
    packed.offsets = tables_[offsets];
    packed.host_offsets = offsets_.data();
    packed.positions = tables_[positions];
    packed.sample_ids = tables_[sample_ids];
    return packed;
}

void MicrobatchTables::set(const Job& job, const Microbatch& microbatch, const MicrobatchRows& rows,
                           const LossRule& rule) {
    tokens_ = static_cast<std::int64_t>(rows.positions.size());
    LORATRAIN_CHECK(tokens_ <= plan_.microbatch_tokens, tokens_, " tokens in a microbatch of ",
                    plan_.microbatch_tokens);
    evaluation_ = rule.evaluation;
    offsets_.assign(rows.offsets.begin(), rows.offsets.end());
    upload(tables_[ids], rows.token_ids);
    upload(tables_[positions], rows.positions);
    upload(tables_[sample_ids], rows.sample_ids);
    upload(tables_[offsets], rows.offsets);
    set_segments(job, microbatch);
    set_labels(microbatch, rows, rule);
}

void MicrobatchTables::set_columns(const Job& job, const Microbatch& microbatch) {
    pads_.clear();
    columns_.clear();
    std::int32_t column = 0;
    const auto add = [&](AdapterId adapter) {
        pads_.push_back({adapter, column});
        column += job.adapter(adapter).r;
    };
    if (plan_.backend == BackendKind::cuda) {
        for (std::size_t a = 0; a < job.adapters.size() && column <= free_columns; ++a) {
            add(static_cast<AdapterId>(a));
        }
        if (round_up(column) <= std::min(plan_.pad_columns, free_columns)) {
            augmented_ = true;
            width_ = round_up(column);
            for (const Segment& segment : microbatch.segments) {
                columns_.push_back(pads_[index(segment.adapter)].column);
            }
            return;
        }
        pads_.clear();
        column = 0;
    }
    std::int32_t largest_rank = 0;
    for (const Segment& segment : microbatch.segments) {
        columns_.push_back(column);
        add(segment.adapter);
        largest_rank = std::max(largest_rank, job.adapter(segment.adapter).r);
    }
    augmented_ = round_up(column) <= plan_.pad_columns;
    width_ = round_up(augmented_ ? column : largest_rank);
    if (!augmented_) std::fill(columns_.begin(), columns_.end(), 0);
}

void MicrobatchTables::set_segments(const Job& job, const Microbatch& microbatch) {
    segments_.clear();
    adapters_.clear();
    has_dropout_ = false;
    set_columns(job, microbatch);
    std::int64_t row = 0;
    for (const Segment& segment : microbatch.segments) {
        const std::int64_t count = segment.tokens();
        segments_.push_back({static_cast<std::int32_t>(segments_.size()), row, row + count,
                             static_cast<std::uint32_t>(segment.step)});
        adapters_.push_back(segment.adapter);
        const bool dropout = job.adapter(segment.adapter).lora_dropout > 0;
        has_dropout_ = has_dropout_ || (dropout && !evaluation_);
        row += count;
    }
    LORATRAIN_CHECK(row == tokens_, row, " rows in segments, ", tokens_, " in the microbatch");
    LORATRAIN_CHECK(width_ <= plan_.saved_columns, width_, " LoRA columns, planned ",
                    plan_.saved_columns);
}

void MicrobatchTables::set_labels(const Microbatch& microbatch, const MicrobatchRows& rows,
                                  const LossRule& rule) {
    chunks_.clear();
    label_rows_.clear();
    label_targets_.clear();
    label_bins_.clear();
    label_scales_.clear();
    if (rows.targets.empty()) return;
    const std::int64_t chunk_rows = logits_chunk(plan_).rows;
    std::int32_t sample = 0;
    for (std::size_t s = 0; s < segments_.size(); ++s) {
        const auto adapter = static_cast<std::int32_t>(number(microbatch.segments[s].adapter));
        for (std::int64_t row = segments_[s].begin; row < segments_[s].end; ++row) {
            while (row >= offsets_[static_cast<std::size_t>(sample) + 1]) ++sample;
            const std::int32_t target = rows.targets[static_cast<std::size_t>(row)];
            if (target < 0) continue;
            if (chunks_.empty() || chunks_.back().labels == chunk_rows) {
                const std::int64_t first = chunks_.empty() ? 0 : row;
                if (!chunks_.empty()) chunks_.back().row_count = first - chunks_.back().first_row;
                const std::size_t at = label_rows_.size();
                chunks_.push_back({first, 0, 0, tables_[Table::rows] + at,
                                   tables_[Table::targets] + at, tables_[bins] + at,
                                   reinterpret_cast<const float*>(tables_[scales]) + at});
            }
            ++chunks_.back().labels;
            label_rows_.push_back(static_cast<std::int32_t>(row - chunks_.back().first_row));
            label_targets_.push_back(target);
            label_bins_.push_back(rule.evaluation ? sample : adapter);
            label_scales_.push_back(rule.evaluation ? 0.0F : rule.scales[s]);
        }
    }
    if (!chunks_.empty()) chunks_.back().row_count = tokens_ - chunks_.back().first_row;
    upload(tables_[Table::rows], label_rows_);
    upload(tables_[Table::targets], label_targets_);
    upload(tables_[bins], label_bins_);
    backend_.upload(tables_[scales], label_scales_.data(), label_scales_.size() * sizeof(float));
}

void MicrobatchTables::upload(std::int32_t* table, std::span<const std::int32_t> values) {
    backend_.upload(table, values.data(), values.size() * sizeof(std::int32_t));
}

}  // namespace loratrain
