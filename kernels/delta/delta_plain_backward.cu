#include "delta_launch.h"
#include "delta_plain.cuh"

/// Gradients of the delta rule in plain fp32. The gradients of states and of u come from the
/// recurrence backwards; those of q, k and g from the formulas of delta_gradients.cu, which has the
/// names.

namespace loratrain::kernels::delta {

namespace {

PlainWorkspace workspace_of(const DeltaRuleParams& p) {
    const std::int64_t values = p.rows.tokens * p.v.cols;
    const std::int64_t keys = p.rows.tokens * p.k.cols;
    PlainWorkspace work{};
    work.rests = static_cast<float*>(p.workspace);
    work.d_values = work.rests + values;
    work.d_queries = work.d_values + values;
    work.d_keys = work.d_queries + keys;
    work.d_states = work.d_keys + keys;
    return work;
}

/// Block: a slice of a value head of a sample, from its last row to its first.
template <class T>
__global__ void __launch_bounds__(plain_threads)
    rows_backward_kernel(const __grid_constant__ DeltaRuleBackwardParams params,
                         PlainWorkspace work) {
    extern __shared__ float gradient[];  // [Dk, plain_slice]
    __shared__ float parts[2][plain_threads];
    wait_for_kernel_before();
    const DeltaRuleParams& p = params.forward;
    const PlainWalk walk = PlainWalk::of(p);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const float scale = 1.0F / sqrtf(static_cast<float>(walk.key_dim));
    for (int d = walk.warp; d < walk.key_dim; d += plain_warps) {
        gradient[d * plain_slice + lane] = 0.0F;
    }
    for (std::int64_t t = walk.rows - 1; t >= 0; --t) {
        const std::int64_t row = walk.first + t;
        const T* q = plain_row<T>(p.q, row, walk.key_head, walk.key_dim);
        const T* k = plain_row<T>(p.k, row, walk.key_head, walk.key_dim);
        const float of_q = plain_length(q, walk.key_dim) * scale;
        const float of_k = plain_length(k, walk.key_dim);
        const float d_o = walk.inside ? of_q * to_float(plain_row<T>(params.d_o, row, walk.head,
                                                                     walk.value_dim)[walk.column])
                                      : 0.0F;
        float sum = 0.0F;
        for (int d = walk.warp; d < walk.key_dim; d += plain_warps) {
            float& s = gradient[d * plain_slice + lane];
            s += to_float(q[d]) * d_o;
            sum += s * to_float(k[d]);
        }
        const float d_u = sum_over_warps(sum, parts[t % 2]) * of_k;
        const float decay = expf(p.g[row * p.value_heads + walk.head]);
        const float back = p.beta[row * p.value_heads + walk.head] * d_u * of_k;
        const bool begins_chunk = t > 0 && t % delta_chunk == 0;
        float* to =
            work.d_states +
            (begins_chunk ? plain_state(p, row, walk.head, walk.key_dim, walk.value_dim) : 0) +
            walk.column;
        for (int d = walk.warp; d < walk.key_dim; d += plain_warps) {
            float& s = gradient[d * plain_slice + lane];
            s = decay * (s - to_float(k[d]) * back);
            if (begins_chunk && walk.inside) to[std::int64_t{d} * walk.value_dim] = s;
        }
        if (walk.inside && walk.warp == 0) work.d_values[walk.value_at(p, row)] = d_u;
    }
}

/// e^(a - b)
__device__ __forceinline__ float ratio(double a, double b) {
    return expf(static_cast<float>(a - b));
}

/// A chunk's numbers in shared memory.
struct PlainChunk {
    float y[delta_chunk][delta_chunk];
    float z[delta_chunk][delta_chunk];
    double sums[delta_chunk];  ///< differences of large sums are to be exact
    float beta[delta_chunk];
    float query_factors[delta_chunk];
    float key_factors[delta_chunk];
    float of_queries[delta_chunk];
    float of_old_keys[delta_chunk];
    float of_keys[delta_chunk];
    float of_rests[delta_chunk];
    float with_query[delta_chunk];
    float with_key[delta_chunk];
};

/// What a block's chunk is; the sample's first chunk has no state, its last no gradient of one.
struct PlainPlace {
    std::int64_t first;
    int rows;
    bool begins;
    bool ends;
    int key_dim;
    int value_dim;
    int head;
    int key_head;
};

__device__ float dot(const float* x, const float* y, int width) {
    float sum = 0.0F;
    for (int i = 0; i < width; ++i) sum += x[i] * y[i];
    return sum;
}
__device__ float dot(const Bf16* x, const float* y, int width) {
    float sum = 0.0F;
    for (int i = 0; i < width; ++i) sum += to_float(x[i]) * y[i];
    return sum;
}

template <class T>
__device__ void load_head(const DeltaRuleBackwardParams& params, const PlainWorkspace& work,
                          const PlainPlace& at, PlainChunk& chunk) {
    const DeltaRuleParams& p = params.forward;
    if (threadIdx.x == 0) {
        double sum = 0.0;
        for (int i = 0; i < at.rows; ++i) {
            sum += p.g[(at.first + i) * p.value_heads + at.head];
            chunk.sums[i] = sum;
            chunk.beta[i] = p.beta[(at.first + i) * p.value_heads + at.head];
        }
    }
    __syncthreads();
    for (int pair = static_cast<int>(threadIdx.x); pair < at.rows * at.rows;
         pair += plain_threads) {
        const int i = pair / at.rows;
        const int j = pair % at.rows;
        float y = 0.0F;
        float z = 0.0F;
        if (j <= i) {
            const std::int64_t from = (at.first + i) * p.value_heads + at.head;
            const std::int64_t of_j = ((at.first + j) * p.value_heads + at.head) * at.value_dim;
            const T* d_o = plain_row<T>(params.d_o, at.first + i, at.head, at.value_dim);
            const float factor =
                chunk.beta[j] * ratio(chunk.sums[i], chunk.sums[j]) * chunk.key_factors[j];
            y = chunk.query_factors[i] * factor * dot(d_o, work.rests + of_j, at.value_dim);
            if (j < i) {
                z = chunk.key_factors[i] * factor *
                    dot(work.d_values + from * at.value_dim, work.rests + of_j, at.value_dim);
            }
        }
        chunk.y[i][j] = y;
        chunk.z[i][j] = z;
    }
}

/// dq and dk of the rows of a warp, added to those of the value heads before.
template <class T>
__device__ void add_rows_of_warp(const DeltaRuleBackwardParams& params, const PlainWorkspace& work,
                                 const PlainPlace& at, PlainChunk& chunk) {
    const DeltaRuleParams& p = params.forward;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const bool is_first = at.head % (p.value_heads / p.key_heads) == 0;
    const float* state =
        at.begins ? nullptr
                  : p.states + plain_state(p, at.first, at.head, at.key_dim, at.value_dim);
    const float* d_state = at.ends ? nullptr
                                   : work.d_states + plain_state(p, at.first + delta_chunk, at.head,
                                                                 at.key_dim, at.value_dim);
    for (int i = static_cast<int>(threadIdx.x) / 32; i < at.rows; i += plain_warps) {
        const std::int64_t row = at.first + i;
        const std::int64_t of_values = (row * p.value_heads + at.head) * at.value_dim;
        const T* d_o = plain_row<T>(params.d_o, row, at.head, at.value_dim);
        float sums[4] = {};
        for (int d = lane; d < at.key_dim; d += 32) {
            const auto query = [&](int j) {
                return to_float(plain_row<T>(p.q, at.first + j, at.key_head, at.key_dim)[d]);
            };
            const auto key = [&](int j) {
                return to_float(plain_row<T>(p.k, at.first + j, at.key_head, at.key_dim)[d]);
            };
            const float decay = ratio(chunk.sums[i], 0.0);
            float of_query = 0.0F;
            float rest = 0.0F;
            if (state != nullptr) {
                const float* s = state + std::int64_t{d} * at.value_dim;
                of_query = chunk.query_factors[i] * decay * dot(d_o, s, at.value_dim);
                rest =
                    chunk.key_factors[i] * decay * dot(work.d_values + of_values, s, at.value_dim);
            }
            for (int j = 0; j <= i; ++j) {
                of_query += chunk.y[i][j] * key(j);
                rest += chunk.z[i][j] * key(j);
            }
            rest = -rest;
            float of_key = 0.0F;
            if (d_state != nullptr) {
                of_key = chunk.key_factors[i] * chunk.beta[i] *
                         ratio(chunk.sums[at.rows - 1], chunk.sums[i]) *
                         dot(work.rests + of_values, d_state + std::int64_t{d} * at.value_dim,
                             at.value_dim);
            }
            sums[0] += query(i) * of_query;
            sums[1] += key(i) * of_key;
            for (int j = i; j < at.rows; ++j) {
                of_key += chunk.y[j][i] * query(j) - chunk.beta[j] * chunk.z[j][i] * key(j);
            }
            sums[2] += key(i) * of_key;
            sums[3] += key(i) * rest;
            float& d_query = work.d_queries[row * p.q.cols + at.key_head * at.key_dim + d];
            float& d_key = work.d_keys[row * p.k.cols + at.key_head * at.key_dim + d];
            d_query = (is_first ? 0.0F : d_query) + of_query;
            d_key = (is_first ? 0.0F : d_key) + of_key + chunk.beta[i] * rest;
        }
        float* const to[4] = {chunk.of_queries, chunk.of_old_keys, chunk.of_keys, chunk.of_rests};
        for (int part = 0; part < 4; ++part) {
            const float sum = warp_sum(sums[part]);
            if (lane == 0) to[part][i] = sum;
        }
        float of_beta = 0.0F;
        for (int v = lane; v < at.value_dim; v += 32) {
            const float d_u = work.d_values[of_values + v];
            of_beta += d_u * work.rests[of_values + v];
            static_cast<T*>(params.dv.data)[row * params.dv.ld + at.head * at.value_dim + v] =
                from_float<T>(chunk.beta[i] * d_u);
        }
        of_beta = warp_sum(of_beta);
        if (lane == 0) params.d_beta[row * p.value_heads + at.head] = of_beta;
    }
}

/// The sum of the elementwise product of S and of the gradient behind the chunk.
__device__ float multiply_plain_states(const DeltaRuleParams& p, const PlainWorkspace& work,
                                       const PlainPlace& at, float* scratch) {
    if (at.begins || at.ends) return 0.0F;
    const float* s = p.states + plain_state(p, at.first, at.head, at.key_dim, at.value_dim);
    const float* d =
        work.d_states + plain_state(p, at.first + delta_chunk, at.head, at.key_dim, at.value_dim);
    float sum = 0.0F;
    for (int i = static_cast<int>(threadIdx.x); i < at.key_dim * at.value_dim; i += plain_threads) {
        sum += s[i] * d[i];
    }
    return block_sum(sum, scratch);
}

/// d_g, from the last row to the first, by one thread.
__device__ void finish_plain_head(const DeltaRuleBackwardParams& params, const PlainPlace& at,
                                  PlainChunk& chunk, float product) {
    float after = ratio(chunk.sums[at.rows - 1], 0.0) * product;
    if (!at.ends) {
        for (int i = 0; i < at.rows; ++i) after += chunk.of_old_keys[i];
    }
    for (int i = at.rows - 1; i >= 0; --i) {
        const float of_rest = chunk.beta[i] * chunk.of_rests[i];
        after += chunk.of_queries[i] - chunk.of_keys[i] + of_rest;
        // g of a sample's first row scales a state of zeros.
        params.d_g[(at.first + i) * params.forward.value_heads + at.head] =
            at.begins && i == 0 ? 0.0F : after;
        chunk.with_query[i] += chunk.of_queries[i];
        chunk.with_key[i] += chunk.of_keys[i] + of_rest;
    }
}

/// Block: a chunk of a key head, with its value heads one after the other.
template <class T>
__global__ void __launch_bounds__(plain_threads)
    plain_gradients_kernel(const __grid_constant__ DeltaRuleBackwardParams params,
                           PlainWorkspace work) {
    __shared__ PlainChunk chunk;
    __shared__ float scratch[plain_warps];
    wait_for_kernel_before();
    const DeltaRuleParams& p = params.forward;
    const Chunk rows = chunk_of(p.rows, blockIdx.x);
    if (rows.rows == 0) return;
    PlainPlace at{rows.first,
                  rows.rows,
                  rows.begins,
                  rows.ends,
                  static_cast<int>(p.q.cols) / p.key_heads,
                  static_cast<int>(p.v.cols) / p.value_heads,
                  0,
                  static_cast<int>(blockIdx.y)};
    const float scale = 1.0F / sqrtf(static_cast<float>(at.key_dim));
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    for (int i = warp; i < at.rows; i += plain_warps) {
        const float q =
            plain_length(plain_row<T>(p.q, at.first + i, at.key_head, at.key_dim), at.key_dim);
        const float k =
            plain_length(plain_row<T>(p.k, at.first + i, at.key_head, at.key_dim), at.key_dim);
        if (lane != 0) continue;
        chunk.query_factors[i] = q * scale;
        chunk.key_factors[i] = k;
        chunk.with_query[i] = 0.0F;
        chunk.with_key[i] = 0.0F;
    }
    const int heads = p.value_heads / p.key_heads;
    for (int number = 0; number < heads; ++number) {
        at.head = at.key_head * heads + number;
        __syncthreads();
        load_head<T>(params, work, at, chunk);
        __syncthreads();
        add_rows_of_warp<T>(params, work, at, chunk);
        const float product = multiply_plain_states(p, work, at, scratch);
        __syncthreads();
        if (threadIdx.x == 0) finish_plain_head(params, at, chunk, product);
    }
    __syncthreads();
    for (int i = warp; i < at.rows; i += plain_warps) {
        const std::int64_t row = at.first + i;
        const float query = chunk.query_factors[i];
        const float key = chunk.key_factors[i];
        const float of_q = query * query * static_cast<float>(at.key_dim) * chunk.with_query[i];
        const float of_k = key * key * chunk.with_key[i];
        const T* q = plain_row<T>(p.q, row, at.key_head, at.key_dim);
        const T* k = plain_row<T>(p.k, row, at.key_head, at.key_dim);
        for (int d = lane; d < at.key_dim; d += 32) {
            const std::int64_t from = row * p.q.cols + at.key_head * at.key_dim + d;
            static_cast<T*>(params.dq.data)[row * params.dq.ld + at.key_head * at.key_dim + d] =
                from_float<T>(work.d_queries[from] - of_q * to_float(q[d]));
            static_cast<T*>(params.dk.data)[row * params.dk.ld + at.key_head * at.key_dim + d] =
                from_float<T>(work.d_keys[from] - of_k * to_float(k[d]));
        }
    }
}

}  // namespace

cudaError_t delta_rule_backward_plain(cudaStream_t stream, const DeltaRuleBackwardParams& p) {
    const DeltaRuleParams& of = p.forward;
    const PlainWorkspace work = workspace_of(of);
    const auto shared =
        static_cast<std::size_t>(of.q.cols / of.key_heads) * plain_slice * sizeof(float);
    const dim3 chunks(static_cast<unsigned>(most_chunks(of.rows)),
                      static_cast<unsigned>(of.key_heads));
    return with_type(of.q.type, [&](auto element) {
        using T = decltype(element);
        cudaError_t error = go_through_rows(stream, of, work);
        if (error == cudaSuccess) {
            error = launch_early(stream, rows_backward_kernel<T>, PlainWalk::grid(of),
                                 plain_threads, shared, p, work);
        }
        if (error == cudaSuccess) {
            error =
                launch_early(stream, plain_gradients_kernel<T>, chunks, plain_threads, 0, p, work);
        }
        return error;
    });
}

}  // namespace loratrain::kernels::delta
