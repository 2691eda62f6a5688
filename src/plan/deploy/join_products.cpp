#include "plan/deploy/join_products.h"

#include "base/arithmetic.h"
#include "plan/memory/fit_memory.h"
#include "plan/memory/frozen_layouts.h"

namespace loratrain {

namespace {

constexpr std::int64_t tile_rows = 128;
constexpr std::int64_t tile_columns = 256;
constexpr std::int64_t multiprocessors = 132;

}  // namespace

std::int64_t product_cost(std::int64_t rows, std::int64_t columns, std::int64_t k) {
    const std::int64_t tiles = ceil_div(rows, tile_rows) * ceil_div(columns, tile_columns);
    return ceil_div(tiles, multiprocessors) * k;
}

bool joining_pays(const ReplicaView& view, LinearGroup group) {
    const ModelSpec& model = view.lane_model;
    const LinearGroupShape shape = group_shape(model, group);
    const bool qkv = group == LinearGroup::qkv;
    if (shape.count < 2 || (qkv && !model.attention().has_joinable_outputs())) return false;
    const std::int64_t rows = view.replica.microbatch_tokens;
    const std::int64_t r = view.replica.pad_columns;
    std::int64_t apart = 0;
    for (const Linear linear : shape.list()) {
        apart += product_cost(rows, linear_shape(model, linear).out, shape.in + r);
    }
    const std::int64_t joined = product_cost(rows, shape.out, shape.in + shape.count * r);
    return static_cast<double>(joined) <= (1.0 - joining_gain) * static_cast<double>(apart);
}

void join_products(const Job& job, const Plan& plan, const ReplicaPlan* former,
                   ReplicaPlan& replica) {
    if (plan.backend != BackendKind::cuda || plan.fp8_linears) return;
    const ReplicaView view = view_of(plan, replica);
    ReplicaPlan other = replica;
    for (const LinearGroup group : linear_groups) {
        const auto at = static_cast<std::size_t>(group);
        other.joined[at] = former != nullptr ? former->joined[at] : joining_pays(view, group);
    }
    if (fits_memory(job, view.with(other), other.microbatch_tokens, other.recompute)) {
        replica.joined = other.joined;
    }
}

}  // namespace loratrain
