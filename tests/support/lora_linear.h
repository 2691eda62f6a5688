#pragma once

#include <algorithm>
#include <memory>

#include "reference/lora.h"
#include "support/device_data.h"

namespace loratrain {

/// Where the adapters of a linear have their columns of S: slot i its own ranks[i], one unused
/// column between neighbours, or all from column 0 on, as microbatches go by segment.
enum class SColumns : std::uint8_t { own, stacked };

/// The adapters of one linear [N, K], in a backend's memory.
class LoraLinear {
  public:
    /// Gradients are accumulated: they start here.
    static constexpr double gradient_start = 0.75;

    LoraLinear(Backend& backend, std::int64_t in, std::int64_t out,
               const std::vector<std::int32_t>& ranks, std::uint32_t dropout, std::uint64_t seed,
               SColumns columns = SColumns::own)
        : columns_(columns == SColumns::own ? 1 : 0) {
        for (std::size_t i = 0; i < ranks.size(); ++i) {
            const std::uint64_t key = seed * 1000 + i;
            factors_.push_back({reference::random_matrix(ranks[i], in, 2 * key),
                                reference::random_matrix(out, ranks[i], 2 * key + 1), ranks[i],
                                0.5F + static_cast<float>(i), columns_, dropout, key});
            if (columns == SColumns::own) columns_ += ranks[i] + 1;
        }
        if (columns == SColumns::stacked) {
            columns_ = (*std::max_element(ranks.begin(), ranks.end()) + 15) / 16 * 16;
        }
        for (const auto& factors : factors_) add_slot(backend, factors);
    }

    std::int64_t columns() const { return columns_; }
    const std::vector<reference::LoraFactors>& factors() const { return factors_; }
    const std::vector<LoraSlot>& slots() const { return slots_; }
    LoraTarget target(const TensorView& s) const { return {slots_, s}; }
    void begin_gradients() {
        for (LoraSlot& slot : slots_) slot.begins_gradients = true;
    }
    /// The factors of the gradients' shapes, with what operators add to.
    std::vector<reference::HostMatrix> gradient_starts(const reference::LoraBatch& batch,
                                                       bool of_a) const {
        std::vector<reference::HostMatrix> starts;
        for (std::size_t i = 0; i < slots_.size(); ++i) {
            const reference::HostMatrix& like = of_a ? factors_[i].a : factors_[i].b;
            const bool has_rows = std::any_of(
                batch.segments.begin(), batch.segments.end(), [&](const LoraSegment& segment) {
                    return segment.slot == static_cast<std::int32_t>(i) &&
                           segment.begin < segment.end;
                });
            const bool begins = slots_[i].begins_gradients && has_rows;
            starts.emplace_back(like.rows, like.cols, begins ? 0.0 : gradient_start);
        }
        return starts;
    }
    const DeviceVector<float>& grad_a(std::size_t slot) const { return *grad_a_[slot]; }
    const DeviceVector<float>& grad_b(std::size_t slot) const { return *grad_b_[slot]; }

  private:
    using Floats = std::unique_ptr<DeviceVector<float>>;

    void add_slot(Backend& backend, const reference::LoraFactors& f) {
        const auto floats = [&](const reference::HostMatrix& values) {
            return std::make_unique<DeviceVector<float>>(device_floats(backend, values));
        };
        a_.push_back(floats(f.a));
        b_.push_back(floats(f.b));
        grad_a_.push_back(floats(reference::HostMatrix(f.a.rows, f.a.cols, gradient_start)));
        grad_b_.push_back(floats(reference::HostMatrix(f.b.rows, f.b.cols, gradient_start)));
        slots_.push_back({a_.back()->data(), b_.back()->data(), grad_a_.back()->data(),
                          grad_b_.back()->data(), f.rank, f.scale, f.column, f.dropout,
                          f.dropout_key});
    }

    std::int32_t columns_;
    std::vector<reference::LoraFactors> factors_;
    std::vector<LoraSlot> slots_;
    std::vector<Floats> a_, b_, grad_a_, grad_b_;
};

/// An S or dS of the linear: random numbers in the columns of each row's own slot, else 0.
inline reference::HostMatrix own_columns(const LoraLinear& linear,
                                         const reference::LoraBatch& batch, std::int64_t rows,
                                         std::uint64_t seed, DType dtype) {
    const auto values = reference::random_matrix(rows, linear.columns(), seed, dtype);
    reference::HostMatrix result(rows, linear.columns());
    reference::for_each_lora_row(
        batch, linear.factors(),
        [&](std::int64_t row, const LoraSegment&, const reference::LoraFactors& f) {
            for (std::int32_t i = 0; i < f.rank; ++i) {
                result(row, f.column + i) = values(row, f.column + i);
            }
        });
    return result;
}

using Outputs = std::vector<std::vector<double>>;

inline std::vector<double> widened(const DeviceVector<float>& values) {
    const auto floats = values.download();
    return {floats.begin(), floats.end()};
}

/// All that the LoRA operators make of x [T, K] and y [T, N], which they change.
inline Outputs lora_outputs(Backend& backend, const LoraLinear& linear, const LoraRows& rows,
                            const DeviceMatrix& x, const DeviceMatrix& y) {
    const reference::HostMatrix zeros(x.view().rows, linear.columns());
    const DeviceMatrix s(backend, zeros);
    const DeviceMatrix ds(backend, zeros);
    const std::vector<LoraTarget> forward{linear.target(s.view())};
    const std::vector<LoraTarget> backward{linear.target(ds.view())};
    backend.lora_shrink({x.view(), forward, rows});
    backend.lora_backward({y.view(), forward[0], ds.view(), rows});
    backend.lora_expand({forward[0], y.view(), rows});
    backend.lora_grad_a({x.view(), backward, rows});
    backend.lora_expand_backward({x.view(), backward, rows, true});
    Outputs outputs;
    for (const DeviceMatrix* result : {&x, &y, &s, &ds}) {
        outputs.push_back(result->download().values);
    }
    for (const std::size_t slot : {0, 1}) {
        outputs.push_back(widened(linear.grad_a(slot)));
        outputs.push_back(widened(linear.grad_b(slot)));
    }
    return outputs;
}

}  // namespace loratrain
