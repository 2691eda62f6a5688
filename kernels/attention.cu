#include "attention.h"

#include <initializer_list>

#include "attention_launch.h"

namespace loratrain::kernels {

namespace {

bool aligned(std::initializer_list<Matrix> matrices) {
    for (const Matrix& matrix : matrices) {
        if (reinterpret_cast<std::uintptr_t>(matrix.data) % 16 != 0 || matrix.ld % 8 != 0) {
            return false;
        }
    }
    return true;
}

bool fits_tensor_cores(const AttentionParams& p) {
    return p.q.type == Element::bf16 && attention_on_tensor_cores(p.head_dim) &&
           aligned({p.q, p.k, p.v, p.o});
}

bool fits_tensor_cores(const AttentionBackwardParams& p) {
    return fits_tensor_cores(p.forward) && aligned({p.d_o, p.dq, p.dk, p.dv});
}

bool is_wide(const AttentionParams& p) {
    return p.head_dim > attention_narrow_head_dim;
}

bool has_warpgroups(const AttentionParams& p) {
    return p.soft_cap == 0.0F && runs_attention_hopper(p.shared_limit);
}

AttentionTileRows tile_rows(const AttentionParams& p, bool tensor_cores) {
    if (!tensor_cores) return {attention_plain_rows, attention_plain_rows, attention_plain_rows};
    if (is_wide(p)) return {attention_wide_rows, attention_wide_rows, attention_wide_rows};
    return {attention_forward_rows, attention_backward_rows, attention_backward_rows};
}

bool valid(const AttentionParams& p) {
    return p.head_dim > 0 && p.head_dim <= attention_max_head_dim && p.kv_heads > 0 &&
           p.heads % p.kv_heads == 0;
}

}  // namespace

AttentionTileRows attention_tile_rows(const AttentionParams& params) {
    if (fits_tensor_cores(params) && has_warpgroups(params)) {
        return {attention_hopper_forward_rows(params.head_dim), attention_hopper_rows,
                attention_hopper_rows};
    }
    return tile_rows(params, fits_tensor_cores(params));
}

AttentionTileRows attention_tile_rows(const AttentionBackwardParams& params) {
    if (fits_tensor_cores(params) && has_warpgroups(params.forward)) {
        return {attention_forward_rows, attention_hopper_rows,
                is_wide(params.forward) ? attention_wide_rows : attention_hopper_rows};
    }
    return tile_rows(params.forward, fits_tensor_cores(params));
}

cudaError_t attention_forward(cudaStream_t stream, const AttentionParams& params) {
    if (!valid(params)) return cudaErrorInvalidValue;
    if (params.tile_count == 0) return cudaSuccess;
    if (!fits_tensor_cores(params)) return attention_forward_plain(stream, params);
    if (has_warpgroups(params)) return attention_forward_hopper(stream, params);
    return is_wide(params) ? attention_forward_wide(stream, params)
                           : attention_forward_tensor(stream, params);
}

cudaError_t attention_backward(cudaStream_t stream, const AttentionBackwardParams& params) {
    if (!valid(params.forward)) return cudaErrorInvalidValue;
    if (params.query_tile_count == 0) return cudaSuccess;
    if (!fits_tensor_cores(params)) return attention_backward_plain(stream, params);
    const bool wide = is_wide(params.forward);
    if (has_warpgroups(params.forward)) {
        return wide ? attention_backward_wide_hopper(stream, params)
                    : attention_backward_hopper(stream, params);
    }
    return wide ? attention_backward_wide(stream, params)
                : attention_backward_tensor(stream, params);
}

}  // namespace loratrain::kernels
