#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/sizes.h"

namespace loratrain::kernels {

/// How LoRA kernels on tensor cores divide their work, and their bytes of workspace. Numbers alone,
/// without CUDA, for the launchers (lora.h) and for src/plan/memory. Plain kernels need no
/// workspace.

/// The rows of a launch, and the parts into which segments cut them. No tile crosses the end of a
/// part.
struct LoraRowCuts {
    std::int64_t rows = 0;
    const std::int64_t* parts = nullptr;  ///< [count], rows of each part
    int count = 0;
};

/// Number of tiles of at most `rows` rows.
constexpr std::int64_t count_tiles(const LoraRowCuts& cuts, std::int64_t rows) {
    std::int64_t tiles = 0;
    for (int i = 0; i < cuts.count; ++i) tiles += pieces(cuts.parts[i], rows);
    return tiles;
}

/// lora_shrink(): copies of A of all slots in bf16, [copy_rows, lora_copy_ld(K)]. The rows for a
/// slot are its ranks, rounded up to lora_copy_row_multiple.
constexpr std::int32_t lora_copy_row_multiple = 8;
constexpr std::int32_t lora_copy_column_multiple = 64;
constexpr std::int64_t lora_copy_ld(std::int64_t k) {
    return pieces(k, lora_copy_column_multiple) * std::int64_t{lora_copy_column_multiple};
}
constexpr std::int64_t lora_copy_bytes(std::int64_t copy_rows, std::int64_t k) {
    return copy_rows * lora_copy_ld(k) * 2;
}

/// The passes for the gradients of A and B: features of a thread block; multiples for the rows of a
/// tile and for the ranks of a slot in one target; blocks that run at once on a multiprocessor.
constexpr std::int32_t lora_pass_columns = 256;
constexpr std::int32_t lora_pass_row_multiple = 128;
constexpr int lora_pass_blocks_of_processor = 2;
constexpr std::int32_t lora_pass_rank_multiple = 16;

/// The fewest rows per tile with which all blocks of a pass run at once. If there are too many
/// parts for that: the rows per tile as if all rows were one part.
constexpr std::int32_t lora_pass_tile_rows(const LoraRowCuts& cuts, int column_blocks,
                                           int processors) {
    constexpr int multiple = lora_pass_row_multiple;
    const int at_once = processors * lora_pass_blocks_of_processor;
    const int columns = std::max(1, column_blocks);
    for (std::int64_t rows = multiple; rows < cuts.rows; rows += multiple) {
        if (count_tiles(cuts, rows) * columns <= at_once) return static_cast<std::int32_t>(rows);
    }
    const int row_tiles = std::max(1, at_once / columns);
    return std::max(1, pieces(pieces(cuts.rows, row_tiles), multiple)) * multiple;
}

/// lora_pass_tile_rows() for sums over rows. Twice as many rows if there are few, since the sums of
/// tiles are then large beside X, and if nearly every multiprocessor still has a block.
constexpr std::int32_t lora_gradient_tile_rows(const LoraRowCuts& cuts, int column_blocks,
                                               int processors) {
    constexpr std::int32_t few_rows = 512;
    const std::int32_t rows = lora_pass_tile_rows(cuts, column_blocks, processors);
    const auto blocks_of = [&](std::int64_t of_tile) {
        return count_tiles(cuts, of_tile) * std::max(1, column_blocks);
    };
    const bool at_once =
        blocks_of(rows) <= std::int64_t{processors} * lora_pass_blocks_of_processor;
    const bool fewer_fill = blocks_of(2 * rows) * 10 >= std::int64_t{processors} * 9;
    return rows < few_rows && at_once && fewer_fill ? 2 * rows : rows;
}

/// lora_grad_a(): for each tile a partial gradient [ranks, K] in fp32. `ranks`: sum over the
/// targets of a slot's ranks, each rounded up to 16, for the slot with the most.
constexpr std::int64_t lora_grad_a_bytes(std::int64_t tiles, std::int64_t ranks, std::int64_t k) {
    return tiles * ranks * k * static_cast<std::int64_t>(sizeof(float));
}

/// The shape of dY of linears whose outputs lie side by side.
struct LoraOutputs {
    std::int64_t rows = 0;
    const std::int64_t* ends = nullptr;  ///< [count], one past the last column of each linear
    int count = 0;
    constexpr std::int64_t columns() const { return count == 0 ? 0 : ends[count - 1]; }
    /// Number of parts of at most `size` columns in all linears.
    constexpr int parts(std::int64_t size) const {
        int sum = 0;
        for (int i = 0; i < count; ++i) sum += pieces(ends[i] - (i == 0 ? 0 : ends[i - 1]), size);
        return sum;
    }
};

/// How lora_backward() divides dY.
struct LoraBackwardCut {
    std::int32_t tile_rows;
    std::int32_t part_columns;  ///< columns whose dS one thread block adds up
};
constexpr std::int32_t lora_part_columns = 1024;
/// Rows of tiles and columns of parts if dY has at most lora_small_pass elements and
/// lora_small_columns columns.
constexpr std::int32_t lora_small_part_columns = 512;
constexpr std::int64_t lora_small_pass = std::int64_t{3} << 24;
constexpr std::int64_t lora_small_columns = 8192;
/// Rows of a tile if no slot has more than 16 ranks and dY has at least lora_narrow_pass elements;
/// then the columns of a part are a multiple of lora_line_columns.
constexpr std::int32_t lora_narrow_rows = 256;
constexpr std::int64_t lora_narrow_pass = std::int64_t{10} << 20;
constexpr std::int32_t lora_line_columns = 64;

constexpr bool lora_backward_is_narrow(const LoraOutputs& dy, std::int32_t largest_rank) {
    return largest_rank <= lora_pass_rank_multiple && dy.rows * dy.columns() >= lora_narrow_pass;
}

/// The division of dY:
///   at most 16 ranks        tiles of 256 rows, and the shortest parts with which all blocks run at
///   once small dY                tiles and parts of equal length, so that blocks for dS and for dB
///   have equal
///                           shares of dY, about one for each multiprocessor
///   others                  tiles of lora_gradient_tile_rows(), and parts of 1024 columns
constexpr LoraBackwardCut lora_backward_cut(const LoraOutputs& dy, std::int32_t largest_rank,
                                            const LoraRowCuts& cuts, int processors) {
    if (lora_backward_is_narrow(dy, largest_rank)) {
        const std::int64_t tiles = count_tiles(cuts, lora_narrow_rows);
        const int at_once = processors * lora_pass_blocks_of_processor;
        std::int32_t columns = lora_line_columns;
        while (columns < dy.columns() && dy.parts(columns) * tiles > at_once) {
            columns += lora_line_columns;
        }
        return {lora_narrow_rows, columns};
    }
    if (dy.columns() <= lora_small_columns && dy.rows * dy.columns() <= lora_small_pass) {
        return {lora_small_part_columns, lora_small_part_columns};
    }
    return {lora_gradient_tile_rows(cuts, dy.parts(lora_pass_columns), processors),
            lora_part_columns};
}

/// lora_backward(): for each tile a partial gradient [ranks, sum of N], and partial dS [parts,
/// ranks, T], in fp32. `ranks`: of the slot with the most, rounded up to 16.
constexpr std::int64_t lora_backward_bytes(std::int64_t tiles, std::int64_t parts,
                                           std::int64_t ranks, std::int64_t columns,
                                           std::int64_t rows) {
    return ranks * (tiles * columns + parts * rows) * static_cast<std::int64_t>(sizeof(float));
}

/// lora_gated_forward(): S of down from blocks of the columns F, [blocks, T, 16] in fp32.
constexpr std::int32_t lora_gated_forward_columns = 512;
constexpr std::int64_t lora_gated_forward_bytes(std::int64_t f, std::int64_t rows) {
    return lora_backward_bytes(0, pieces(f, lora_gated_forward_columns), lora_pass_rank_multiple, f,
                               rows);
}

/// lora_gated_backward(): for each tile the gradients of gate, up and down, and dS of gate and up
/// from blocks of the columns.
constexpr std::int64_t lora_gated_backward_bytes(std::int64_t tiles, std::int64_t f,
                                                 std::int64_t rows) {
    return lora_backward_bytes(tiles, 2 * pieces(f, lora_pass_columns), lora_pass_rank_multiple,
                               3 * f, rows);
}

}  // namespace loratrain::kernels
