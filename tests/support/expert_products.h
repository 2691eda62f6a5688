#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "reference/experts.h"
#include "support/expert_adapters.h"
#include "support/expert_routes.h"

namespace loratrain {

/// What tests of products of experts share.

/// A router and the sides of experts. Of logits_of() some experts have no rows, some one.
struct ProductCase {
    RouterCase router;
    std::int64_t hidden;
    std::int64_t size;
};
/// Everything that an op of the case may read.
struct MadeRoutes {
    MadeRoutes(Backend& backend, const ProductCase& of)
        : logits(logits_of(of.router)),
          routes(logits, of.router.per_token, of.router.normalised),
          device(backend, of.router) {
        const DeviceMatrix of_device(backend, logits, 0, DType::f32);
        backend.route({of_device.view(), device.routes, of.router.normalised});
    }
    reference::HostMatrix logits;
    reference::Routes routes;
    DeviceRoutes device;
};

/// LoRA of three adapters on `linears` linears that share S: ranks 8, 12 and 3, with rows between
/// them that nobody has, and S with numbers in the rows' own columns alone.
class AddedToProduct {
  public:
    static constexpr std::int64_t columns = 144;

    AddedToProduct(Backend& backend, const reference::Routes& routes, const RouterCase& of,
                   std::int64_t cols, bool of_b, std::int64_t linears)
        : s_(std::ssize(routes.rows), columns), device_([&] {
              for (std::int64_t i = 0; i < linears; ++i) add(backend, of, cols, of_b, i * 16);
              fill(routes, backend.compute_dtype());
              return DeviceMatrix(backend, s_, 8);
          }()) {}

    /// Of linear i, which adds to `wide`.
    ExpertLora op(std::size_t i, const TensorView& wide, const ExpertRoutes& routes) const {
        return adapters_[i]->op(wide, device_.view(), routes);
    }

    /// `sums` with what linear i adds to its columns from `first` on.
    reference::HostMatrix added(const reference::Routes& routes, std::size_t i,
                                const reference::HostMatrix& sums) const {
        return reference::widen_experts(routes, adapters_[i]->factors, s_, sums);
    }

  private:
    void add(Backend& backend, const RouterCase& of, std::int64_t cols, bool of_b,
             std::int64_t column) {
        const std::int64_t t = of.tokens;
        auto adapters = std::make_unique<ExpertAdapters>(backend, of, cols, of_b);
        adapters->add(0, t / 4, 8, column, 1.0);
        adapters->add(t / 4, t / 4 + t / 3, 12, 40 + column, 1.0);
        adapters->add(t - t / 3, t, 3, 109 + column, 1.0);
        adapters_.push_back(std::move(adapters));
    }

    void fill(const reference::Routes& routes, DType dtype) {
        const reference::HostMatrix numbers = reference::random_matrix(s_.rows, columns, 11, dtype);
        for (const auto& adapters : adapters_) {
            reference::for_each_row(
                routes, adapters->factors,
                [&](const reference::ExpertFactors& of, std::int64_t p, std::int64_t) {
                    for (std::int64_t r = 0; r < of.rank; ++r) {
                        s_(p, of.column + r) = numbers(p, of.column + r);
                    }
                });
        }
    }

    std::vector<std::unique_ptr<ExpertAdapters>> adapters_;
    reference::HostMatrix s_;
    DeviceMatrix device_;
};

/// Adds to each place's row of y the row of its expert of biases [E, N].
inline void add_bias_rows(const reference::Routes& routes, const reference::HostMatrix& bias,
                          reference::HostMatrix& y) {
    for (std::int64_t e = 0; e < bias.rows; ++e) {
        for (std::int64_t p = routes.offsets[static_cast<std::size_t>(e)];
             p < routes.offsets[static_cast<std::size_t>(e) + 1]; ++p) {
            for (std::int64_t c = 0; c < bias.cols; ++c) y(p, c) += bias(e, c);
        }
    }
}

/// `whole` with columns [first, first + part.cols) of `part`.
inline reference::HostMatrix with_columns(reference::HostMatrix whole,
                                          const reference::HostMatrix& part, std::int64_t first) {
    for (std::int64_t row = 0; row < part.rows; ++row) {
        for (std::int64_t col = 0; col < part.cols; ++col) whole(row, first + col) = part(row, col);
    }
    return whole;
}
inline reference::HostMatrix columns_of(const reference::HostMatrix& whole, std::int64_t first,
                                        std::int64_t cols) {
    reference::HostMatrix part(whole.rows, cols);
    for (std::int64_t row = 0; row < part.rows; ++row) {
        for (std::int64_t col = 0; col < cols; ++col) part(row, col) = whole(row, first + col);
    }
    return part;
}

}  // namespace loratrain
