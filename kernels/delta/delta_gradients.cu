#include "delta_gradients.cuh"
#include "delta_launch.h"

/// Gradients of the delta rule from those of V' and of the states (kernels/delta/README.md). With
/// dR = Tᵀ dV', the gradient of beta (v - e^G Sᵀ k^):
///   dV = beta dR
///   Y = (dO_i . V'_j e^(G_i - G_j), j <= i),  Z = (dR_i . V'_j e^(G_i - G_j), j < i)
///   R = -(e^G dR Sᵀ + Z k^)
///   dq^ = e^G dO Sᵀ + Y k^
///   dk^ = e^(G_last - G) V' dSᵀ + Yᵀ q^ - (beta Z)ᵀ k^ + beta R
/// where dS is the gradient of the state after the chunk. beta and G get sums of products of rows.

namespace loratrain::kernels::delta {

namespace {

/// What of a head's tiles is there when the states are still on their way.
__device__ __forceinline__ void copy_head(const DeltaRuleBackwardParams& params,
                                          const Workspace& work, const Chunk& chunk, int head,
                                          Scratch& scratch, const Place& at, int turn) {
    copy_tile<dim, dim, gradient_threads>(at.shared + d_values_at,
                                          work.at(work.d_u, head, chunk.first, dim), 0, chunk.rows,
                                          at.thread);
    copy_tile<chunk_rows, chunk_rows, gradient_threads>(
        at.shared + inverse_at, work.at(work.inverses, head, chunk.first, chunk_rows), 0,
        chunk.rows, at.thread);
    copy_head_in<gradient_threads>(at.shared + outputs_at, params.d_o, chunk.first, head,
                                   chunk.rows, at.thread);
    copy_tile<dim, dim, gradient_threads>(
        at.shared + values_at, work.at(work.u, head, chunk.first, dim), 0, chunk.rows, at.thread);
    const int own = at.thread - (gradient_threads - chunk_rows);
    if (own < 0) return;
    const std::int64_t row = chunk.first + min(own, chunk.rows - 1);
    scratch.sums[turn][own] = *work.at(work.sums, head, row);
    scratch.beta[turn][own] =
        own < chunk.rows ? params.forward.beta[row * params.forward.value_heads + head] : 0.0F;
}

template <bool roomy>
__device__ __forceinline__ void copy_states(const DeltaRuleParams& p, const Chunk& chunk, int head,
                                            const Place& at) {
    if (!chunk.begins) {
        copy_bytes<state_bytes, gradient_threads>(at.shared + state_at,
                                                  state_of(p, chunk.first, head), at.thread);
    }
    if (roomy && !chunk.ends) {
        copy_bytes<state_bytes, gradient_threads>(
            at.shared + d_state_at<roomy>,
            state_of(p, chunk.first + chunk_rows, head) + state_bytes, at.thread);
    }
}

/// dR into its tile, its products with v, and Y. Returns dV in `d_v`.
__device__ __forceinline__ void make_rests(const DeltaRuleParams& p, const Chunk& chunk, int head,
                                           const float* sums, const float* beta, Scratch& scratch,
                                           const Place& at, std::uint32_t (&d_v)[8][2]) {
    Sums c = {};
    begin_products(c);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        add_columns<dim>(c, at.left_transposed(inverse_at, k), at.right(d_values_at, k), at.rows,
                         at.lane);
    }
    commit_products();
    wait_for_products<0>(c);
    const Bf16* values = head_of(p.v, chunk.first, head) + at.half * half_dim + at.lane % 4 * 2;
    sum_rows(scratch.parts[of_values], c, at, [&](int n, int upper) {
        const int row = at.row(upper);
        return row < chunk.rows
                   ? *reinterpret_cast<const std::uint32_t*>(values + row * p.v.ld + n * 8)
                   : 0U;
    });
    const float factors[2] = {beta[at.row(0)], beta[at.row(1)]};
#pragma unroll
    for (int n = 0; n < 8; ++n) {
        store_sums<dim>(at.own(rests_at) + block_at<dim>(0, n), c[n], at.lane);
        d_v[n][0] = pack(c[n][0] * factors[0], c[n][1] * factors[0]);
        d_v[n][1] = pack(c[n][2] * factors[1], c[n][3] * factors[1]);
    }
    float scores[4][4] = {};
    multiply_rows_of(scores, at, outputs_at, values_at);
    for_each_score(scores, at, [&](float& score, int i, int j) {
        score = j <= i ? score * scratch.query_factors[i] * scratch.key_factors[j] *
                             decay(sums[i] - sums[j])
                       : 0.0F;
    });
    store_scores(at.shared + y_at, scores, at);
}

/// -Z and -beta Z, in units of both keys' factors; and dV into the tile that goes out.
__device__ __forceinline__ void make_couplings(const float* sums, const float* beta,
                                               const Scratch& scratch, const Place& at,
                                               const std::uint32_t (&d_v)[8][2]) {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
        const std::uint32_t to = at.own(d_values_at) + block_at<dim>(0, n) + at.lane * 4;
        store_word(to, d_v[n][0]);
        store_word(to + block_at<dim>(1, 0), d_v[n][1]);
    }
    float scores[4][4] = {};
    multiply_rows_of(scores, at, rests_at, values_at);
    for_each_score(scores, at, [&](float& score, int i, int j) {
        score = j < i ? -score * scratch.key_factors[i] * scratch.key_factors[j] *
                            decay(sums[i] - sums[j])
                      : 0.0F;
    });
    store_scores(at.shared + z_at, scores, at);
    for_each_score(scores, at, [&](float& score, int i, int) { score *= beta[i]; });
    store_scores(at.shared + inverse_at, scores, at);
}

/// Adds this head's parts to dq^ and dk^ that come from rows of the warp and before it.
__device__ __forceinline__ void add_row_parts(Sums& d_query, Sums& d_key, const Chunk& chunk,
                                              const float* sums, const float* beta,
                                              Scratch& scratch, const Place& at) {
    Sums of_q = {};
    Sums of_k = {};
    if (!chunk.begins) {
        begin_products(of_q, of_k);
#pragma unroll
        for (int k = 0; k < dim / 16; ++k) {
            const std::uint32_t right = at.right(state_at, k);
            add_columns<dim>(of_q, at.left<dim>(outputs_at, k), right, at.rows, at.lane);
            add_columns<dim>(of_k, at.left<dim>(rests_at, k), right, at.rows, at.lane);
        }
        commit_products();
        wait_for_products<0>(of_q, of_k);
        const float factor[2] = {decay(sums[at.row(0)]), decay(sums[at.row(1)])};
        scale(of_q, factor[0] * scratch.query_factors[at.row(0)],
              factor[1] * scratch.query_factors[at.row(1)]);
        scale(of_k, -factor[0] * scratch.key_factors[at.row(0)],
              -factor[1] * scratch.key_factors[at.row(1)]);
    }
    begin_products(of_q, of_k);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        const std::uint32_t right = at.right(keys_at, k);
        add_columns<dim>(of_q, at.left<chunk_rows>(y_at, k), right, at.rows, at.lane);
        add_columns<dim>(of_k, at.left<chunk_rows>(z_at, k), right, at.rows, at.lane);
    }
    commit_products();
    wait_for_products<0>(of_q, of_k);
    sum_rows(scratch.parts[of_queries], of_q, at, words_of(at, queries_at));
    sum_rows(scratch.parts[of_rests], of_k, at, words_of(at, keys_at));
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            d_query[n][e] += of_q[n][e];
            d_key[n][e] += beta[at.row(e / 2)] * of_k[n][e];
        }
    }
}

/// Adds this head's parts of dk^ that come from rows of the warp and behind it.
__device__ __forceinline__ void add_column_parts(Sums& d_key, const Chunk& chunk, int d_state,
                                                 const float* sums, Scratch& scratch,
                                                 const Place& at) {
    Sums c = {};
    if (!chunk.ends) {
        begin_products(c);
#pragma unroll
        for (int k = 0; k < dim / 16; ++k) {
            add_columns<dim>(c, at.left<dim>(values_at, k), at.right(d_state, k), at.rows, at.lane);
        }
        commit_products();
        wait_for_products<0>(c);
        const float last = sums[chunk_rows - 1];
        scale(c, scratch.key_factors[at.row(0)] * decay(last - sums[at.row(0)]),
              scratch.key_factors[at.row(1)] * decay(last - sums[at.row(1)]));
    }
    sum_rows(scratch.parts[of_old_keys], c, at, words_of(at, keys_at));
    begin_products(c);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        add_columns<dim>(c, at.left_transposed(y_at, k), at.right(queries_at, k), at.rows, at.lane);
        add_columns<dim>(c, at.left_transposed(inverse_at, k), at.right(keys_at, k), at.rows,
                         at.lane);
    }
    commit_products();
    wait_for_products<0>(c);
    sum_rows(scratch.parts[of_keys], c, at, words_of(at, keys_at));
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) d_key[n][e] += c[n][e];
    }
}

/// The warp's part of the sum of the elementwise product of S, in shared memory, and dS.
__device__ __forceinline__ void multiply_states(const char* state, const char* d_state,
                                                Scratch& scratch, const Place& at) {
    float sum = 0.0F;
#pragma unroll 4
    for (int byte = at.thread * 16; byte < state_bytes; byte += gradient_threads * 16) {
        float s[8];
        float d[8];
        load<8>(reinterpret_cast<const Bf16*>(state + byte), s);
        load<8>(reinterpret_cast<const Bf16*>(d_state + byte), d);
#pragma unroll
        for (int i = 0; i < 8; ++i) sum += s[i] * d[i];
    }
    sum = warp_sum(sum);
    if (at.lane == 0) scratch.states[at.thread / 32] = sum;
}

/// d_beta and d_g of a head, by the first warp: g of a row gets the gradients of G from it on.
__device__ __forceinline__ void finish_head(const DeltaRuleBackwardParams& params,
                                            const Chunk& chunk, int head, const float* sums,
                                            const float* beta, Scratch& scratch, int lane) {
    const DeltaRuleParams& p = params.forward;
    const auto total = [&](RowSum of, int row) {
        return scratch.parts[of][0][row] + scratch.parts[of][1][row];
    };
    float after = 0.0F;  // of the state behind the chunk
    if (!chunk.ends) {
        after = warp_sum(total(of_old_keys, lane) + total(of_old_keys, 32 + lane));
        if (!chunk.begins) {
            float product = scratch.states[0];
#pragma unroll
            for (int i = 1; i < gradient_threads / 32; ++i) product += scratch.states[i];
            after += decay(sums[chunk_rows - 1]) * product;
        }
    }
#pragma unroll
    for (int part = 32; part >= 0; part -= 32) {
        const int row = part + lane;
        const float of_query = total(of_queries, row);
        const float of_key = total(of_keys, row);
        const float of_rest = total(of_rests, row);
        scratch.with_query[row] += of_query;
        scratch.with_key[row] += of_key + beta[row] * of_rest;
        float sum = of_query - of_key + beta[row] * of_rest;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const float other = __shfl_down_sync(0xffffffffU, sum, step);
            if (lane + step < 32) sum += other;
        }
        sum += after;
        after = __shfl_sync(0xffffffffU, sum, 0);
        if (row >= chunk.rows) continue;
        const std::int64_t to = (chunk.first + row) * p.value_heads + head;
        params.d_g[to] = chunk.begins && row == 0 ? 0.0F : sum;  // it scales a state of zeros
        params.d_beta[to] = total(of_values, row) + of_rest;
    }
}

/// c less its part along x, into the tile that goes out.
__device__ __forceinline__ void store_gradient(const Sums& c, int tile, int target,
                                               const float (&factors)[2], const Place& at) {
    const auto word = words_of(at, tile);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int upper = 0; upper < 2; ++upper) {
            const std::uint32_t x = word(n, upper);
            store_word(at.own(target) + block_at<dim>(upper, n) + at.lane * 4,
                       pack(c[n][2 * upper] - factors[upper] * low_half(x),
                            c[n][2 * upper + 1] - factors[upper] * high_half(x)));
        }
    }
}

/// Block: a chunk of a key head, with its value heads one after the other.
template <bool roomy>
__global__ void __launch_bounds__(gradient_threads, 1)
    gradients_kernel(const __grid_constant__ DeltaRuleBackwardParams params, Workspace work) {
    extern __shared__ __align__(128) char memory[];
    wait_for_kernel_before();
    const DeltaRuleParams& p = params.forward;
    const Chunk chunk = chunk_of(p.rows, blockIdx.x);
    if (chunk.rows == 0) return;
    const int key_head = static_cast<int>(blockIdx.y);
    const int thread = static_cast<int>(threadIdx.x);
    const int warp = __shfl_sync(0xffffffffU, thread / 32, 0);
    const Place at{thread, thread % 32, warp % 4, warp / 4, shared_address(memory)};
    Scratch& scratch = *reinterpret_cast<Scratch*>(memory + scratch_at);
    const int heads = p.value_heads / p.key_heads;
    const int first_head = key_head * heads;
    copy_head_in<gradient_threads>(at.shared + queries_at, p.q, chunk.first, key_head, chunk.rows,
                                   thread);
    copy_head_in<gradient_threads>(at.shared + keys_at, p.k, chunk.first, key_head, chunk.rows,
                                   thread);
    if (thread < chunk_rows) {
        const std::int64_t row = chunk.first + thread;
        const bool inside = thread < chunk.rows;
        scratch.query_factors[thread] = inside ? *work.at(work.query_factors, key_head, row) : 0.0F;
        scratch.key_factors[thread] = inside ? *work.at(work.key_factors, key_head, row) : 0.0F;
        scratch.with_query[thread] = 0.0F;
        scratch.with_key[thread] = 0.0F;
    }
    copy_head(params, work, chunk, first_head, scratch, at, 0);
    commit_copies();
    copy_states<roomy>(p, chunk, first_head, at);
    commit_copies();
    Sums d_query = {};
    Sums d_key = {};
    for (int number = 0; number < heads; ++number) {
        const int head = first_head + number;
        const float* sums = scratch.sums[number % 2];
        const float* beta = scratch.beta[number % 2];
        std::uint32_t d_v[8][2];
        wait_for_pieces<1>();
        show_to_products();
        __syncthreads();
        make_rests(p, chunk, head, sums, beta, scratch, at, d_v);
        show_to_products();
        __syncthreads();
        make_couplings(sums, beta, scratch, at, d_v);
        wait_for_copies();
        show_to_products();
        __syncthreads();
        copy_out<dim, gradient_threads>(head_of(params.dv, chunk.first, head), params.dv.ld,
                                        chunk.rows, at.shared + d_values_at, thread);
        if (!chunk.begins && !chunk.ends) {
            const char* d_state = roomy ? memory + d_state_at<roomy>
                                        : state_of(p, chunk.first + chunk_rows, head) + state_bytes;
            multiply_states(memory + state_at, d_state, scratch, at);
        }
        add_row_parts(d_query, d_key, chunk, sums, beta, scratch, at);
        if (!roomy && !chunk.ends) {
            __syncthreads();
            copy_bytes<state_bytes, gradient_threads>(
                at.shared + state_at, state_of(p, chunk.first + chunk_rows, head) + state_bytes,
                thread);
            commit_copies();
            wait_for_copies();
            show_to_products();
            __syncthreads();
        }
        add_column_parts(d_key, chunk, d_state_at<roomy>, sums, scratch, at);
        __syncthreads();
        if (number + 1 < heads) {
            copy_head(params, work, chunk, head + 1, scratch, at, (number + 1) % 2);
            commit_copies();
            copy_states<roomy>(p, chunk, head + 1, at);
            commit_copies();
        }
        if (thread < 32) finish_head(params, chunk, head, sums, beta, scratch, at.lane);
    }
    __syncthreads();
    float of_query[2];
    float of_key[2];
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
        const int row = at.row(upper);
        const float query = scratch.query_factors[row];
        const float key = scratch.key_factors[row];
        of_query[upper] = query * query * static_cast<float>(dim) * scratch.with_query[row];
        of_key[upper] = key * key * scratch.with_key[row];
    }
    store_gradient(d_query, queries_at, outputs_at, of_query, at);
    store_gradient(d_key, keys_at, values_at, of_key, at);
    __syncthreads();
    copy_out<dim, gradient_threads>(head_of(params.dq, chunk.first, key_head), params.dq.ld,
                                    chunk.rows, at.shared + outputs_at, thread);
    copy_out<dim, gradient_threads>(head_of(params.dk, chunk.first, key_head), params.dk.ld,
                                    chunk.rows, at.shared + values_at, thread);
}

template <bool roomy>
cudaError_t launch(cudaStream_t stream, const DeltaRuleBackwardParams& p) {
    return launch_with_shared<gradients_kernel<roomy>, shared_bytes<roomy>>(
        stream, p.forward.shared_limit,
        dim3(static_cast<unsigned>(most_chunks(p.forward.rows)),
             static_cast<unsigned>(p.forward.key_heads)),
        gradient_threads, p, Workspace::of(p.forward, true));
}

}  // namespace

cudaError_t make_gradients(cudaStream_t stream, const DeltaRuleBackwardParams& p) {
    return p.forward.shared_limit >= shared_bytes<true> ? launch<true>(stream, p)
                                                        : launch<false>(stream, p);
}

}  // namespace loratrain::kernels::delta
