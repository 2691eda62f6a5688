#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "backend/make_backend.h"
#include "base/error.h"
#include "base/text.h"
#include "reference/host_matrix.h"
#include "support/shared_limit.h"
#include "support/tolerance.h"

namespace loratrain {

/// A backend under test; the operator tests run once per case of backend_cases().
struct BackendCase {
    std::string name;
    std::function<std::unique_ptr<Backend>()> make;
};

inline std::ostream& operator<<(std::ostream& out, const BackendCase& backend) {
    return out << backend.name;
}

/// Empty when the CUDA backend can run here, else why not.
inline std::string missing_cuda() {
    try {
        make_backend("cuda", {});
    } catch (const InputError& error) {
        return error.problems().front().what;
    }
    return "";
}

inline bool has_cuda() {
    static const bool result = missing_cuda().empty();
    return result;
}

/// The CPU, and both compute types of the CUDA backend where there is a GPU (gpu_test.cpp says so
/// when there is none).
inline std::vector<BackendCase> backend_cases() {
    const auto cpu = [](int threads) {
        return [threads] { return make_backend("cpu", {threads, 0}); };
    };
    const auto cuda = [](DType compute) {
        return [compute] { return make_backend("cuda", {1, 0, compute}); };
    };
    std::vector<BackendCase> cases{{"cpu_1_thread", cpu(1)}, {"cpu_2_threads", cpu(2)}};
    if (has_cuda()) {
        cases.push_back({"cuda_fp32", cuda(DType::f32)});
        cases.push_back({"cuda_bf16", cuda(DType::bf16)});
    }
    return cases;
}

/// The CUDA backend in bf16 with the shared memory of sm_80 and of sm_86 and sm_89, where the GPU
/// has as much: with its own limit it is one of backend_cases().
inline std::vector<BackendCase> shared_limit_cases() {
    std::vector<BackendCase> cases;
    for (const int kib : {163, 99}) {
        const auto make = [kib] {
            const SharedLimit limit(kib);
            return make_backend("cuda", {1, 0, DType::bf16});
        };
        if (has_cuda()) cases.push_back({cat("cuda_bf16_", kib, "_kib"), make});
    }
    return cases;
}

class BackendTest : public testing::TestWithParam<BackendCase> {
  protected:
    Backend& backend() { return *backend_; }
    DType dtype() const { return backend_->compute_dtype(); }
    bool is_cpu() const { return GetParam().name.starts_with("cpu"); }
    reference::HostMatrix random(std::int64_t rows, std::int64_t cols, std::uint64_t seed) const {
        return reference::random_matrix(rows, cols, seed, dtype());
    }

  private:
    std::unique_ptr<Backend> backend_ = GetParam().make();
};

#define LORATRAIN_FOR_EACH_BACKEND(Suite)                    \
    INSTANTIATE_TEST_SUITE_P(                                \
        Backends, Suite, testing::ValuesIn(backend_cases()), \
        [](const testing::TestParamInfo<BackendCase>& backend) { return backend.param.name; })

/// Also with less shared memory.
#define LORATRAIN_FOR_EACH_BACKEND_AND_LIMIT(Suite)             \
    LORATRAIN_FOR_EACH_BACKEND(Suite);                          \
    INSTANTIATE_TEST_SUITE_P(                                   \
        Limits, Suite, testing::ValuesIn(shared_limit_cases()), \
        [](const testing::TestParamInfo<BackendCase>& backend) { return backend.param.name; })

}  // namespace loratrain
