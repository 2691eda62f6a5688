#include "base/error.h"
#include "support/backend_case.h"
#include "support/device_data.h"

namespace loratrain {
namespace {

class MemoryTest : public BackendTest {};

TEST_P(MemoryTest, AllocationsAreZeroedAlignedAndCounted) {
    const std::size_t before = backend().memory().current;
    {
        const Buffer buffer = backend().allocate(3000001, "weights");
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0U);
        EXPECT_EQ(backend().memory().current - before, 3000001U);
        std::vector<char> host(3000001, 'x');
        backend().download(host.data(), buffer.data(), host.size());
        EXPECT_EQ(host, std::vector<char>(3000001, 0));
    }
    EXPECT_EQ(backend().memory().current, before);
    EXPECT_GE(backend().memory().peak, before + 3000001U);
    EXPECT_EQ(backend().allocate(0, "nothing").bytes(), 0U);
}

TEST_P(MemoryTest, FailureNamesWhatAndBytes) {
    try {
        const Buffer buffer = backend().allocate(std::size_t{1} << 60U, "activations of layer 3");
        FAIL() << "an exbibyte was allocated";
    } catch (const Error& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find("activations of layer 3"), std::string::npos) << text;
        EXPECT_NE(text.find("1152921504606846976"), std::string::npos) << text;
    }
}

TEST_P(MemoryTest, ZeroClearsARange) {
    const DeviceVector<float> values(backend(), {1.0F, 2.0F, 3.0F});
    backend().zero(values.data() + 1, sizeof(float));
    EXPECT_EQ(values.download(), (std::vector<float>{1.0F, 0.0F, 3.0F}));
    backend().zero(values.data(), 0);
}

TEST(MakeBackend, RefusesWhatWasNotBuilt) {
    EXPECT_THROW(make_backend("gpu", {}), InputError);
    EXPECT_NE(make_backend("cpu", {2, 0})->description().find("cpu, 2 threads, "),
              std::string::npos);
}

LORATRAIN_FOR_EACH_BACKEND(MemoryTest);

}  // namespace
}  // namespace loratrain
