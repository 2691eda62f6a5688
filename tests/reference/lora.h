#pragma once

#include <vector>

#include "backend/backend.h"
#include "base/rng.h"
#include "reference/host_matrix.h"

namespace loratrain::reference {

/// One adapter's factors on one linear.
struct LoraFactors {
    HostMatrix a;  ///< [rank, K]
    HostMatrix b;  ///< [N, rank]
    std::int32_t rank = 0;
    float scale = 1.0F;
    std::int32_t column = 0;
    std::uint32_t dropout = 0;
    std::uint64_t dropout_key = 0;
};

/// The rows of a microbatch.
struct LoraBatch {
    std::vector<LoraSegment> segments;
    std::vector<std::int32_t> positions;
    std::vector<std::int32_t> sample_ids;
};

/// 0 for a dropped element, 1/(1-p) for a kept one.
inline double dropout_factor(const LoraFactors& factors, const LoraSegment& segment,
                             const LoraBatch& batch, std::int64_t row, std::int64_t col) {
    if (factors.dropout == 0) return 1.0;
    const auto words = dropout_bits(
        factors.dropout_key, segment.step, static_cast<std::uint32_t>(batch.sample_ids[row]),
        static_cast<std::uint32_t>(batch.positions[row]), static_cast<std::uint32_t>(col / 8));
    const std::uint32_t word = words[col % 8 / 2];
    const std::uint32_t bits = col % 2 == 0 ? word & 0xffffU : word >> 16U;
    return bits < factors.dropout ? 0.0 : dropout_scale(factors.dropout);
}

/// body(row, segment, factors) for every row of a segment whose adapter targets this linear.
template <class Body>
void for_each_lora_row(const LoraBatch& batch, const std::vector<LoraFactors>& slots,
                       const Body& body) {
    for (const LoraSegment& segment : batch.segments) {
        for (std::int64_t row = segment.begin; row < segment.end; ++row) {
            if (slots[segment.slot].rank > 0) body(row, segment, slots[segment.slot]);
        }
    }
}

inline HostMatrix lora_shrink(const HostMatrix& x, const std::vector<LoraFactors>& slots,
                              const LoraBatch& batch, std::int64_t columns) {
    HostMatrix s(x.rows, columns);
    for_each_lora_row(
        batch, slots, [&](std::int64_t row, const LoraSegment& segment, const LoraFactors& f) {
            for (std::int64_t k = 0; k < x.cols; ++k) {
                const double dropped = x(row, k) * dropout_factor(f, segment, batch, row, k);
                for (std::int32_t i = 0; i < f.rank; ++i) {
                    s(row, f.column + i) += f.scale * dropped * f.a(i, k);
                }
            }
        });
    return s;
}

/// y + S Bᵀ.
inline HostMatrix lora_expand(const HostMatrix& y, const HostMatrix& s,
                              const std::vector<LoraFactors>& slots, const LoraBatch& batch) {
    HostMatrix result = y;
    for_each_lora_row(batch, slots,
                      [&](std::int64_t row, const LoraSegment&, const LoraFactors& f) {
                          for (std::int64_t n = 0; n < y.cols; ++n) {
                              for (std::int32_t i = 0; i < f.rank; ++i) {
                                  result(row, n) += s(row, f.column + i) * f.b(n, i);
                              }
                          }
                      });
    return result;
}

/// dS = scale dY B.
inline HostMatrix lora_ds(const HostMatrix& dy, const std::vector<LoraFactors>& slots,
                          const LoraBatch& batch, std::int64_t columns) {
    HostMatrix ds(dy.rows, columns);
    for_each_lora_row(batch, slots,
                      [&](std::int64_t row, const LoraSegment&, const LoraFactors& f) {
                          for (std::int64_t n = 0; n < dy.cols; ++n) {
                              for (std::int32_t i = 0; i < f.rank; ++i) {
                                  ds(row, f.column + i) += f.scale * dy(row, n) * f.b(n, i);
                              }
                          }
                      });
    return ds;
}

/// grad_b += dYᵀ S, one matrix per slot.
inline void add_lora_grad_b(const HostMatrix& dy, const HostMatrix& s,
                            const std::vector<LoraFactors>& slots, const LoraBatch& batch,
                            std::vector<HostMatrix>& grad_b) {
    for_each_lora_row(batch, slots,
                      [&](std::int64_t row, const LoraSegment& segment, const LoraFactors& f) {
                          for (std::int64_t n = 0; n < dy.cols; ++n) {
                              for (std::int32_t i = 0; i < f.rank; ++i) {
                                  grad_b[segment.slot](n, i) += dy(row, n) * s(row, f.column + i);
                              }
                          }
                      });
}

/// grad_a += dSᵀ drop(X), one matrix per slot.
inline void add_lora_grad_a(const HostMatrix& x, const HostMatrix& ds,
                            const std::vector<LoraFactors>& slots, const LoraBatch& batch,
                            std::vector<HostMatrix>& grad_a) {
    for_each_lora_row(
        batch, slots, [&](std::int64_t row, const LoraSegment& segment, const LoraFactors& f) {
            for (std::int64_t k = 0; k < x.cols; ++k) {
                const double dropped = x(row, k) * dropout_factor(f, segment, batch, row, k);
                for (std::int32_t i = 0; i < f.rank; ++i) {
                    grad_a[segment.slot](i, k) += ds(row, f.column + i) * dropped;
                }
            }
        });
}

/// x with column k times weight[k] + offset: of sums over rows, as of x.
inline HostMatrix weighted(HostMatrix x, const HostMatrix& weight, double offset) {
    for (std::int64_t row = 0; row < x.rows; ++row) {
        for (std::int64_t k = 0; k < x.cols; ++k) x(row, k) *= weight(0, k) + offset;
    }
    return x;
}

/// dX += drop'(dS A).
inline void add_lora_dx(const HostMatrix& ds, const std::vector<LoraFactors>& slots,
                        const LoraBatch& batch, HostMatrix& dx) {
    for_each_lora_row(batch, slots,
                      [&](std::int64_t row, const LoraSegment& segment, const LoraFactors& f) {
                          for (std::int64_t k = 0; k < dx.cols; ++k) {
                              const double factor = dropout_factor(f, segment, batch, row, k);
                              for (std::int32_t i = 0; i < f.rank; ++i) {
                                  dx(row, k) += factor * ds(row, f.column + i) * f.a(i, k);
                              }
                          }
                      });
}

}  // namespace loratrain::reference
