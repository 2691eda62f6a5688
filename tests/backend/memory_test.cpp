#include <memory>
#include <numeric>

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

TEST_P(MemoryTest, ReadLaterGivesWhatWasThereAtTheCall) {
    std::vector<double> numbers(5000);
    std::iota(numbers.begin(), numbers.end(), 1.0);
    const DeviceVector<double> values(backend(), numbers);
    std::vector<std::unique_ptr<Readback>> reads;
    for (std::size_t round = 0; round < 300; ++round) {
        const ReadPart parts[] = {{values.data() + round, sizeof(double)},
                                  {values.data() + 300, 4700 * (round % 2) * sizeof(double)}};
        reads.push_back(backend().read_later(parts));
        backend().zero(values.data() + round, sizeof(double));
    }
    const std::unique_ptr<Readback> mark = backend().read_later({});
    backend().synchronize();
    EXPECT_TRUE(mark->ready());
    for (std::size_t round = 0; round < reads.size(); ++round) {
        EXPECT_TRUE(reads[round]->ready());
        const auto* read = static_cast<const double*>(reads[round]->value());
        EXPECT_EQ(read[0], numbers[round]);
        if (round % 2 == 1) {
            EXPECT_EQ(read[4700], 5000.0);
        }
        reads[round].reset();
    }
    const ReadPart last[] = {{values.data() + 4999, sizeof(double)}};
    EXPECT_EQ(*static_cast<const double*>(backend().read_later(last)->value()), 5000.0);
}

TEST(MakeBackend, RefusesWhatWasNotBuilt) {
    EXPECT_THROW(make_backend("gpu", {}), InputError);
    EXPECT_NE(make_backend("cpu", {2, 0})->description().find("cpu, 2 threads, "),
              std::string::npos);
}

LORATRAIN_FOR_EACH_BACKEND(MemoryTest);

}  // namespace
}  // namespace loratrain
