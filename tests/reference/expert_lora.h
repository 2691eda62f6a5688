#pragma once

#include <cstdint>
#include <vector>

#include "reference/experts.h"

namespace loratrain::reference {

/// The factor of one adapter in each expert, [E * rank, N] of A or [E * N, rank] of B, and the rows
/// of T that are the adapter's.
struct ExpertFactors {
    HostMatrix values;
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::int64_t rank = 0;
    std::int64_t column = 0;
    double scale = 1.0;
    bool of_b = false;

    /// Row and column of M_e [rank, N] in `values`.
    std::int64_t row_of(std::int64_t e, std::int64_t r, std::int64_t n, std::int64_t cols) const {
        return of_b ? e * cols + n : e * rank + r;
    }
    std::int64_t col_of(std::int64_t r, std::int64_t n) const { return of_b ? r : n; }
};

/// visit(factors, row in the order of experts, expert) of what adapters have.
template <class Visit>
void for_each_row(const Routes& routes, const std::vector<ExpertFactors>& adapters,
                  const Visit& visit) {
    for (const ExpertFactors& of : adapters) {
        for (std::int64_t t = of.begin; t < of.end; ++t) {
            for (std::int64_t j = 0; j < routes.per_token; ++j) {
                const auto i = static_cast<std::size_t>(t * routes.per_token + j);
                visit(of, routes.places[i], routes.chosen[i]);
            }
        }
    }
}

inline HostMatrix narrow_experts(const Routes& routes, const std::vector<ExpertFactors>& adapters,
                                 const HostMatrix& wide, std::int64_t columns) {
    HostMatrix narrow(wide.rows, columns);
    for_each_row(routes, adapters, [&](const ExpertFactors& of, std::int64_t p, std::int64_t e) {
        for (std::int64_t r = 0; r < of.rank; ++r) {
            double sum = 0.0;
            for (std::int64_t n = 0; n < wide.cols; ++n) {
                sum += wide(p, n) * of.values(of.row_of(e, r, n, wide.cols), of.col_of(r, n));
            }
            narrow(p, of.column + r) = of.scale * sum;
        }
    });
    return narrow;
}

inline HostMatrix widen_experts(const Routes& routes, const std::vector<ExpertFactors>& adapters,
                                const HostMatrix& narrow, HostMatrix wide) {
    for_each_row(routes, adapters, [&](const ExpertFactors& of, std::int64_t p, std::int64_t e) {
        for (std::int64_t r = 0; r < of.rank; ++r) {
            for (std::int64_t n = 0; n < wide.cols; ++n) {
                wide(p, n) += narrow(p, of.column + r) *
                              of.values(of.row_of(e, r, n, wide.cols), of.col_of(r, n));
            }
        }
    });
    return wide;
}

/// In each ExpertFactors::values the gradient.
inline void add_expert_grads(const Routes& routes, std::vector<ExpertFactors>& gradients,
                             const HostMatrix& narrow, const HostMatrix& wide) {
    for (ExpertFactors& own : gradients) {
        for_each_row(routes, {own}, [&](const ExpertFactors& of, std::int64_t p, std::int64_t e) {
            for (std::int64_t r = 0; r < of.rank; ++r) {
                for (std::int64_t n = 0; n < wide.cols; ++n) {
                    own.values(of.row_of(e, r, n, wide.cols), of.col_of(r, n)) +=
                        narrow(p, of.column + r) * wide(p, n);
                }
            }
        });
    }
}

}  // namespace loratrain::reference
