#pragma once

#include <cstdint>

#include "plan/replica_view.h"

namespace loratrain {

/// Decides which linears of a group multiply as one GEMM.

/// Relative time of a GEMM [rows x K] [K x columns] on a GPU of 132 multiprocessors that compute
/// one tile of 128 rows x 256 columns each at a time: waves of tiles, ceil(ceil(rows / 128)
/// ceil(columns / 256) / 132), times K.
std::int64_t product_cost(std::int64_t rows, std::int64_t columns, std::int64_t k);

/// Share of the time that one joined product has to save.
inline constexpr double joining_gain = 0.03;

/// Whether the forward products of a group's linears are faster as one product, in microbatches of
/// microbatch_tokens: sum of product_cost(N_i, K + R) against product_cost(sum of N_i, K + count
/// R), R = pad_columns. False for a single linear, and for outputs that do not lie side by side, as
/// of qkv with qk_norm.
bool joining_pays(const ReplicaView& view, LinearGroup group);

/// Sets ReplicaPlan::joined of one of the plan's replicas, whose sizes are known. Only on GPUs:
/// groups for which joining_pays() and whose larger pads fit into memory are joined. `former`: the
/// replica of the run that is resumed, whose groups are kept, or null.
void join_products(const Job& job, const Plan& plan, const ReplicaPlan* former,
                   ReplicaPlan& replica);

}  // namespace loratrain
