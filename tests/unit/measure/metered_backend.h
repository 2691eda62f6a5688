#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_backend.h"

namespace loratrain::test {

/// A clock that shows what `seconds` has come to.
class MeterClock final : public StreamClock {
  public:
    explicit MeterClock(const double& seconds) : seconds_(seconds) {}
    void mark() override { points_.push_back(seconds_); }
    std::vector<double> read() override {
        std::vector<double> points = std::exchange(points_, {});
        for (std::size_t i = points.size(); i-- > 0;) points[i] -= points[0];
        return points;
    }

  private:
    const double& seconds_;
    std::vector<double> points_;
};

/// Computes as the CPU backend does, but time is what the work counts for, so that costs that are
/// measured are known exactly, whatever else the machine does: with x = slowness
///   a GEMM of m, n, k       x 1e-9 m n k
///   attention               x (1e-3 + 1e-7 sum of squared sample lengths), backward twice that
///   AdamW of n parameters   x (1e-3 + 1e-8 n)
class MeteredBackend final : public CpuBackend {
  public:
    explicit MeteredBackend(double slowness = 1.0) : CpuBackend(1), slowness_(slowness) {}

    double seconds() const { return seconds_; }
    std::unique_ptr<StreamClock> make_clock() override {
        return std::make_unique<MeterClock>(seconds_);
    }

    void gemm(const Gemm& op) override {
        const auto depth = static_cast<double>(op.transpose_a ? op.a.rows : op.a.cols);
        spend(1e-9 * static_cast<double>(op.c.rows) * static_cast<double>(op.c.cols) * depth);
        CpuBackend::gemm(op);
    }
    void attention(const Attention& op) override {
        spend(1e-3 + 1e-7 * squares(op.rows));
        CpuBackend::attention(op);
    }
    void attention_backward(const AttentionBackward& op) override {
        spend(2.0 * (1e-3 + 1e-7 * squares(op.forward.rows)));
        CpuBackend::attention_backward(op);
    }
    void adamw(const AdamW& op) override {
        spend(1e-3 + 1e-8 * static_cast<double>(op.count));
        CpuBackend::adamw(op);
    }

  private:
    void spend(double seconds) { seconds_ += slowness_ * seconds; }
    static double squares(const PackedRows& rows) {
        double sum = 0.0;
        for (std::int64_t s = 0; s < rows.samples; ++s) {
            const double length = rows.host_offsets[s + 1] - rows.host_offsets[s];
            sum += length * length;
        }
        return sum;
    }

    double slowness_;
    double seconds_ = 0.0;
};

}  // namespace loratrain::test
