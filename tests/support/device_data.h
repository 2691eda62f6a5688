#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "reference/host_matrix.h"
#include "support/tolerance.h"

namespace loratrain {

/// An array in a backend's memory.
template <class T>
class DeviceVector {
  public:
    DeviceVector(Backend& backend, const std::vector<T>& values)
        : backend_(&backend),
          count_(values.size()),
          buffer_(backend.allocate(values.size() * sizeof(T), "test vector")) {
        backend.upload(buffer_.data(), values.data(), values.size() * sizeof(T));
    }
    T* data() const { return buffer_.template as<T>(); }
    std::vector<T> download() const {
        std::vector<T> result(count_);
        backend_->synchronize();
        backend_->download(result.data(), buffer_.data(), count_ * sizeof(T));
        return result;
    }

  private:
    Backend* backend_;
    std::size_t count_;
    Buffer buffer_;
};

/// A matrix in a backend's memory whose rows are `padding` elements further apart than needed. The
/// padding holds NaN, and download() fails the test when an operator wrote into it.
class DeviceMatrix {
  public:
    DeviceMatrix(Backend& backend, const reference::HostMatrix& values, std::int64_t padding,
                 DType dtype)
        : backend_(&backend) {
        const std::int64_t ld = values.cols + padding;
        const std::size_t bytes = static_cast<std::size_t>(values.rows * ld) * size_of(dtype);
        buffer_ = backend.allocate(bytes, "test matrix");
        view_ = {buffer_.data(), dtype, values.rows, values.cols, ld};
        std::vector<char> host(bytes);
        for (std::int64_t row = 0; row < values.rows; ++row) {
            for (std::int64_t col = 0; col < ld; ++col) {
                store(host, row * ld + col,
                      col < values.cols ? values(row, col)
                                        : std::numeric_limits<double>::quiet_NaN());
            }
        }
        backend.upload(buffer_.data(), host.data(), bytes);
    }
    DeviceMatrix(Backend& backend, const reference::HostMatrix& values, std::int64_t padding = 0)
        : DeviceMatrix(backend, values, padding, backend.compute_dtype()) {}

    const TensorView& view() const { return view_; }
    void* data() const { return view_.data; }

    reference::HostMatrix download() const {
        std::vector<char> host(buffer_.bytes());
        backend_->synchronize();
        backend_->download(host.data(), buffer_.data(), host.size());
        reference::HostMatrix result(view_.rows, view_.cols);
        std::int64_t touched = 0;
        for (std::int64_t row = 0; row < view_.rows; ++row) {
            for (std::int64_t col = 0; col < view_.ld; ++col) {
                const double value = load(host, row * view_.ld + col);
                if (col < view_.cols) {
                    result(row, col) = value;
                } else {
                    touched += std::isnan(value) ? 0 : 1;
                }
            }
        }
        EXPECT_EQ(touched, 0) << "padding was written";
        return result;
    }

  private:
    void store(std::vector<char>& host, std::int64_t i, double value) const {
        const auto single = static_cast<float>(value);
        const BFloat16 half = to_bfloat16(single);
        const bool wide = view_.dtype == DType::f32;
        const void* source = wide ? static_cast<const void*>(&single) : &half;
        std::memcpy(host.data() + i * static_cast<std::int64_t>(size_of(view_.dtype)), source,
                    size_of(view_.dtype));
    }
    double load(const std::vector<char>& host, std::int64_t i) const {
        float single = 0.0F;
        BFloat16 half{};
        const bool wide = view_.dtype == DType::f32;
        std::memcpy(wide ? static_cast<void*>(&single) : &half,
                    host.data() + i * static_cast<std::int64_t>(size_of(view_.dtype)),
                    size_of(view_.dtype));
        return wide ? single : to_float(half);
    }

    Backend* backend_;
    Buffer buffer_;
    TensorView view_;
};

/// Of what is not 0: S of many adapters is 0 outside a row's own columns.
inline double root_mean_square(const std::vector<double>& values) {
    double sum = 0.0;
    std::int64_t count = 0;
    for (const double value : values) {
        sum += value * value;
        count += value != 0.0 ? 1 : 0;
    }
    return count == 0 ? 0.0 : std::sqrt(sum / static_cast<double>(count));
}

/// Fails the test at the element with the largest error when that exceeds the tolerance.
inline void expect_close(const std::vector<double>& got, const std::vector<double>& expected,
                         Tolerance tolerance, const std::string& what) {
    ASSERT_EQ(got.size(), expected.size()) << what;
    const double scale = root_mean_square(expected);
    constexpr double underflow = 1e-37;
    double worst = 0.0;
    std::size_t at = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        const double size = scale + std::fabs(expected[i]);
        const double difference = std::fabs(got[i] - expected[i]);
        const double error = difference <= underflow ? 0.0 : difference / size;
        if (!(error <= worst)) {
            worst = error;
            at = i;
            if (std::isnan(error)) break;
        }
    }
    EXPECT_LE(worst, tolerance.relative)
        << what << ": element " << at << " is " << (got.empty() ? 0.0 : got[at]) << ", expected "
        << (got.empty() ? 0.0 : expected[at]);
}

inline void expect_close(const DeviceMatrix& got, const reference::HostMatrix& expected,
                         const std::string& what) {
    expect_close(got.download().values, expected.values, tolerance_of(got.view().dtype), what);
}

/// fp32 arrays (factors, gradients) of a backend that computes in `dtype`.
inline void expect_close(const DeviceVector<float>& got, const reference::HostMatrix& expected,
                         DType dtype, const std::string& what) {
    const std::vector<float> values = got.download();
    expect_close(std::vector<double>(values.begin(), values.end()), expected.values,
                 tolerance_of(dtype), what);
}

inline DeviceVector<float> device_floats(Backend& backend, const reference::HostMatrix& values) {
    return {backend, std::vector<float>(values.values.begin(), values.values.end())};
}

}  // namespace loratrain
