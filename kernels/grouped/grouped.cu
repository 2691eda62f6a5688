#include "grouped.h"

#include "grouped_launch.h"
#include "kernels/launch.cuh"

namespace loratrain::kernels {

namespace {

constexpr unsigned table_threads = 1024;
static_assert(table_threads >= most_experts);
constexpr unsigned table_warps = table_threads / 32;

/// Sum over the threads of a block before this one.
__device__ __forceinline__ int sum_before(int value, int* of_warps) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int warp = static_cast<int>(threadIdx.x / 32);
    int sum = value;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
        const int other = __shfl_up_sync(0xffffffffU, sum, offset);
        if (lane >= offset) sum += other;
    }
    if (lane == 31) of_warps[warp] = sum;
    __syncthreads();
    int before = sum - value;
    for (int w = 0; w < warp; ++w) before += of_warps[w];
    return before;
}

/// Of the first block: the tiles, an expert a thread. Of the others: the entries.
__global__ void __launch_bounds__(table_threads) tables_kernel(Routes routes, ExpertTables to) {
    wait_for_kernel_before();
    if (blockIdx.x > 0) {
        const std::int64_t entry =
            static_cast<std::int64_t>(blockIdx.x - 1) * table_threads + threadIdx.x;
        if (entry < routes.tokens * routes.per_token) {
            const std::int32_t place = routes.places[entry];
            if (place >= 0) to.entries[place] = static_cast<std::int32_t>(entry);
        }
        return;
    }
    __shared__ int of_warps[table_warps];
    const int expert = static_cast<int>(threadIdx.x);
    const bool is_expert = expert < routes.experts;
    const int first = is_expert ? routes.offsets[expert] : 0;
    const int end = is_expert ? routes.offsets[expert + 1] : 0;
    const int count = (end - first + expert_tile_rows - 1) / expert_tile_rows;
    const int before = sum_before(count, of_warps);
    for (int i = 0; i < count; ++i) {
        const int at = first + i * expert_tile_rows;
        to.tiles[before + i] = {expert, at, min(end, at + expert_tile_rows), 0};
    }
    if (threadIdx.x + 1 == table_threads) {
        to.counters[0] = before + count;
        to.counters[1] = 0;
    }
}

/// d_weights of an entry: the parts of its row.
struct WeightBody {
    float* d_weights;
    const float* parts;
    const std::int32_t* places;
    int count;
    __device__ void operator()(std::int64_t entry, std::int64_t) const {
        const std::int32_t place = places[entry];
        const float* of_row = parts + std::int64_t{place} * count;
        float sum = 0.0F;
        for (int i = 0; place >= 0 && i < count; ++i) sum += of_row[i];
        d_weights[entry] = sum;
    }
};

bool is_valid(const Matrix& x, std::int64_t rows, std::int64_t cols) {
    return grouped_takes(x) && x.rows == rows && x.cols == cols;
}

bool are_aligned(const Fp8Codes& codes) {
    constexpr std::int64_t piece = 16;
    return aligned_16(codes.codes) && codes.cols % piece == 0 && codes.ld % piece == 0;
}

bool takes_codes(const ExpertProduct& p) {
    const Fp8Codes& rows = p.codes.rows;
    const Fp8Codes& weights = p.codes.weights;
    const std::int64_t sums = p.finish == ExpertFinish::gate ? 2 * p.columns : p.columns;
    return are_aligned(rows) && are_aligned(weights) && rows.cols == p.depth &&
           weights.cols == p.depth && weights.ld == p.depth && weights.rows == p.experts * sums &&
           (p.a_rows != nullptr || rows.rows == p.rows);
}

cudaError_t run(cudaStream_t stream, const ExpertRows& rows, ExpertProduct p) {
    p.experts = rows.routes.experts;
    p.rows = rows.routes.tokens * rows.routes.per_token;
    p.depth = static_cast<std::int32_t>(p.backward ? p.outputs : p.inputs);
    p.tiles = rows.tables.tiles;
    p.tile_count = rows.tables.counters;
    p.drawn = rows.tables.counters + 1;
    if (p.of_codes() ? !takes_codes(p)
                     : !aligned_16(p.w) || p.inputs % wide != 0 || p.outputs % wide != 0) {
        return cudaErrorInvalidValue;
    }
    if (p.bias != nullptr && (p.backward || !aligned_16(p.bias))) return cudaErrorInvalidValue;
    if (p.added.s.data == nullptr) {
        p.added = {};
    } else if (!grouped_takes(p.added.s) || p.added.s.rows != p.rows ||
               p.added.s.cols > AddedColumns::most || !aligned_16(p.added.factors)) {
        return cudaErrorInvalidValue;
    }
    if (p.rows == 0 || p.columns == 0) return cudaSuccess;
    if (p.of_codes()) {
        return runs_expert_product_hopper(rows.shared_limit) ? expert_code_product_hopper(stream, p)
                                                             : cudaErrorNotSupported;
    }
    return runs_expert_product_hopper(rows.shared_limit) ? expert_product_hopper(stream, p)
                                                         : expert_product_tensor(stream, p);
}

std::int64_t copies(const ExpertRows& rows) {
    return rows.routes.tokens * rows.routes.per_token;
}

}  // namespace

bool grouped_takes(const Matrix& x) {
    return x.type == Element::bf16 && all_wide({&x});
}

bool takes_expert_codes(int shared_limit) {
    return runs_expert_product_hopper(shared_limit);
}

cudaError_t make_expert_tables(cudaStream_t stream, const ExpertRows& rows) {
    if (rows.routes.experts > most_experts) return cudaErrorInvalidValue;
    const std::int64_t blocks = 1 + (copies(rows) + table_threads - 1) / table_threads;
    return launch_early(stream, tables_kernel, static_cast<unsigned>(blocks), table_threads, 0,
                        rows.routes, rows.tables);
}

cudaError_t expert_gate_up(cudaStream_t stream, const ExpertRows& rows, const ExpertGateUp& op) {
    const std::int64_t size = op.gate_up.cols / 2;
    if (!is_valid(op.h, rows.routes.tokens, op.h.cols) || size % wide != 0 ||
        !is_valid(op.gate_up, copies(rows), 2 * size) ||
        (op.product.data != nullptr && !is_valid(op.product, copies(rows), size))) {
        return cudaErrorInvalidValue;
    }
    ExpertProduct p;
    p.a = op.h;
    p.a_rows = rows.routes.rows;
    p.w = op.w;
    p.outputs = 2 * size;
    p.inputs = op.h.cols;
    p.finish = ExpertFinish::gate;
    p.function = op.function;
    p.columns = static_cast<std::int32_t>(size);
    p.y = op.gate_up;
    p.product = op.product;
    p.added = op.added;
    p.codes = op.codes;
    p.bias = op.bias;
    return run(stream, rows, p);
}

cudaError_t expert_product(cudaStream_t stream, const ExpertRows& rows, const Matrix& x,
                           const void* w, const Matrix& y, bool backward,
                           const ExpertAddition& added, const ExpertCodes& codes,
                           const float* bias) {
    if (!is_valid(x, copies(rows), x.cols) || !is_valid(y, copies(rows), y.cols)) {
        return cudaErrorInvalidValue;
    }
    ExpertProduct p;
    p.a = x;
    p.w = w;
    p.outputs = backward ? x.cols : y.cols;
    p.inputs = backward ? y.cols : x.cols;
    p.backward = backward;
    p.columns = static_cast<std::int32_t>(y.cols);
    p.y = y;
    p.added = added;
    p.codes = codes;
    p.bias = bias;
    return run(stream, rows, p);
}

cudaError_t expert_down_backward(cudaStream_t stream, const ExpertRows& rows,
                                 const ExpertDownBackward& op) {
    const std::int64_t size = op.gate_up.cols / 2;
    if (!is_valid(op.dy, rows.routes.tokens, op.dy.cols) || size % wide != 0 ||
        !is_valid(op.gate_up, copies(rows), 2 * size) ||
        !is_valid(op.d_gate_up, copies(rows), 2 * size) ||
        (op.product.data != nullptr && !is_valid(op.product, copies(rows), size))) {
        return cudaErrorInvalidValue;
    }
    ExpertProduct p;
    p.a = op.dy;
    if (op.codes.rows.codes == nullptr) p.a_rows = rows.routes.rows;
    p.w = op.w;
    p.outputs = op.dy.cols;
    p.inputs = size;
    p.backward = true;
    p.finish = ExpertFinish::gate_backward;
    p.function = op.function;
    p.columns = static_cast<std::int32_t>(size);
    p.y = op.d_gate_up;
    p.product = op.product;
    p.gate_up = op.gate_up;
    p.weights = rows.routes.weights;
    p.entries = rows.tables.entries;
    p.parts = op.parts;
    p.added = op.added;
    p.codes = op.codes;
    const cudaError_t error = run(stream, rows, p);
    if (error != cudaSuccess) return error;
    return launch_elements<1>(
        stream, copies(rows), 1,
        WeightBody{op.d_weights, op.parts, rows.routes.places, pieces(size, expert_part_columns)});
}

}  // namespace loratrain::kernels
