#include <algorithm>
#include <atomic>

#include "kernels/launch.cuh"
#include "lora_expand_tile.cuh"

namespace loratrain::kernels {

namespace {

using namespace expand;

/// One tile of rows and 256 columns; each warp has 32 columns. What a step adds to and its S are
/// under way while the step before computes.
template <bool with_dropout>
__global__ void __launch_bounds__(threads, blocks_of_processor)
    expand_kernel(const __grid_constant__ LoraExpandParams p, BlockSpan span) {
    extern __shared__ uint4 memory[];
    let_next_kernel_start();
    wait_for_kernel_before();
    const LoraTile tile = p.tables.tiles[blockIdx.x];
    const bool used = tile.segment >= 0;
    if (!used && p.accumulate) return;
    const Staging staging(memory, span.count, span.buffers,
                          with_dropout && used ? p.tables.target_count : 0);
    const int block_count = used ? find_span(p, tile, span, staging.rank_blocks) : 0;
    if (span.first > 0 && block_count == 0) return;
    const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.y) * block_columns;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const Lane lane{static_cast<int>(threadIdx.x) % 32 / 4, static_cast<int>(threadIdx.x) % 4, warp,
                    first_column + warp * chunk_columns};
    const LaneColumns columns(p.y, lane);
    // Of a step that adds to nothing, and of what is not whole, nothing is loaded.
    const int load_end = p.accumulate && columns.count == wide ? tile.end : 0;
    Before next;
    if (!with_dropout) load_before(columns, tile.begin + lane.g, load_end, next);
    if (used) {
        stage_rows(staging.rank_blocks, block_count, tile.begin, tile.end, staging.s_of(0));
        stage_targets<with_dropout>(p, tile, span, first_column, lane, staging);
    }
    const bool stages_dropout = with_dropout && warp < staging.dropout_targets;
    pass::RowId id{};
    if (stages_dropout) {
        stage_dropout_rows(staging, 0, warp,
                           p.tables.slots[warp * p.tables.slot_count + tile.slot].dropout_key,
                           pass::load_row_id(p.tables, tile.begin, tile.end));
        id = pass::load_row_id(p.tables, tile.begin + step_rows, tile.end);
    }
    int row_buffer = 0;
    int buffer = 0;
    for (int row = tile.begin; row < tile.end; row += step_rows) {
        const int next_row = row + step_rows;
        const bool stages_more = used && next_row < tile.end;
        if (with_dropout) load_before(columns, row + lane.g, load_end, next);
        Before before;
#pragma unroll
        for (int i = 0; i < step_rows / 8; ++i) before[i] = next[i];
        const int next_buffer = span.buffers == 1 ? 0 : 1 - buffer;
        if (used) {
            wait_for_pieces<0>();
            __syncthreads();
        }
        if (stages_more && next_buffer != buffer) {
            stage_rows(staging.rank_blocks, block_count, next_row, tile.end,
                       staging.s_of(next_buffer));
        }
        if (stages_dropout && stages_more) {
            stage_dropout_rows(staging, 1 - row_buffer, warp, staging.targets[warp].key, id);
            id = pass::load_row_id(p.tables, next_row + step_rows, tile.end);
        }
        if (!with_dropout) load_before(columns, next_row + lane.g, load_end, next);
        Sums totals = {};
        if constexpr (with_dropout) {
            add_targets(lane, staging, staging.s_of(buffer), row_buffer, totals);
        } else {
            add_product(staging.factors, staging.s_of(buffer), block_count, lane, totals);
        }
        if (stages_more && next_buffer == buffer) {
            __syncthreads();
            stage_rows(staging.rank_blocks, block_count, next_row, tile.end, staging.s_of(buffer));
        }
        write_rows(columns, p.accumulate, row + lane.g, tile.end, before, totals);
        buffer = next_buffer;
        row_buffer = 1 - row_buffer;
    }
}

/// Rows of a tile with dropout, whose blocks compute more than they load: as many as take the least
/// time, counted in rows, of which staging is worth some.
std::int32_t dropout_rows(const LoraRowCuts& cuts, int column_blocks, int processors) {
    constexpr std::int64_t staging_rows = 64;
    const std::int64_t at_once = std::int64_t{processors} * blocks_of_processor;
    std::int32_t best = 0;
    std::int64_t least = 0;
    for (std::int32_t rows = 128; rows <= most_tile_rows; rows *= 2) {
        const std::int64_t blocks = count_tiles(cuts, rows) * column_blocks;
        const std::int64_t time = (blocks + at_once - 1) / at_once * (rows + staging_rows);
        if (best == 0 || time < least) {
            best = rows;
            least = time;
        }
    }
    return best;
}

/// Rank blocks of a launch: as many as fit beside the rows of all targets.
int most_blocks_within(int shared_limit) {
    const int left = shared_limit - Staging::bytes(0, 0, max_lora_targets);
    return std::min(most_blocks, left / Staging::bytes(1, 1, 0));
}

/// Two where that leaves as many blocks to a multiprocessor as one does: two or one.
int buffers_of(int blocks, int targets, int shared_limit) {
    constexpr int reserved = 1024;  // of each block
    const int half = (shared_limit + reserved) / 2 - reserved;
    const int one = Staging::bytes(blocks, 1, targets);
    return Staging::bytes(blocks, 2, targets) <= (one <= half ? half : shared_limit) ? 2 : 1;
}

template <bool with_dropout>
cudaError_t launch(cudaStream_t stream, LoraExpandParams p) {
    static_assert(Staging::bytes(most_blocks, 2, max_lora_targets) <= most_shared_bytes);
    const auto kernel = expand_kernel<with_dropout>;
    const int most = most_blocks_within(p.shared_limit);
    static std::atomic<int> allowed{0};
    if (p.shared_limit > allowed) {
        const cudaError_t raised = cudaFuncSetAttribute(
            kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, p.shared_limit);
        if (raised != cudaSuccess) return raised;
        allowed = p.shared_limit;
    }
    const dim3 grid(static_cast<unsigned>(p.tables.tile_count),
                    static_cast<unsigned>((p.y.cols + block_columns - 1) / block_columns));
    const int all_blocks = p.tables.largest_rank_sum / block_ranks;
    BlockSpan span{};
    do {
        span.count = std::min(most, all_blocks - span.first);
        const int targets = with_dropout ? p.tables.target_count : 0;
        span.buffers = buffers_of(span.count, targets, p.shared_limit);
        const int bytes = Staging::bytes(span.count, span.buffers, targets);
        const cudaError_t status = launch_early(stream, kernel, grid, threads, bytes, p, span);
        if (status != cudaSuccess) return status;
        p.accumulate = true;
        span.first += span.count;
    } while (span.first < all_blocks);
    return cudaSuccess;
}

}  // namespace

std::int32_t lora_tensor_expand_rows(const LoraRowCuts& cuts, std::int64_t columns, bool dropout,
                                     int processors) {
    const auto column_blocks = static_cast<int>((columns + block_columns - 1) / block_columns);
    if (dropout) return dropout_rows(cuts, column_blocks, processors);
    return std::min(most_tile_rows, lora_pass_tile_rows(cuts, column_blocks, processors));
}

cudaError_t lora_expand_tensor(cudaStream_t stream, const LoraExpandParams& p) {
    if (p.tables.tile_count == 0 || p.y.cols == 0) return cudaSuccess;
    return p.of_a && p.tables.dropout ? launch<true>(stream, p) : launch<false>(stream, p);
}

}  // namespace loratrain::kernels
