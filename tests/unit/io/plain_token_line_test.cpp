#include "io/tokens/token_formats.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "io/json_text.h"

namespace loratrain {
namespace {

using Ids = std::vector<std::int32_t>;

bool is_plain(const std::string& text) {
    return read_plain_token_line(text).has_value();
}

/// What the general parser makes of a line that the plain reader has taken.
TokenSample parsed_sample(const std::string& text) {
    const Json line = parse_json(text, "line");
    TokenSample sample{line.at("input_ids").get<Ids>(), line.at("input_ids").get<Ids>()};
    if (line.contains("labels")) sample.labels = line.at("labels").get<Ids>();
    return sample;
}

TEST(PlainTokenLine, ReadsAnyOrderAndSpacing) {
    const auto sample = read_plain_token_line(
        " {\t\"labels\" :[ -100,-2147483648 , 0],\"attention_mask\":[1,1,1], "
        "\"input_ids\":[2147483647, 0,10 ] } \r");
    ASSERT_TRUE(sample);
    EXPECT_EQ(sample->input_ids, (Ids{2147483647, 0, 10}));
    EXPECT_EQ(sample->labels, (Ids{-100, INT32_MIN, 0}));
    EXPECT_EQ(read_plain_token_line("{\"input_ids\":[7]}")->labels, Ids{7});
}

TEST(PlainTokenLine, ReadsWeightsAsJsonHasThem) {
    const auto with = [](const std::string& weight) {
        return read_plain_token_line("{\"weights\":[" + weight + ",1],\"input_ids\":[3,4]}");
    };
    for (const char* weight : {"0", "2", "0.5", "1e-3", "12.25E+2", "1e30", "100"}) {
        const auto sample = with(weight);
        ASSERT_TRUE(sample) << weight;
        const float value = parse_json(weight, "").get<float>();
        EXPECT_EQ(sample->labels[0], value > 0 ? 3 : -100);
        EXPECT_EQ(sample->weights,
                  value > 0 ? (std::vector<float>{value, 1}) : std::vector<float>{});
    }
    for (const char* bad : {"-1", "-0", "01", "1.", ".5", "+1", "1e", "1.e2", "inf", "nan", "1e31",
                            "1e-31", "0x1", "null", "", "1e999"}) {
        EXPECT_FALSE(with(bad)) << bad;
    }
    EXPECT_FALSE(is_plain("{\"input_ids\":[3,4],\"weights\":[1]}"));
    EXPECT_FALSE(is_plain("{\"input_ids\":[3],\"weights\":[2],\"weights\":[2]}"));
}

TEST(PlainTokenLine, LeavesEverythingElseToTheGeneralParser) {
    for (const std::string text : {
             "",
             "{",
             "{}",
             "[1]",
             "{\"input_ids\":[1]",
             "{\"input_ids\":[1}",
             "{\"input_ids\":[1,",
             "{\"input_ids\":[]}",
             "{\"input_ids\":[1,]}",
             "{\"input_ids\":[1],}",
             "{\"input_ids\":[1]} x",
             "{\"input_ids\":[1]}{}",
             "{\"input_ids\":[01]}",
             "{\"input_ids\":[-0]}",
             "{\"input_ids\":[-1]}",
             "{\"input_ids\":[+1]}",
             "{\"input_ids\":[1.0]}",
             "{\"input_ids\":[1e2]}",
             "{\"input_ids\":[2147483648]}",
             "{\"input_ids\":[99999999999999999999]}",
             "{\"input_ids\":[true]}",
             "{\"input_ids\":[[1]]}",
             "{\"input_ids\":1}",
             "{\"input_\\u0069ds\":[1]}",
             "{\"input_ids \":[1]}",
             "{\"input_ids\" \"x\":[1]}",
             "\xef\xbb\xbf{\"input_ids\":[1]}",
             "{\"input_ids\":[1],\"input_ids\":[1]}",
             "{\"input_ids\":[1],\"labels\":[1,2]}",
             "{\"input_ids\":[1],\"labels\":[]}",
             "{\"input_ids\":[1],\"labels\":[-2147483649]}",
             "{\"input_ids\":[1],\"labels\":[-0]}",
             "{\"input_ids\":[1],\"labels\":[- 1]}",
             "{\"input_ids\":[1],\"labels\":[-]}",
             "{\"input_ids\":[1],\"attention_mask\":[0]}",
             "{\"input_ids\":[1],\"attention_mask\":[-1]}",
             "{\"input_ids\":[1],\"id\":[1]}",
             "{\"labels\":[1]}",
             "{\"input_ids\":[1] \"labels\":[1]}",
             "{\"input_ids\":[1 2]}",
         }) {
        EXPECT_FALSE(is_plain(text)) << text;
    }
    EXPECT_FALSE(is_plain(std::string("{\"input_ids\":[1]}\0", 18)));
}

/// Every byte of two lines replaced by, and preceded by, each of some bytes.
TEST(PlainTokenLine, TakesNothingThatTheGeneralParserReadsOtherwise) {
    const std::string bytes(" \t\r\"\\,:[]{}-+.eE0179_ais\x00\x80\xff", 27);
    int taken = 0;
    for (const std::string good : {"{\"input_ids\": [10, 2], \"labels\": [-100, 0]}",
                                   "{\"attention_mask\":[1,1],\"input_ids\":[0,31]}"}) {
        for (std::size_t at = 0; at < 2 * good.size(); ++at) {
            for (const char byte : bytes) {
                std::string text = good;
                text.replace(at / 2, at % 2, 1, byte);
                const auto sample = read_plain_token_line(text);
                if (!sample) continue;
                ++taken;
                TokenSample expected;
                ASSERT_NO_THROW(expected = parsed_sample(text)) << text;
                EXPECT_EQ(sample->input_ids, expected.input_ids) << text;
                EXPECT_EQ(sample->labels, expected.labels) << text;
            }
        }
    }
    EXPECT_GT(taken, 200);
}

}  // namespace
}  // namespace loratrain
