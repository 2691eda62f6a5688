#include "kernels/experts.h"

#include <algorithm>
#include <initializer_list>
#include <tuple>

#include "kernels/grouped/expert_lora.h"
#include "kernels/grouped/grouped.h"

#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/table_cache.h"
#include "base/operators.h"

namespace loratrain {

namespace {

static_assert(kernels::most_experts == most_experts);
static_assert(kernels::most_experts_per_token == most_experts_per_token);
static_assert(kernels::most_expert_groups == most_expert_groups);
static_assert(kernels::least_score_sum == least_score_sum);

kernels::Routes routes_of(const ExpertRoutes& routes) {
    return {routes.tokens,  routes.experts, routes.per_token, routes.probabilities,
            routes.weights, routes.chosen,  routes.places,    routes.rows,
            routes.offsets, routes.before,  routes.others};
}

kernels::ExpertLoraParams params_of(const ExpertLora& op, const LoraSegment& segment) {
    const LoraSlot& slot = op.slots[static_cast<std::size_t>(segment.slot)];
    kernels::ExpertLoraParams params;
    params.wide = matrix_of(op.wide);
    params.narrow = matrix_of(op.narrow);
    params.routes = routes_of(op.routes);
    params.begin = segment.begin;
    params.end = segment.end;
    params.factor = op.of_b ? slot.b : slot.a;
    params.gradient = op.of_b ? slot.grad_b : slot.grad_a;
    params.rank = slot.rank;
    params.column = slot.column;
    params.scale = slot.scale;
    params.of_b = op.of_b;
    params.gathered = op.gathered;
    return params;
}

kernels::ExpertRows rows_of(const ExpertRoutes& routes, int shared_limit) {
    const kernels::ExpertTables tables{reinterpret_cast<kernels::ExpertTile*>(routes.tiles),
                                       routes.counters, routes.entries};
    return {routes_of(routes), tables, shared_limit};
}

/// For the kernels of all experts at once.
bool are_wide(const ExpertRoutes& routes, std::initializer_list<const TensorView*> views) {
    return routes.tiles != nullptr &&
           std::all_of(views.begin(), views.end(), [](const TensorView* view) {
               return kernels::grouped_takes(matrix_of(*view));
           });
}

/// Products of codes are made of all experts at once, by Hopper's kernel.
void require_at_once(const ExpertCodes& codes, const ExpertRoutes& routes, bool at_once,
                     int shared_limit) {
    if (!codes.are_used() || routes.copies() == 0) return;
    LORATRAIN_CHECK(at_once && kernels::takes_expert_codes(shared_limit),
                    "products of codes of experts need compute capability 9.0 with all of its "
                    "shared memory, and columns in multiples of 16");
}

/// The product can add the LoRA before it rounds.
bool can_add(ExpertLoras ops) {
    return ops.empty() || are_wide(ops.front().routes, {&ops.front().narrow});
}

}  // namespace

kernels::ExpertLoraSlices CudaBackend::expert_slices(ExpertLoras ops) {
    const ExpertLora& front = ops.front();
    kernels::ExpertLoraSlices to;
    to.cols = front.wide.cols;
    to.of_b = front.of_b;
    expert_slices_.clear();
    for (std::size_t s = 0; s < front.rows.segments.size(); ++s) {
        const LoraSegment& segment = front.rows.segments[s];
        std::int32_t ranks = 0;
        const std::size_t begin = expert_slices_.size();
        for (const ExpertLora& op : ops) {
            const LoraSlot& slot = op.slots[static_cast<std::size_t>(segment.slot)];
            if (slot.rank == 0) continue;
            const auto first = (static_cast<const char*>(op.wide.data) -
                                static_cast<const char*>(front.wide.data)) /
                               static_cast<std::ptrdiff_t>(size_of(op.wide.dtype));
            expert_slices_.push_back(
                {op.of_b ? slot.b : slot.a, op.of_b ? slot.grad_b : slot.grad_a,
                 static_cast<std::int32_t>(segment.begin), static_cast<std::int32_t>(segment.end),
                 slot.rank, slot.column, static_cast<std::int32_t>(first), slot.scale});
            ranks += slot.rank;
        }
        if (begin < expert_slices_.size()) {
            expert_slices_[begin].together =
                static_cast<std::int32_t>(expert_slices_.size() - begin);
        }
        to.most_ranks = std::max(to.most_ranks, ranks);
    }
    to.count = static_cast<std::int32_t>(expert_slices_.size());
    if (to.count > 0) std::tie(to.slices) = lora_tables_->find(expert_slices_);
    return to;
}

kernels::ExpertAddition CudaBackend::add_factors(ExpertLoras ops, std::int64_t outputs,
                                                 std::size_t bytes) {
    if (ops.empty()) return {};
    for (const ExpertLora& op : ops) check_shapes(op);
    const kernels::ExpertLoraSlices slices = expert_slices(ops);
    const ExpertLora& front = ops.front();
    const std::int64_t factors =
        kernels::expert_factors_bytes(front.routes.experts, outputs, front.narrow.cols);
    void* to =
        static_cast<char*>(reserve_workspace(bytes + static_cast<std::size_t>(factors))) + bytes;
    CUDA_CHECK(kernels::pack_expert_factors(stream_, rows_of(front.routes, shared_limit_), slices,
                                            outputs, front.narrow.cols, to, true));
    return {matrix_of(front.narrow), to};
}

kernels::ExpertCodes CudaBackend::code_rows(const ExpertCodes& codes, const TensorView& x) {
    if (!codes.are_used()) return {};
    const Fp8Rows to = codes.of_rows(x.rows, x.cols);
    quantize_rows({x, nullptr, to});
    return {codes_of(to), codes_of(codes.weights)};
}

kernels::ExpertCodes CudaBackend::code_gradients(const ExpertCodes& codes, const TensorView& x,
                                                 const ExpertRoutes& routes, bool gathered) {
    if (!codes.are_used()) return {};
    const kernels::Fp8Codes to = codes_of(codes.of_rows(routes.copies(), x.cols));
    CUDA_CHECK(kernels::quantize_expert_rows(stream_, rows_of(routes, shared_limit_), matrix_of(x),
                                             gathered, codes.weights.scales, to));
    kernels::Fp8Codes weights = codes_of(codes.transposed);
    weights.scales = nullptr;
    return {to, weights};
}

void CudaBackend::route(const Route& op) {
    check_shapes(op);
    LORATRAIN_CHECK(op.logits.dtype == DType::f32, "route: logits in ", to_string(op.logits.dtype));
    CUDA_CHECK(
        kernels::route(stream_, matrix_of(op.logits), routes_of(op.to),
                       {op.normalised, op.scores == RouterScores::sigmoid, op.bias,
                        static_cast<int>(op.groups), static_cast<int>(op.used_groups), op.scale}));
    if (op.to.tiles == nullptr) return;
    CUDA_CHECK(kernels::make_expert_tables(stream_, rows_of(op.to, shared_limit_)));
}

void CudaBackend::multiply_experts(const ExpertProduct& op) {
    check_shapes(op);
    require_compute({&op.x, &op.w, &op.y});
    const bool at_once = are_wide(op.routes, {&op.x, &op.w, &op.y}) && can_add(op.added);
    require_at_once(op.codes, op.routes, at_once, shared_limit_);
    if (!at_once) {
        run_in_parts(*this, op);
        if (op.bias != nullptr) {
            CUDA_CHECK(
                kernels::add_expert_bias(stream_, matrix_of(op.y), op.bias, routes_of(op.routes)));
        }
        return;
    }
    const kernels::ExpertRows rows = rows_of(op.routes, shared_limit_);
    const kernels::ExpertCodes codes =
        op.backward ? code_gradients(op.codes, op.x, op.routes, false) : code_rows(op.codes, op.x);
    const kernels::ExpertAddition added = add_factors(op.added, op.y.cols);
    CUDA_CHECK(kernels::expert_product(stream_, rows, matrix_of(op.x), op.w.data, matrix_of(op.y),
                                       op.backward, added, codes, op.bias));
}

bool CudaBackend::takes_at_once(const ExpertGateUp& op) const {
    const std::int64_t f = op.gate_up.cols / 2;
    const TensorView up = op.gate_up.col_range(f, f);
    return are_wide(op.routes, {&op.h, &op.w, &op.gate_up, &up}) && can_add(op.added) &&
           (op.product.data == nullptr || are_wide(op.routes, {&op.product}));
}

void CudaBackend::expert_gate_up(const ExpertGateUp& op) {
    check_shapes(op);
    require_compute({&op.h, &op.w, &op.gate_up});
    require_at_once(op.codes, op.routes, takes_at_once(op), shared_limit_);
    if (!takes_at_once(op)) return run_in_parts(*this, op);
    const kernels::Matrix product =
        op.product.data == nullptr ? kernels::Matrix{} : matrix_of(op.product);
    const kernels::ExpertCodes codes = code_rows(op.codes, op.h);
    CUDA_CHECK(kernels::expert_gate_up(
        stream_, rows_of(op.routes, shared_limit_),
        {matrix_of(op.h), op.w.data, matrix_of(op.gate_up), product, gate_of(op.activation),
         add_factors(op.added, op.gate_up.cols), codes, op.bias}));
}

bool CudaBackend::takes_at_once(const ExpertDownBackward& op) const {
    return are_wide(op.routes, {&op.dy, &op.w, &op.gate_up, &op.d_gate_up}) && can_add(op.added) &&
           (op.product.data == nullptr || are_wide(op.routes, {&op.product}));
}

void CudaBackend::expert_down_backward(const ExpertDownBackward& op) {
    check_shapes(op);
    require_compute({&op.dy, &op.w, &op.gate_up, &op.d_gate_up});
    require_at_once(op.codes, op.routes, takes_at_once(op), shared_limit_);
    if (!takes_at_once(op)) return run_in_parts(*this, op);
    kernels::ExpertDownBackward params;
    params.dy = matrix_of(op.dy);
    params.w = op.w.data;
    params.gate_up = matrix_of(op.gate_up);
    params.d_gate_up = matrix_of(op.d_gate_up);
    if (op.product.data != nullptr) params.product = matrix_of(op.product);
    const auto parts =
        static_cast<std::size_t>(kernels::expert_all_parts_bytes(op.gate_up.rows, op.w.cols));
    params.added = add_factors(op.added, op.w.cols, parts);
    params.parts = static_cast<float*>(reserve_workspace(parts));
    params.d_weights = op.d_weights;
    params.function = gate_of(op.activation);
    params.codes = code_gradients(op.codes, op.dy, op.routes, true);
    CUDA_CHECK(kernels::expert_down_backward(stream_, rows_of(op.routes, shared_limit_), params));
    add_bias_gradients(op.dy, op.bias, op.d_weights, op.routes);
}

void CudaBackend::add_bias_gradients(const TensorView& dy, const float* bias, float* d_weights,
                                     const ExpertRoutes& routes) {
    if (bias == nullptr) return;
    require_compute({&dy});
    CUDA_CHECK(
        kernels::add_bias_gradients(stream_, matrix_of(dy), bias, d_weights, routes_of(routes)));
}

void CudaBackend::combine_experts(const CombineExperts& op) {
    check_shapes(op);
    require_compute({&op.y, &op.x, &op.added});
    CUDA_CHECK(kernels::combine_experts(stream_, matrix_of(op.y), matrix_of(op.x),
                                        matrix_of(op.added), routes_of(op.routes), op.weighted));
}

void CudaBackend::weigh_experts(const WeighExperts& op) {
    check_shapes(op);
    require_compute({&op.inner, &op.product});
    CUDA_CHECK(kernels::weigh_experts(stream_, matrix_of(op.inner), matrix_of(op.product),
                                      op.d_weights, routes_of(op.routes)));
    add_bias_gradients(op.dy, op.bias, op.d_weights, op.routes);
}

void CudaBackend::weigh_rows(const WeighRows& op) {
    check_shapes(op);
    require_compute({&op.x});
    CUDA_CHECK(kernels::weigh_rows(stream_, matrix_of(op.x), routes_of(op.routes)));
}

std::size_t CudaBackend::count_alike(ExpertLoras ops) const {
    const ExpertLora& front = ops.front();
    if (!are_wide(front.routes, {&front.wide, &front.narrow})) return 0;
    const auto other = std::ranges::find_if(
        ops, [&](const ExpertLora& op) { return op.wide.data != front.wide.data; });
    return static_cast<std::size_t>(other - ops.begin());
}

void CudaBackend::narrow_experts(ExpertLoras ops) {
    for (const ExpertLora& op : ops) {
        check_shapes(op);
        require_compute({&op.wide, &op.narrow});
    }
    if (!ops.empty()) CUDA_CHECK(kernels::clear_narrow(stream_, matrix_of(ops.front().narrow)));
    while (!ops.empty()) {
        const ExpertLora& op = ops.front();
        const std::size_t count = count_alike(ops);
        if (count > 0) {
            const kernels::ExpertLoraSlices slices = expert_slices(ops.first(count));
            void* factors = reserve_workspace(static_cast<std::size_t>(
                kernels::expert_factors_bytes(op.routes.experts, op.wide.cols, op.narrow.cols)));
            CUDA_CHECK(kernels::narrow_experts_tensor(stream_, rows_of(op.routes, shared_limit_),
                                                      {matrix_of(op.wide), op.gathered},
                                                      matrix_of(op.narrow), slices, factors));
        } else {
            for (const LoraSegment& segment : op.rows.segments) {
                CUDA_CHECK(kernels::narrow_experts(stream_, params_of(op, segment)));
            }
        }
        ops = ops.subspan(std::max<std::size_t>(count, 1));
    }
}

void CudaBackend::widen_experts(const ExpertLora& op) {
    check_shapes(op);
    require_compute({&op.wide, &op.narrow});
    for (const LoraSegment& segment : op.rows.segments) {
        CUDA_CHECK(kernels::widen_experts(stream_, params_of(op, segment)));
    }
}

void CudaBackend::add_expert_grads(ExpertLoras ops) {
    for (const ExpertLora& op : ops) {
        check_shapes(op);
        require_compute({&op.wide, &op.narrow});
    }
    while (!ops.empty()) {
        const ExpertLora& op = ops.front();
        const std::size_t count = count_alike(ops);
        if (count > 0) {
            const kernels::ExpertLoraSlices slices = expert_slices(ops.first(count));
            CUDA_CHECK(kernels::add_expert_grads_tensor(stream_, rows_of(op.routes, shared_limit_),
                                                        {matrix_of(op.wide), op.gathered},
                                                        matrix_of(op.narrow), slices));
        } else {
            for (const LoraSegment& segment : op.rows.segments) {
                CUDA_CHECK(kernels::add_expert_grads(stream_, params_of(op, segment)));
            }
        }
        ops = ops.subspan(std::max<std::size_t>(count, 1));
    }
}

void CudaBackend::route_backward(const RouteBackward& op) {
    check_shapes(op);
    require_compute({&op.d_logits});
    CUDA_CHECK(kernels::route_backward(stream_, matrix_of(op.d_logits), op.d_weights,
                                       routes_of(op.routes),
                                       {.normalised = op.normalised,
                                        .sigmoid = op.scores == RouterScores::sigmoid,
                                        .scale = op.scale}));
}

}  // namespace loratrain
