#include "base/wire.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/ids.h"

namespace loratrain {
namespace {

enum class Fruit : std::uint8_t { apple, pear };

struct FruitWord {
    const char* text;
    Fruit value;
};
constexpr std::array<FruitWord, 2> fruit_words{{{"apple", Fruit::apple}, {"pear", Fruit::pear}}};

struct Basket {
    std::int32_t small = 0;
    std::int64_t large = 0;
    std::uint64_t unsigned_large = 0;
    double fraction = 0.0;
    bool flag = false;
    Fruit fruit = Fruit::apple;
    Fruit other = Fruit::apple;
    AdapterId adapter{};
    std::string text{};
    std::optional<double> maybe{};
    std::vector<float> floats{};
    std::vector<std::vector<std::int32_t>> lists{};
    std::map<std::string, std::int32_t> named{};
    std::array<bool, 2> flags{};
    std::variant<std::int32_t, std::string> either{};
};

template <class Archive>
void fields(Archive& archive, Basket& basket) {
    archive.format("basket-1");
    archive("small", at_least(-5, basket.small));
    archive("large", basket.large);
    archive("unsigned_large", basket.unsigned_large);
    archive("fraction", basket.fraction);
    archive.unless("flag", basket.flag, false);
    archive("fruit", worded(basket.fruit, fruit_words));
    archive("other", below(2, basket.other));
    archive("adapter", basket.adapter);
    archive("text", basket.text);
    archive("maybe", basket.maybe);
    archive("floats", basket.floats);
    archive("lists", basket.lists);
    archive("named", basket.named);
    archive("flags", basket.flags);
    archive("either", basket.either);
    archive.note("seen", 1);
}

Basket some_basket() {
    return {-5,
            std::numeric_limits<std::int64_t>::min(),
            std::numeric_limits<std::uint64_t>::max(),
            std::nan(""),
            true,
            Fruit::pear,
            Fruit::pear,
            AdapterId{7},
            std::string("a\0b", 3),
            0.1 + 0.2,
            {1.5F, -0.0F},
            {{1, -200}, {}, {1 << 30}},
            {{"x", 1}, {"", -1}},
            {false, true},
            "either"};
}

std::string refusal(const std::string& bytes) {
    try {
        from_wire<Basket>(bytes, "a basket");
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

TEST(Wire, KeepsEveryBit) {
    const Basket basket = some_basket();
    const Basket read = from_wire<Basket>(to_wire(basket), "a basket");
    EXPECT_EQ(read.small, -5);
    EXPECT_EQ(read.large, basket.large);
    EXPECT_EQ(read.unsigned_large, basket.unsigned_large);
    EXPECT_TRUE(std::isnan(read.fraction));
    EXPECT_EQ(read.fruit, Fruit::pear);
    EXPECT_EQ(read.text, basket.text);
    EXPECT_EQ(read.lists, basket.lists);
    EXPECT_TRUE(std::signbit(read.floats[1]));
    EXPECT_EQ(to_wire(read), to_wire(basket));
    EXPECT_EQ(to_wire(from_wire<Basket>(to_wire(Basket{}), "")), to_wire(Basket{}));
}

TEST(Wire, ShortNumbersAreShort) {
    EXPECT_EQ(to_wire(std::vector<std::int32_t>(100, -64)).size(), 101U);
    EXPECT_EQ(to_wire(std::int64_t{64}).size(), 2U);
}

TEST(Wire, RefusesWhatIsCutOff) {
    const std::string whole = to_wire(some_basket());
    for (std::size_t size = 0; size < whole.size(); ++size) {
        EXPECT_TRUE(refusal(whole.substr(0, size)).starts_with("a basket cannot be read: "));
    }
    EXPECT_EQ(refusal(whole + "x"), "a basket cannot be read: 1 bytes are left behind its end");
    EXPECT_EQ(refusal(whole), "");
}

TEST(Wire, RefusesValuesOutOfRange) {
    EXPECT_EQ(refusal(to_wire(std::int32_t{-6})), "a basket cannot be read: small is less than -5");
    EXPECT_EQ(refusal(to_wire(std::int64_t{1} << 40)),
              "a basket cannot be read: small is out of range");
    EXPECT_EQ(refusal(std::string(20, '\xff')), "a basket cannot be read: small is not a number");
    const auto read = [](auto&& value, char byte) {
        WireReader reader(std::string_view(&byte, 1));
        reader("value", value);
    };
    Fruit fruit{};
    read(worded(fruit, fruit_words), 1);
    EXPECT_EQ(fruit, Fruit::pear);
    EXPECT_THROW(read(worded(fruit, fruit_words), 2), Error);
    EXPECT_THROW(read(below(2, fruit), 2), Error);
    EXPECT_THROW(read(bool{}, 2), Error);
    EXPECT_THROW((read(std::variant<std::int32_t, std::string>{}, 2)), Error);
}

TEST(Wire, NeverMakesMoreThanItIsGiven) {
    const std::string many = to_wire(std::uint64_t{1} << 60U);
    EXPECT_THROW(from_wire<std::string>(many, ""), Error);
    EXPECT_THROW(from_wire<std::vector<float>>(many + "abc", ""), Error);
    EXPECT_THROW(from_wire<std::vector<std::int32_t>>(many, ""), Error);
    EXPECT_THROW((from_wire<std::map<std::string, std::int32_t>>(many, "")), Error);
    EXPECT_THROW(from_wire<std::vector<float>>("\x04" + std::string(8, 'a'), ""), Error);
}

}  // namespace
}  // namespace loratrain
