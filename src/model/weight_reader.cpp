#include "model/weight_reader.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace loratrain {

namespace {

constexpr std::int64_t block_bytes = 16LL << 20U;

/// Of rows of so many bytes, those that are read at once.
std::int64_t rows_of_block(std::int64_t row_bytes, std::int64_t rows) {
    return std::clamp<std::int64_t>(block_bytes / row_bytes, 1, rows);
}

}  // namespace

char* WeightReader::host_block(std::size_t bytes) {
    if (host_.size() < bytes) host_.resize(bytes);
    return host_.data();
}

void WeightReader::release() {
    host_ = {};
    block_ = Buffer();
}

void WeightReader::load_rows(const std::string& name, const TensorPart& part,
                             const TensorView& target) {
    const bool whole = target.rows == part.whole.rows && target.cols == part.whole.cols;
    const auto random = source_.random_matrix(name);
    if (whole && random) {
        backend_.fill_random({target, *random});
        return;
    }
    const std::int64_t columns = part.whole.cols;
    const std::int64_t row_bytes = columns * static_cast<std::int64_t>(target.element_size());
    const std::int64_t at_once = rows_of_block(row_bytes, target.rows);
    const auto bytes = static_cast<std::size_t>(at_once * row_bytes);
    char* const host = host_block(bytes);
    if (block_.bytes() < bytes) {
        block_ = Buffer();
        block_ = backend_.allocate(bytes, "loading block");
    }
    part.rows.for_each_piece(
        at_once, [&](std::int64_t first, std::int64_t row, std::int64_t count) {
            source_.read_rows(name, first, matrix(host, target.dtype, count, columns));
            backend_.upload(block_.data(), host, static_cast<std::size_t>(count * row_bytes));
            backend_.copy(
                {target.row_range(row, count), matrix(block_.data(), target.dtype, count, columns)
                                                   .col_range(part.first_col, target.cols)});
        });
    backend_.synchronize();
}

void WeightReader::load_linear(const std::string& name, const TensorPart& part,
                               const WeightView& target) {
    if (traits_of(target.format).dense) return load_rows(name, part, target.dense());
    const WeightTraits& traits = traits_of(target.format);
    const CodeCut codes{code_bytes(traits, part.whole.cols), code_bytes(traits, part.first_col),
                        code_bytes(traits, target.cols)};
    const auto first_scale = static_cast<std::size_t>(part.first_col / traits.block);
    const CodeCut scales{scale_bytes(traits, part.whole.cols), first_scale * sizeof(float),
                         scale_bytes(traits, target.cols)};
    const std::int64_t at_once = rows_of_block(static_cast<std::int64_t>(codes.whole), target.rows);
    const auto most = static_cast<std::size_t>(at_once);
    char* const host_codes = host_block(most * codes.whole);
    std::vector<float> host_scales(most * scales.whole / sizeof(float));
    part.rows.for_each_piece(
        at_once, [&](std::int64_t first, std::int64_t row, std::int64_t count) {
            source_.read_codes(name, first, count, host_codes, host_scales.data());
            const WeightView rows = target.row_range(row, count);
            upload_cut(rows.codes, host_codes, count, codes);
            upload_cut(rows.scales, reinterpret_cast<char*>(host_scales.data()), count, scales);
        });
    backend_.synchronize();
}

void WeightReader::upload_cut(void* target, char* rows, std::int64_t count, const CodeCut& cut) {
    const auto rows_in_all = static_cast<std::size_t>(count);
    for (std::size_t row = 0; cut.kept < cut.whole && row < rows_in_all; ++row) {
        std::memmove(rows + row * cut.kept, rows + row * cut.whole + cut.first, cut.kept);
    }
    backend_.upload(target, rows, rows_in_all * cut.kept);
}

void WeightReader::read_linear(const std::string& name, const TensorPart& part,
                               const WeightView& target) {
    const WeightTraits& traits = traits_of(target.format);
    const auto row_bytes = static_cast<std::int64_t>(code_bytes(traits, target.cols));
    const std::int64_t at_once = rows_of_block(row_bytes, target.rows);
    part.rows.for_each_piece(at_once, [&](std::int64_t first, std::int64_t row,
                                          std::int64_t count) {
        const WeightView rows = target.row_range(row, count);
        if (traits.dense) {
            source_.read_rows(name, first, rows.dense());
        } else {
            source_.read_codes(name, first, count, rows.codes, static_cast<float*>(rows.scales));
        }
    });
}

}  // namespace loratrain
