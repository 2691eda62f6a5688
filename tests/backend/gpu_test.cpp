#include <cstdlib>

#include "support/backend_case.h"

namespace loratrain {
namespace {

/// Without a GPU the operator tests leave out the CUDA backend; this test tells why, and fails
/// where LORATRAIN_TEST_REQUIRE_GPUS asks for GPUs.
TEST(Gpu, CudaBackendIsTested) {
    const std::string missing = missing_cuda();
    const char* required = std::getenv("LORATRAIN_TEST_REQUIRE_GPUS");
    if (missing.empty()) {
        const auto backend = make_backend("cuda", {1, 0, DType::bf16});
        EXPECT_EQ(backend->compute_dtype(), DType::bf16);
        EXPECT_NE(backend->description().find("cuda, "), std::string::npos);
    } else if (required != nullptr && std::atoi(required) >= 1) {
        FAIL() << missing;
    } else {
        GTEST_SKIP() << missing;
    }
}

}  // namespace
}  // namespace loratrain
