#include <cstdlib>

#include "backend/gpu_info.h"
#include "base/error.h"
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

TEST(Gpu, TooLittleSharedMemoryIsAnInputError) {
    EXPECT_NO_THROW(require_shared_memory("NVIDIA H200", 232448, 232448));
    try {
        require_shared_memory("NVIDIA A100", 166912, 232448);
        FAIL() << "it was not refused";
    } catch (const InputError& error) {
        const std::string text = error.what();
        for (const char* part : {"NVIDIA A100", "163.0 KiB", "227.0 KiB", "fp32"}) {
            EXPECT_NE(text.find(part), std::string::npos) << text;
        }
    }
}

}  // namespace
}  // namespace loratrain
