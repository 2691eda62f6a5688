#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "backend/make_backend.h"
#include "base/text.h"
#include "reference/host_matrix.h"
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

inline std::vector<BackendCase> backend_cases() {
    const auto cpu = [](int threads) {
        return [threads] { return make_backend("cpu", {threads, 0}); };
    };
    return {{"cpu_1_thread", cpu(1)}, {"cpu_2_threads", cpu(2)}};
}

class BackendTest : public testing::TestWithParam<BackendCase> {
  protected:
    Backend& backend() { return *backend_; }
    DType dtype() const { return backend_->compute_dtype(); }
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

}  // namespace loratrain
