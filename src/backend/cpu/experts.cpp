#include <algorithm>
#include <array>
#include <limits>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel.h"
#include "backend/cpu/vector_math.h"
#include "base/operators.h"
#include "base/vector_code.h"

namespace loratrain {

namespace {

float* row_of_experts(const TensorView& x, std::int64_t row) {
    return x.f32() + row * x.ld;
}

LORATRAIN_VECTOR_CODE
float exponentials(const float* x, std::int64_t count, float largest, float* to) {
    float sum = 0.0F;
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j) to[j] = exp_inline(x[j] - largest);
    for (std::int64_t j = 0; j < count; ++j) sum += to[j];
    return sum;
}

LORATRAIN_VECTOR_CODE
void sigmoids(const float* x, std::int64_t count, float* to) {
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j) to[j] = 1.0F / (1.0F + exp_inline(-x[j]));
}

void make_scores(const Route& op, const float* logits, float* p) {
    const std::int64_t experts = op.to.routed();
    if (op.scores == RouterScores::sigmoid) return sigmoids(logits, experts, p);
    const float sum = exponentials(logits, experts, largest_of(logits, experts, logits[0]), p);
    for (std::int64_t e = 0; e < experts; ++e) p[e] /= sum;
}

float sum_of_two_largest(const float* keys, std::int64_t count) {
    float first = -std::numeric_limits<float>::infinity();
    float second = first;
    for (std::int64_t e = 0; e < count; ++e) {
        second = std::max(second, std::min(first, keys[e]));
        first = std::max(first, keys[e]);
    }
    return first + second;
}

/// The first of equals counts as the larger.
void choose_largest(const float* p, std::int64_t experts, std::int64_t count,
                    std::int32_t* chosen) {
    std::array<bool, most_experts> taken{};
    for (std::int64_t i = 0; i < count; ++i) {
        std::int64_t best = -1;
        for (std::int64_t e = 0; e < experts; ++e) {
            if (!taken[static_cast<std::size_t>(e)] && (best < 0 || p[e] > p[best])) best = e;
        }
        taken[static_cast<std::size_t>(best)] = true;
        chosen[i] = static_cast<std::int32_t>(best);
    }
    std::sort(chosen, chosen + count);
}

/// Of experts in groups that are not used -infinity.
void leave_out_groups(const Route& op, float* keys) {
    const std::int64_t size = op.to.routed() / op.groups;
    std::array<float, most_expert_groups> sums{};
    std::array<std::int32_t, most_expert_groups> used{};
    for (std::int64_t g = 0; g < op.groups; ++g) {
        sums[static_cast<std::size_t>(g)] = sum_of_two_largest(keys + g * size, size);
    }
    choose_largest(sums.data(), op.groups, op.used_groups, used.data());
    const auto* const end = used.begin() + op.used_groups;
    for (std::int64_t g = 0; g < op.groups; ++g) {
        if (std::find(used.cbegin(), end, g) != end) continue;
        std::fill_n(keys + g * size, size, -std::numeric_limits<float>::infinity());
    }
}

void choose(const Route& op, const float* p, std::int32_t* chosen) {
    const std::int64_t experts = op.to.routed();
    if (op.bias == nullptr && op.groups == 1) {
        return choose_largest(p, experts, op.to.per_token, chosen);
    }
    std::array<float, most_experts> keys{};
    for (std::int64_t e = 0; e < experts; ++e) {
        keys[static_cast<std::size_t>(e)] = p[e] + (op.bias == nullptr ? 0.0F : op.bias[e]);
    }
    if (op.groups > 1) leave_out_groups(op, keys.data());
    choose_largest(keys.data(), experts, op.to.per_token, chosen);
}

/// What a normalised router divides by, of the sum of the scores that are chosen.
float divisor_of(float sum, RouterScores scores) {
    return scores == RouterScores::sigmoid ? sum + least_score_sum : sum;
}

void weigh(const Route& op, const float* p, const std::int32_t* chosen, float* weights) {
    float sum = 0.0F;
    for (std::int64_t j = 0; j < op.to.per_token; ++j) sum += p[chosen[j]];
    const float by = op.normalised ? divisor_of(sum, op.scores) : 1.0F;
    for (std::int64_t j = 0; j < op.to.per_token; ++j) weights[j] = p[chosen[j]] / by * op.scale;
}

/// A counting sort.
void order_by_expert(const ExpertRoutes& to) {
    std::fill_n(to.offsets, to.experts + 1, 0);
    const auto own = [&](std::int64_t i) { return to.chosen[i] - to.before; };
    const auto is_own = [&](std::int64_t i) { return own(i) >= 0 && own(i) < to.experts; };
    for (std::int64_t i = 0; i < to.copies(); ++i) {
        if (is_own(i)) ++to.offsets[own(i) + 1];
    }
    for (std::int64_t e = 0; e < to.experts; ++e) to.offsets[e + 1] += to.offsets[e];
    std::array<std::int32_t, most_experts> next{};
    std::copy_n(to.offsets, to.experts, next.begin());
    std::fill_n(to.places, to.copies(), -1);
    std::fill_n(to.rows, to.copies(), -1);
    for (std::int64_t i = 0; i < to.copies(); ++i) {
        if (!is_own(i)) continue;
        const std::int32_t place = next[static_cast<std::size_t>(own(i))]++;
        to.places[i] = place;
        to.rows[place] = static_cast<std::int32_t>(i / to.per_token);
    }
}

/// Of the expert of index i in [T, k], which the lane has; bias: [E, cols].
const float* bias_of(const ExpertRoutes& routes, const float* bias, std::int64_t i,
                     std::int64_t cols) {
    return bias + (routes.chosen[i] - routes.before) * cols;
}

}  // namespace

void CpuBackend::route(const Route& op) {
    check_shapes(op);
    require_f32({&op.logits});
    const ExpertRoutes& to = op.to;
    parallel_rows(threads_, to.tokens, to.routed(), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t t = begin; t < end; ++t) {
            const float* logits = row_of_experts(op.logits, t);
            float* p = to.probabilities + t * to.routed();
            std::int32_t* chosen = to.chosen + t * to.per_token;
            make_scores(op, logits, p);
            choose(op, p, chosen);
            weigh(op, p, chosen, to.weights + t * to.per_token);
        }
    });
    order_by_expert(to);
}

void CpuBackend::multiply_experts(const ExpertProduct& op) {
    check_shapes(op);
    run_in_parts(*this, op);
    if (op.bias == nullptr) return;
    const ExpertRoutes& routes = op.routes;
    parallel_rows(threads_, routes.copies(), op.y.cols, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
            if (routes.places[i] < 0) continue;
            add_scaled_values(row_of_experts(op.y, routes.places[i]),
                              bias_of(routes, op.bias, i, op.y.cols), 1.0F, op.y.cols);
        }
    });
}

void CpuBackend::expert_gate_up(const ExpertGateUp& op) {
    check_shapes(op);
    run_in_parts(*this, op);
}

void CpuBackend::expert_down_backward(const ExpertDownBackward& op) {
    check_shapes(op);
    run_in_parts(*this, op);
}

void CpuBackend::combine_experts(const CombineExperts& op) {
    check_shapes(op);
    require_f32({&op.y, &op.x, &op.added});
    const ExpertRoutes& routes = op.routes;
    parallel_rows(threads_, op.y.rows, op.y.cols, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t t = begin; t < end; ++t) {
            float* y = row_of_experts(op.y, t);
            const float* added = row_of_experts(op.added, t);
            if (y != added) std::copy_n(added, op.y.cols, y);
            for (std::int64_t i = t * routes.per_token; i < (t + 1) * routes.per_token; ++i) {
                if (routes.places[i] < 0) continue;
                add_scaled_values(y, row_of_experts(op.x, routes.places[i]),
                                  op.weighted ? routes.weights[i] : 1.0F, op.y.cols);
            }
        }
    });
}

void CpuBackend::weigh_experts(const WeighExperts& op) {
    check_shapes(op);
    require_f32({&op.inner, &op.product});
    const ExpertRoutes& routes = op.routes;
    parallel_rows(
        threads_, routes.copies(), op.inner.cols, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i) {
                op.d_weights[i] = 0.0F;
                if (routes.places[i] < 0) continue;
                float* inner = row_of_experts(op.inner, routes.places[i]);
                const float* product = row_of_experts(op.product, routes.places[i]);
                op.d_weights[i] = dot(inner, product, op.inner.cols);
                if (op.bias != nullptr) {
                    op.d_weights[i] += dot(row_of_experts(op.dy, i / routes.per_token),
                                           bias_of(routes, op.bias, i, op.dy.cols), op.dy.cols);
                }
                scale_values(inner, op.inner.cols, routes.weights[i]);
            }
        });
}

void CpuBackend::weigh_rows(const WeighRows& op) {
    check_shapes(op);
    require_f32({&op.x});
    const ExpertRoutes& routes = op.routes;
    parallel_rows(threads_, routes.copies(), op.x.cols, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
            if (routes.places[i] < 0) continue;
            scale_values(row_of_experts(op.x, routes.places[i]), op.x.cols, routes.weights[i]);
        }
    });
}

void CpuBackend::route_backward(const RouteBackward& op) {
    check_shapes(op);
    require_f32({&op.d_logits});
    const ExpertRoutes& routes = op.routes;
    const std::int64_t k = routes.per_token;
    parallel_rows(threads_, routes.tokens, routes.routed(),
                  [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t t = begin; t < end; ++t) {
                          const float* p = routes.probabilities + t * routes.routed();
                          const std::int32_t* chosen = routes.chosen + t * k;
                          const float* d_weights = op.d_weights + t * k;
                          float sum = 0.0F;
                          float mean = 0.0F;
                          for (std::int64_t j = 0; j < k; ++j) {
                              sum += p[chosen[j]];
                              mean += d_weights[j] * op.scale * p[chosen[j]];
                          }
                          const bool alone = op.scores == RouterScores::sigmoid;
                          const float by = op.normalised ? divisor_of(sum, op.scores) : 1.0F;
                          const float less = op.normalised ? mean / by : 0.0F;
                          const float inner = op.normalised || alone ? 0.0F : mean;
                          float* d_logits = row_of_experts(op.d_logits, t);
                          for (std::int64_t e = 0; e < routes.routed(); ++e)
                              d_logits[e] = -p[e] * inner;
                          for (std::int64_t j = 0; j < k; ++j) {
                              const float own = p[chosen[j]];
                              const float d_score = (d_weights[j] * op.scale - less) / by;
                              d_logits[chosen[j]] =
                                  alone ? own * (1.0F - own) * d_score : own * (d_score - inner);
                          }
                      }
                  });
}

}  // namespace loratrain
