#include "io/run_files/event_file.h"

#include <gtest/gtest.h>

namespace loratrain {
namespace {

std::string bytes(std::initializer_list<int> values) {
    std::string text;
    for (const int value : values) text += static_cast<char>(value);
    return text;
}

TEST(EventFile, Crc32cOfTheStandardsExamples) {
    EXPECT_EQ(crc32c(""), 0U);
    EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
    EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
    EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
}

TEST(EventFile, MaskRotatesAndAdds) {
    const std::uint32_t crc = 0xe3069283U;
    EXPECT_EQ(masked_crc32c("123456789"), ((crc >> 15U) | (crc << 17U)) + 0xa282ead8U);
}

TEST(EventFile, RecordFraming) {
    const std::string record = tf_record("abc");
    ASSERT_EQ(record.size(), 8U + 4U + 3U + 4U);
    EXPECT_EQ(record.substr(0, 8), bytes({3, 0, 0, 0, 0, 0, 0, 0}));
    EXPECT_EQ(record.substr(12, 3), "abc");
}

std::string payload(const std::string& record) {
    return record.substr(12, record.size() - 16);
}

TEST(EventFile, Header) {
    EXPECT_EQ(payload(event_file_header(1.0)),
              bytes({0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0x1a, 13}) + "brain.Event:2");
}

TEST(EventFile, ScalarsOfAStep) {
    EXPECT_EQ(payload(scalar_event(1.0, 300, {{"ab", 1.0}})),
              bytes({0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f}) + bytes({0x10, 0xac, 0x02}) +
                  bytes({0x2a, 11, 0x0a, 9, 0x0a, 2, 'a', 'b', 0x15, 0, 0, 0x80, 0x3f}));
    EXPECT_EQ(scalar_event(1.0, 300, {}), "");
}

}  // namespace
}  // namespace loratrain
