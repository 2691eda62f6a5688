#include "config/text_archive.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/ids.h"
#include "config/job_words.h"

namespace loratrain {
namespace {

struct Point {
    double x = 0.0;
    double y = 0.0;
};
template <class Archive>
void fields(Archive& archive, Point& point) {
    archive.list(point.x, at_least(0, point.y));
}

struct Leaf {
    std::int32_t size = 0;
};
template <class Archive>
void fields(Archive& archive, Leaf& leaf) {
    archive("size", leaf.size);
}
struct Empty {};
template <class Archive>
void fields(Archive& /*archive*/, Empty& /*empty*/) {}

using Part = std::variant<Leaf, Empty>;
constexpr std::array<const char*, 2> part_names{"leaf", "empty"};

struct Sheet {
    std::string name{};
    std::uint64_t bytes = 0;
    std::int32_t usual = 4;
    Recompute recompute = Recompute::none;
    Recompute odd = Recompute::none;
    std::optional<Point> maybe{};
    std::vector<Point> points{};
    std::vector<std::int32_t> numbers{};
    std::vector<std::pair<std::string, Leaf>> leaves{};
    std::vector<AdapterId> adapters{};
    Part part{};
    bool flag = false;
};
template <class Archive>
void fields(Archive& archive, Sheet& sheet) {
    archive.format("sheet-1");
    archive("name", sheet.name);
    archive("bytes", sheet.bytes);
    archive.unless("usual", at_least(0, sheet.usual), 4);
    archive("recompute", worded(sheet.recompute, recompute_words));
    archive.unless("odd", worded(sheet.odd, recompute_words), Recompute::none);
    archive("maybe", sheet.maybe);
    archive("points", sheet.points);
    archive("numbers", at_least(0, sheet.numbers));
    archive("leaves", sheet.leaves);
    archive("adapters", sheet.adapters);
    archive.kind("part", sheet.part, part_names);
    archive("flag", sheet.flag);
    archive.note("seed", 7);
}

Sheet some_sheet() {
    Sheet sheet;
    sheet.name = "odd \"name\" \\ : {x}, # \n\t\x01 \xc3\xa9";
    sheet.bytes = std::numeric_limits<std::uint64_t>::max();
    sheet.recompute = Recompute::layer;
    sheet.maybe = Point{0.1 + 0.2, 1e-300};
    sheet.points = {{-1.0, 2.0}, {3.0, 1.0 / 3.0}};
    for (int i = 0; i < 60; ++i) sheet.numbers.push_back(i);
    sheet.leaves = {{"true", {1}}, {"a b", {2}}};
    sheet.adapters = {AdapterId{2}, AdapterId{0}};
    return sheet;
}

constexpr const char* small_text = R"(format: sheet-1
name: a0
bytes: 5
recompute: layer
points: [[1, 2]]
numbers: []
leaves: {x: {size: 3}}
adapters: []
part: {kind: leaf, size: 4}
flag: true
seed: 7
)";

std::string changed(std::string text, const std::string& from, const std::string& to) {
    return text.replace(text.find(from), from.size(), to);
}

std::string refusal(const std::string& text) {
    try {
        read_text_as<Sheet>(text, "sheet.yaml", {"a sheet", "write it anew"});
    } catch (const InputError& error) {
        return error.what();
    }
    return "";
}

TEST(TextArchive, YamlAndJsonReadBack) {
    const YamlNode tree = text_tree(some_sheet());
    for (const std::string& text : {yaml_text(tree), json_text(tree)}) {
        const auto read = read_text_as<Sheet>(text, "here");
        EXPECT_EQ(yaml_text(text_tree(read)), yaml_text(tree)) << text;
        EXPECT_EQ(read.name, some_sheet().name);
        EXPECT_EQ(read.maybe->x, 0.1 + 0.2);
    }
}

TEST(TextArchive, WritesForPeople) {
    const auto sheet = read_text_as<Sheet>(small_text, "here");
    EXPECT_EQ(sheet.usual, 4);
    EXPECT_EQ(std::get<Leaf>(sheet.part).size, 4);
    EXPECT_EQ(yaml_text(text_tree(sheet)), small_text);
    const std::string wide = yaml_text(text_tree(some_sheet()));
    EXPECT_NE(wide.find("\nnumbers: [0, 1, "), std::string::npos);
    for (std::size_t at = 0; at < wide.size(); at = wide.find('\n', at) + 1) {
        EXPECT_LE(wide.find('\n', at) - at, 100U);
    }
}

TEST(TextArchive, WritesMapsThatAreTooWideAsBlocks) {
    Sheet sheet = some_sheet();
    sheet.leaves.clear();
    for (const char letter : {'a', 'b'}) sheet.leaves.push_back({std::string(60, letter), {1}});
    const std::string text = yaml_text(text_tree(sheet));
    EXPECT_NE(text.find("leaves:\n  " + std::string(60, 'a') + ": {size: 1}\n"), std::string::npos);
    const std::vector<Sheet> two{sheet, sheet};
    YamlNode root;
    TextWriter writer(root);
    writer("sheets", two);
    EXPECT_NE(yaml_text(root).find("sheets:\n  - format: sheet-1\n    name: "), std::string::npos);
    std::vector<Sheet> read;
    const TextPath path{};
    const YamlNode parsed = parse_document(yaml_text(root), "here");
    TextReader reader(parsed, path);
    reader("sheets", read);
    EXPECT_EQ(yaml_text(text_tree(read.at(1))), text);
}

TEST(TextArchive, JsonIsAsOthersReadIt) {
    Sheet sheet = some_sheet();
    sheet.maybe = Point{std::numeric_limits<double>::infinity(), 1.0};
    sheet.name = "\xff";
    const std::string text = json_text(text_tree(sheet));
    EXPECT_NE(text.find("  \"maybe\": [null, 1],\n"), std::string::npos) << text;
    EXPECT_NE(text.find("\"recompute\": \"layer\""), std::string::npos);
    EXPECT_NE(text.find("\"name\": \"\xef\xbf\xbd\""), std::string::npos);
    EXPECT_TRUE(std::isnan(read_text_as<Sheet>(text, "here").maybe->x));
}

TEST(TextArchive, RefusalsNameLineKeyAndValue) {
    const std::string good = small_text;
    EXPECT_EQ(refusal(good), "");
    EXPECT_EQ(refusal(changed(good, "bytes: 5", "bytes: -5")),
              "sheet.yaml:3: cannot be read as a sheet: bytes is -5, must be a whole number in "
              "range\n    write it anew");
    for (const auto& [from, to, what] :
         {std::array{"bytes: 5", "bytes: '5'", "bytes is \"5\", must be a whole"},
          {"flag: true", "flag: 1", "flag is 1, must be true or false"},
          {"[[1, 2]]", "[[1, 2, 3]]", "points[0] has 3 entries, must have 2"},
          {"[[1, 2]]", "[[1, -2]]", "points[0][1] is -2, must be at least 0"},
          {"numbers: []", "numbers: [-1]", "numbers is [-1], must be at least 0"},
          {"numbers: []", "numbers: {}", "numbers is {}, must be a list"},
          {"{size: 3}", "{size: x}", "leaves.x.size is x, must be a whole number"},
          {"{size: 3}", "{size: 3, more: 1}", "leaves.x.more is not known here"},
          {"{size: 3}", "{}", "leaves.x has no key 'size'"},
          {"kind: leaf", "kind: root", "part is of kind 'root', which is not known"},
          {"recompute: layer", "recompute: often", "recompute is often, must be a word"},
          {"name: a0", "name: [a]", "name is [a], must be a single value"},
          {"flag: true\n", "", "has no key 'flag'"},
          {"sheet-1", "sheet-2", "has format 'sheet-2', must be 'sheet-1'"},
          {"format: sheet-1\n", "", "has format '', must be 'sheet-1'"}}) {
        EXPECT_NE(refusal(changed(good, from, to)).find(what), std::string::npos)
            << what << "\n"
            << refusal(changed(good, from, to));
    }
    EXPECT_NE(refusal("[1, 2"), "");
    EXPECT_NE(refusal(""), "");
}

}  // namespace
}  // namespace loratrain
