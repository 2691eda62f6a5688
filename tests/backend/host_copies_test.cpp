#include "backend/host_copies.h"

#include <array>
#include <cstring>

#include "base/error.h"
#include "base/pages.h"
#include "support/backend_case.h"
#include "support/device_data.h"

namespace loratrain {
namespace {

class HostCopiesTest : public BackendTest {};

std::vector<std::uint8_t> numbers(std::size_t count, unsigned seed) {
    std::vector<std::uint8_t> bytes(count);
    for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::uint8_t>(seed + i * 7);
    return bytes;
}

TEST_P(HostCopiesTest, RowsGoThereAndBackAndLeavePadsAlone) {
    constexpr std::size_t rows = 300;
    constexpr std::size_t row_bytes = 64;
    constexpr std::size_t pitch = 96;
    HostPages pages(std::size_t{1} << 20U);
    const auto link = backend().make_host_copies(1);
    link->pin(pages.data(), pages.bytes());
    const std::vector<std::uint8_t> before = numbers(rows * pitch, 3);
    const DeviceVector<std::uint8_t> source(backend(), before);
    link->save(std::array{HostCopy{source.data(), pitch, pages.data(), row_bytes, rows}});
    const DeviceVector<std::uint8_t> target(backend(), std::vector<std::uint8_t>(rows * pitch, 1));
    link->load(0, std::array{HostCopy{target.data(), pitch, pages.data(), row_bytes, rows}});
    link->await(0);
    const std::vector<std::uint8_t> after = target.download();
    for (std::size_t i = 0; i < after.size(); ++i) {
        ASSERT_EQ(after[i], i % pitch < row_bytes ? before[i] : 1) << i;
    }
}

/// Each store takes what was there when it was called, and what is queued behind await() may write
/// there again; a load behind a store brings what that took.
TEST_P(HostCopiesTest, StoresKeepTheOrderOfTheStream) {
    constexpr std::size_t bytes = std::size_t{66} << 20U;  // two copies on CUDA
    constexpr std::int32_t stores = 4;
    HostPages pages(stores * bytes);
    const auto link = backend().make_host_copies(2);
    link->pin(pages.data(), pages.bytes());
    const std::array buffers{backend().allocate(bytes, "test"), backend().allocate(bytes, "test")};
    for (std::int32_t i = 0; i < stores; ++i) {
        const Buffer& buffer = buffers[static_cast<std::size_t>(i % 2)];
        link->await(i % 2);
        const std::vector<std::uint8_t> values(bytes, static_cast<std::uint8_t>(i + 1));
        backend().upload(buffer.data(), values.data(), bytes);
        link->store(i % 2, std::array{HostCopy{buffer.data(), bytes,
                                               pages.data() + static_cast<std::size_t>(i) * bytes,
                                               bytes, 1}});
    }
    for (const std::int32_t i : {3, 1, 2, 0}) {
        const Buffer& buffer = buffers[static_cast<std::size_t>(i % 2)];
        link->load(i % 2, std::array{HostCopy{buffer.data(), bytes,
                                              pages.data() + static_cast<std::size_t>(i) * bytes,
                                              bytes, 1}});
        link->await(i % 2);
        std::vector<std::uint8_t> seen(bytes);
        backend().download(seen.data(), buffer.data(), bytes);
        for (const std::size_t at : {std::size_t{0}, bytes / 2, bytes - 1}) {
            ASSERT_EQ(seen[at], i + 1) << i << " at " << at;
        }
    }
    link->close();
    for (std::int32_t i = 0; i < stores; ++i) {
        const char* stored = pages.data() + static_cast<std::size_t>(i) * bytes;
        EXPECT_EQ(stored[0], i + 1);
        EXPECT_EQ(stored[bytes - 1], i + 1);
    }
}

/// As rows come from where another rank holds them, with pads between them there too.
TEST_P(HostCopiesTest, RowsComeFromOtherMemoryOfTheBackend) {
    constexpr std::size_t rows = 300;
    constexpr std::size_t row_bytes = 64;
    constexpr std::size_t pitch = 96;
    constexpr std::size_t other_pitch = 128;
    const auto link = backend().make_host_copies(1);
    const std::vector<std::uint8_t> held = numbers(rows * other_pitch, 3);
    const DeviceVector<std::uint8_t> source(backend(), held);
    const DeviceVector<std::uint8_t> target(backend(), std::vector<std::uint8_t>(rows * pitch, 1));
    link->load(
        0, std::array{HostCopy{target.data(), pitch, source.data(), row_bytes, rows, other_pitch}});
    link->await(0);
    const std::vector<std::uint8_t> after = target.download();
    for (std::size_t i = 0; i < after.size(); ++i) {
        const std::size_t column = i % pitch;
        ASSERT_EQ(after[i], column < row_bytes ? held[i / pitch * other_pitch + column] : 1) << i;
    }
}

/// What other processes may open is the whole of an allocation on a GPU; elsewhere nothing.
TEST_P(HostCopiesTest, OffersMemoryOfGpusAlone) {
    const auto link = backend().make_host_copies(1);
    const Buffer memory = backend().allocate(std::size_t{2} << 20U, "test");
    if (backend().description().starts_with("cpu")) {
        EXPECT_THROW(link->offer(memory.data()), Error);
        EXPECT_THROW(link->open(""), Error);
    } else {
        EXPECT_FALSE(link->offer(memory.data()).empty());
    }
    link->close();
}

/// Each load waits for what was queued before it, and what is queued behind await() for the load.
TEST_P(HostCopiesTest, LoadsKeepTheOrderOfTheStream) {
    constexpr std::size_t bytes = std::size_t{66} << 20U;  // two copies on CUDA
    constexpr std::int64_t floats = bytes / sizeof(float);
    constexpr std::int32_t loads = 3;
    HostPages pages(loads * bytes);
    for (std::int32_t i = 0; i < loads; ++i) {
        std::memset(pages.data() + static_cast<std::size_t>(i) * bytes, i + 1, bytes);
    }
    const auto link = backend().make_host_copies(2);
    link->pin(pages.data(), pages.bytes());
    const Buffer buffer = backend().allocate(bytes, "test");
    const Buffer seen = backend().allocate(loads * bytes, "test");
    for (std::int32_t i = 0; i < loads; ++i) {
        const auto at = static_cast<std::size_t>(i) * bytes;
        link->load(i % 2, std::array{HostCopy{buffer.data(), bytes, pages.data() + at, bytes, 1}});
        link->await(i % 2);
        backend().copy({matrix(seen.as<char>() + at, DType::f32, 1, floats),
                        matrix(buffer.data(), DType::f32, 1, floats)});
    }
    std::vector<char> read(loads * bytes);
    backend().download(read.data(), seen.data(), read.size());
    EXPECT_EQ(std::memcmp(read.data(), pages.data(), read.size()), 0);
}

LORATRAIN_FOR_EACH_BACKEND(HostCopiesTest);

}  // namespace
}  // namespace loratrain
