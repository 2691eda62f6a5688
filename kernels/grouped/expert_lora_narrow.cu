#include "expert_lora_tile.cuh"

/// s = scale x Mᵀ: a block has a tile of 128 rows of one expert and 64 columns of s at a time, a
/// warp 16 of the rows. It goes through the wide columns 64 at a time; rows and factors
/// (pack_expert_factors) are copied two steps ahead. A warp leaves out columns that none of its
/// rows has.

namespace loratrain::kernels {

namespace grouped {

namespace {

constexpr int narrow_stages = 3;
constexpr int narrow_rows_bytes = expert_tile_rows * LoraTile::row_bytes;
constexpr int narrow_stage_bytes = narrow_rows_bytes + lora_columns * LoraTile::row_bytes;
constexpr int narrow_shared = narrow_stages * narrow_stage_bytes;
static_assert(expert_tile_rows == lora_warps * 16);

/// The tokens that have a column of s, and its scale.
struct NarrowColumn {
    int begin;
    int end;
    float scale;
};

/// A row's token, and columns of s among which are all that it has.
struct NarrowRow {
    int token;
    int begin;
    int end;
};

struct NarrowTables {
    NarrowColumn columns[lora_columns];
    NarrowRow rows[expert_tile_rows];
};
static_assert(sizeof(NarrowTables) + narrow_shared <= least_shared_bytes);

template <bool of_b>
class NarrowBlock {
  public:
    __device__ NarrowBlock(const ExpertLoraArguments& p, const void* factors, NarrowTables& tables,
                           std::uint32_t shared, const ExpertTile& tile)
        : p_(p),
          factors_(factors),
          tables_(tables),
          shared_(shared),
          tile_(tile),
          thread_(static_cast<int>(threadIdx.x)),
          steps_(static_cast<int>((p.slices.cols + lora_columns - 1) / lora_columns)) {}

    __device__ void run() {
        find_sources();
        find_rows();
        const LoraColumns all = columns_of(p_.slices, p_.rows.routes.rows, tile_);
        for (int first = all.begin / wide * wide; first < all.end; first += lora_columns) {
            find_columns(first);
            __syncthreads();
            multiply(first, min((all.end - first + 15) / 16 * 16, lora_columns));
            __syncthreads();
        }
    }

  private:
    static constexpr int rows_at_once = lora_threads / LoraTile::chunks;
    static constexpr int rows_of_thread = expert_tile_rows / rows_at_once;

    __device__ int lane() const { return thread_ % 32; }
    __device__ int warp() const { return thread_ / 32; }

    /// Where the rows that this thread copies begin, in pieces of 16 bytes. Behind the tile's last
    /// row that row is copied again; nobody stores its sums.
    __device__ void find_sources() {
        const auto row_pieces = static_cast<std::uint32_t>(p_.wide.x.ld / wide);
#pragma unroll
        for (int i = 0; i < rows_of_thread; ++i) {
            const int place =
                min(tile_.first + thread_ / LoraTile::chunks + i * rows_at_once, tile_.end - 1);
            const int row = p_.wide.gathered ? p_.rows.routes.rows[place] : place;
            sources_[i] = row_pieces * row + thread_ % LoraTile::chunks;
        }
    }

    __device__ void find_rows() {
        if (thread_ >= expert_tile_rows) return;
        NarrowRow row{-1, INT32_MAX, 0};
        const int place = tile_.first + thread_;
        if (place < tile_.end) {
            row.token = p_.rows.routes.rows[place];
            for (int i = 0; i < p_.slices.count; ++i) {
                const ExpertLoraSlice& slice = p_.slices.slices[i];
                if (row.token < slice.begin || row.token >= slice.end) continue;
                row.begin = min(row.begin, slice.column);
                row.end = max(row.end, slice.column + slice.rank);
            }
        }
        tables_.rows[thread_] = row;
    }

    __device__ void find_columns(int first) {
        if (thread_ >= lora_columns) return;
        const int column = first + thread_;
        const int first_row = p_.rows.routes.rows[tile_.first];
        const int last_row = p_.rows.routes.rows[tile_.end - 1];
        NarrowColumn found{};
        for (int i = 0; i < p_.slices.count; ++i) {
            const ExpertLoraSlice& slice = p_.slices.slices[i];
            const int r = column - slice.column;
            if (slice.begin > last_row || slice.end <= first_row || r < 0 || r >= slice.rank) {
                continue;
            }
            found = {slice.begin, slice.end, slice.scale};
        }
        tables_.columns[thread_] = found;
    }

    __device__ std::uint32_t rows_of(int step) const {
        return shared_ + step % narrow_stages * narrow_stage_bytes;
    }
    __device__ std::uint32_t factors_of(int step) const {
        return rows_of(step) + narrow_rows_bytes;
    }

    /// Columns of s from `first` on, `count` of them, which is a multiple of 16.
    __device__ void copy(int step, int first, int count) const {
        if (step < steps_) {
            copy_rows(step);
            copy_factors(step, first, count);
        }
        commit_pieces();
    }

    __device__ void copy_rows(int step) const {
        const int piece = thread_ % LoraTile::chunks;
        const int column = step * lora_columns;
        const int bytes = column + piece * wide < p_.slices.cols ? 16 : 0;
        const std::uint32_t to =
            rows_of(step) + LoraTile::offset(thread_ / LoraTile::chunks, piece);
        const Bf16* from = static_cast<const Bf16*>(p_.wide.x.data) + column;
#pragma unroll
        for (int i = 0; i < rows_of_thread; ++i) {
            if (i * rows_at_once >= tile_.end - tile_.first) break;
            copy_16_async(to + i * rows_at_once * LoraTile::row_bytes,
                          from + std::uint64_t{sources_[i]} * wide, bytes);
        }
    }

    /// Of A rows are columns of s, of B wide columns.
    __device__ void copy_factors(int step, int first, int count) const {
        const int piece = thread_ % LoraTile::chunks * wide;
        const std::int64_t outer = of_b ? p_.slices.cols : p_.s.cols;
        const std::int64_t inner = of_b ? p_.s.cols : p_.slices.cols;
        const int first_line = of_b ? step * lora_columns : first;
        const int column = (of_b ? first : step * lora_columns) + piece;
        const int lines = of_b ? lora_columns : count;
        if (of_b && piece >= count) return;
        const int line = thread_ / LoraTile::chunks;
        const Bf16* from = static_cast<const Bf16*>(factors_) +
                           (tile_.expert * outer + first_line + line) * inner + column;
        const std::uint32_t to = factors_of(step) + LoraTile::offset(line, piece / wide);
        const int inside = column < inner ? static_cast<int>(outer) - first_line : 0;
#pragma unroll
        for (int i = 0; i < lora_columns; i += rows_at_once) {
            if (line + i >= lines) break;
            const bool is_line = line + i < inside;
            copy_16_async(to + i * LoraTile::row_bytes, is_line ? from + i * inner : factors_,
                          is_line ? 16 : 0);
        }
    }

    /// Whether a row of the warp has some of 8 columns of s, for each 8 from `first` on.
    __device__ unsigned used_columns(int first) const {
        const NarrowRow& row = tables_.rows[warp() * 16 + lane() % 16];
        const int begin = __reduce_min_sync(0xffffffffU, row.begin);
        const int end = __reduce_max_sync(0xffffffffU, row.end);
        unsigned used = 0;
        for (int j = 0; j < LoraTile::chunks; ++j) {
            const int column = first + j * 8;
            if (column < end && column + 8 > begin) used |= 1U << j;
        }
        return used;
    }

    using Sums = float[LoraTile::chunks][4];

    __device__ void add_step(Sums& sums, int step, unsigned used) const {
        const std::uint32_t rows = rows_of(step);
        const std::uint32_t factors = factors_of(step);
#pragma unroll
        for (int k = 0; k < lora_columns / 16; ++k) {
            std::uint32_t a[4];
            load_fragments(a,
                           rows + LoraTile::offset(warp() * 16 + lane() % 16, 2 * k + lane() / 16));
#pragma unroll
            for (int j = 0; j < LoraTile::chunks / 2; ++j) {
                if ((used >> (2 * j) & 3U) == 0) continue;
                std::uint32_t b[4];
                if constexpr (of_b) {
                    load_fragments_transposed(
                        b, factors + LoraTile::offset(k * 16 + lane() % 16, 2 * j + lane() / 16));
                } else {
                    load_fragments(b,
                                   factors + LoraTile::offset(j * 16 + lane() / 16 * 8 + lane() % 8,
                                                              2 * k + lane() / 8 % 2));
                }
                multiply_add(sums[2 * j], a[0], a[1], a[2], a[3], b[0], b[1]);
                multiply_add(sums[2 * j + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
            }
        }
    }

    __device__ void store_sums(const Sums& sums, int first) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int own = warp() * 16 + half * 8 + lane() / 4;
            const int token = tables_.rows[own].token;
            Bf16* to = static_cast<Bf16*>(p_.s.data) + (tile_.first + own) * p_.s.ld;
#pragma unroll
            for (int j = 0; j < LoraTile::chunks; ++j) {
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const int own_column = j * 8 + lane() % 4 * 2 + i;
                    const NarrowColumn& column = tables_.columns[own_column];
                    if (token < column.begin || token >= column.end) continue;
                    const float sum = sums[j][2 * half + i];
                    to[first + own_column] = from_float<Bf16>(column.scale * sum);
                }
            }
        }
    }

    __device__ void multiply(int first, int count) const {
        const unsigned used = used_columns(first);
        Sums sums = {};
        copy(0, first, count);
        copy(1, first, count);
        for (int step = 0; step < steps_; ++step) {
            wait_for_pieces<1>();
            __syncthreads();
            copy(step + 2, first, count);
            add_step(sums, step, used);
        }
        wait_for_pieces<0>();
        store_sums(sums, first);
    }

    const ExpertLoraArguments& p_;
    const void* factors_;
    NarrowTables& tables_;
    std::uint32_t shared_;
    ExpertTile tile_;
    int thread_;
    int steps_;
    std::uint32_t sources_[rows_of_thread];
};

template <bool of_b>
__global__ void __launch_bounds__(lora_threads, 3)
    narrow_kernel(const __grid_constant__ ExpertLoraArguments p, const void* factors) {
    extern __shared__ __align__(128) char memory[];
    __shared__ NarrowTables tables;
    wait_for_kernel_before();
    const int tile = static_cast<int>(blockIdx.x);
    if (tile >= *p.rows.tables.counters) return;
    NarrowBlock<of_b>(p, factors, tables, shared_address(memory), p.rows.tables.tiles[tile]).run();
}

template <bool of_b>
cudaError_t launch_narrow(cudaStream_t stream, const ExpertLoraArguments& p, const void* factors) {
    const std::int64_t copies = p.rows.routes.tokens * p.rows.routes.per_token;
    const auto blocks = static_cast<unsigned>(most_expert_tiles(copies, p.rows.routes.experts));
    return launch_with_shared<narrow_kernel<of_b>, narrow_shared>(stream, p.rows.shared_limit,
                                                                  blocks, lora_threads, p, factors);
}

}  // namespace

}  // namespace grouped

cudaError_t narrow_experts_tensor(cudaStream_t stream, const ExpertRows& rows,
                                  const ExpertWide& wide, const Matrix& s,
                                  const ExpertLoraSlices& slices, void* factors) {
    if (!grouped::lora_takes(wide, s, slices)) return cudaErrorInvalidValue;
    if (s.rows == 0 || slices.count == 0) return cudaSuccess;
    const cudaError_t error =
        pack_expert_factors(stream, rows, slices, slices.cols, s.cols, factors, false);
    if (error != cudaSuccess) return error;
    const grouped::ExpertLoraArguments arguments{rows, wide, s, slices};
    return slices.of_b ? grouped::launch_narrow<true>(stream, arguments, factors)
                       : grouped::launch_narrow<false>(stream, arguments, factors);
}

}  // namespace loratrain::kernels
