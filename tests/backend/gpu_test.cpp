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
    EXPECT_NO_THROW(require_shared_memory("NVIDIA A10", 101376, 101376));
    try {
        require_shared_memory("Tesla T4", 65536, 101376);
        FAIL() << "it was not refused";
    } catch (const InputError& error) {
        const std::string text = error.what();
        for (const char* part : {"Tesla T4", "64.0 KiB", "99.0 KiB", "8.0", "fp32"}) {
            EXPECT_NE(text.find(part), std::string::npos) << text;
        }
    }
}

TEST(Gpu, SharedMemoryCanBeLimited) {
    {
        const SharedLimit limit(1000);
        EXPECT_EQ(shared_memory_limit(232448), 232448);
    }
    {
        const SharedLimit limit(99);
        EXPECT_EQ(shared_memory_limit(232448), 99 * 1024);
        EXPECT_EQ(shared_memory_limit(65536), 65536);
    }
    const SharedLimit before(99);
    for (const char* wrong : {"99k", "0", "-1", "2000", "99 "}) {
        setenv("LORATRAIN_MAX_SHARED_KIB", wrong, 1);
        EXPECT_THROW(shared_memory_limit(232448), InputError) << wrong;
    }
}

TEST(Gpu, Fp8IsRefusedBeforeHopper) {
    GpuInfo gpu;
    gpu.name = "NVIDIA L40S";
    gpu.compute_capability = 89;
    try {
        require_fp8(gpu);
        FAIL() << "it was not refused";
    } catch (const InputError& error) {
        const std::string text = error.what();
        for (const char* part : {"NVIDIA L40S", "8.9", "9.0", "bf16"}) {
            EXPECT_NE(text.find(part), std::string::npos) << text;
        }
    }
    gpu.compute_capability = 90;
    EXPECT_NO_THROW(require_fp8(gpu));
}

TEST(Gpu, ProgramWithoutItsCodeSaysWhatToBuild) {
    GpuInfo gpu;
    gpu.name = "NVIDIA A100-SXM4-80GB";
    gpu.compute_capability = 80;
    try {
        refuse_architecture(gpu, "no kernel image is available");
        FAIL() << "it was not refused";
    } catch (const InputError& error) {
        const std::string text = error.what();
        for (const char* part : {"NVIDIA A100-SXM4-80GB", "8.0", "no kernel image is available",
                                 "-DCMAKE_CUDA_ARCHITECTURES=80"}) {
            EXPECT_NE(text.find(part), std::string::npos) << text;
        }
    }
}

}  // namespace
}  // namespace loratrain
