#include "fuzz/mutate.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <limits>
#include <vector>

namespace loratrain::fuzz {

namespace {

constexpr std::size_t longest_text = 1U << 19U;

const std::vector<std::string> odd_numbers{"0",
                                           "1",
                                           "2",
                                           "3",
                                           "7",
                                           "64",
                                           "1000",
                                           "65536",
                                           "1000000",
                                           "-1",
                                           "2147483647",
                                           "2147483648",
                                           "4294967297",
                                           "1099511627776",
                                           "9223372036854775807",
                                           "-9223372036854775808",
                                           "18446744073709551615",
                                           "18446744073709551616",
                                           "0.5",
                                           "1e-9",
                                           "1e9",
                                           "1e308",
                                           "1e999",
                                           "-0.5"};
const std::vector<std::string> odd_tokens{"0",
                                          "-1",
                                          "1",
                                          "2147483647",
                                          "2147483648",
                                          "4294967296",
                                          "1099511627776",
                                          "9223372036854775807",
                                          "-9223372036854775808",
                                          "18446744073709551616",
                                          "1e308",
                                          "1e-320",
                                          "-0.0",
                                          ".nan",
                                          ".inf",
                                          "NaN",
                                          "null",
                                          "~",
                                          "true",
                                          "false",
                                          "''",
                                          "\"\"",
                                          "[]",
                                          "{}",
                                          "[[]]",
                                          "{a: b}",
                                          "abc",
                                          "'a b'",
                                          "../..",
                                          "/",
                                          "~/x",
                                          "\x1b[2J",
                                          "\"\\u0000\"",
                                          "\xff\xfe",
                                          "&a",
                                          "*a",
                                          "!!str 1",
                                          "<<",
                                          "|",
                                          ">",
                                          "%YAML 9.9",
                                          "auto",
                                          "0x10",
                                          "1_000",
                                          "[1, 2, 3]"};
const std::vector<std::string> marks{
    ",",  ":", "-", "{", "}", "[", "]",  "'",  "\"", "#",   "&",       "*",   "!",  "\n",
    "\t", "?", "|", ">", "%", "@", "\\", "\r", "--", "---", "\n---\n", "...", ": ", "- "};

/// Words, numbers and quoted texts as a whole; every other character for itself.
std::vector<std::string> tokens_of(const std::string& text) {
    const auto in_word = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '/';
    };
    std::vector<std::string> tokens;
    for (std::size_t i = 0; i < text.size();) {
        std::size_t end = i + 1;
        if (text[i] == '"' || text[i] == '\'') {
            end = std::min(text.find(text[i], i + 1), text.size() - 1) + 1;
        } else if (in_word(text[i])) {
            while (end < text.size() && in_word(text[end])) ++end;
        }
        tokens.push_back(text.substr(i, end - i));
        i = end;
    }
    return tokens;
}

std::string joined(const std::vector<std::string>& tokens) {
    std::string text;
    for (const std::string& token : tokens) text += token;
    return text;
}

std::string repeated(const std::string& text, std::size_t count) {
    std::string all;
    for (std::size_t i = 0; i < count; ++i) all += text;
    return all;
}

std::size_t place_of_value(const std::vector<std::string>& tokens, Draw& draw) {
    for (int attempt = 0; attempt < 20; ++attempt) {
        const std::size_t at = draw.below(tokens.size());
        const char c = tokens[at].front();
        if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '"' || c == '\'') return at;
    }
    return draw.below(tokens.size());
}

/// Brackets around a place, up to some ten thousand of them.
std::string nested(const std::string& inner, Draw& draw) {
    static constexpr std::size_t depths[] = {1, 2, 33, 101, 600, 20000};
    const std::size_t depth = draw.among(depths);
    switch (draw.below(4)) {
        case 0:
            return repeated("[", depth) + inner + repeated("]", depth);
        case 1:
            return repeated("{a: ", depth) + inner + repeated("}", depth);
        case 2:
            return repeated("- ", depth) + inner;
        default:
            return repeated("[", depth) + inner;
    }
}

void change_tokens(std::vector<std::string>& tokens, Draw& draw) {
    const std::size_t at = place_of_value(tokens, draw);
    const std::size_t other = draw.below(tokens.size());
    const auto place = tokens.begin() + static_cast<std::ptrdiff_t>(at);
    if (draw.one_in(2)) {
        // Most of what is wrong in practice, and what gets farthest.
        const bool number = tokens[at].find_first_not_of("0123456789.") == std::string::npos;
        tokens[at] = number ? draw.among(odd_numbers) : draw.among(odd_tokens);
        return;
    }
    switch (draw.below(8)) {
        case 0:
            tokens[at] = draw.among(odd_tokens);
            break;
        case 1:
            tokens[at] = tokens[place_of_value(tokens, draw)];
            break;
        case 2:
            std::swap(tokens[at], tokens[other]);
            break;
        case 3:
            tokens.erase(place);
            break;
        case 4:
            tokens.insert(place, draw.among(marks));
            break;
        case 5:
            tokens[at] = nested(tokens[at], draw);
            break;
        case 6:
            tokens[at] = repeated(tokens[at], 1 + draw.below(400));
            break;
        default: {
            const std::size_t count = std::min(draw.below(40), tokens.size() - at);
            const std::vector<std::string> block(place, place + static_cast<std::ptrdiff_t>(count));
            tokens.insert(tokens.begin() + static_cast<std::ptrdiff_t>(other), block.begin(),
                          block.end());
        }
    }
}

std::uint64_t odd_number(Draw& draw) {
    static constexpr std::uint64_t numbers[] = {0,
                                                1,
                                                2,
                                                0x7f,
                                                0x80,
                                                0xff,
                                                0x7fff,
                                                0xffff,
                                                0x7fffffff,
                                                0x80000000,
                                                0xffffffff,
                                                0x100000000,
                                                std::uint64_t{1} << 40U,
                                                std::uint64_t{1} << 62U,
                                                std::uint64_t{1} << 63U,
                                                ~std::uint64_t{0},
                                                ~std::uint64_t{0} - 7};
    return draw.among(numbers);
}

/// Near a structure of HDF5, or anywhere.
std::size_t place_in(const std::string& bytes, Draw& draw) {
    static constexpr const char* signatures[] = {"TREE", "HEAP", "SNOD", "\x89HDF", "checksum"};
    const std::size_t anywhere = draw.below(bytes.size());
    if (draw.one_in(2)) return anywhere;
    const std::size_t found = bytes.find(draw.among(signatures), anywhere);
    if (found == std::string::npos) return anywhere;
    const std::size_t near = found + draw.below(300);
    return std::min(near >= 100 ? near - 100 : near, bytes.size() - 1);
}

void change_bytes(std::string& bytes, Draw& draw) {
    if (bytes.empty()) bytes.push_back('x');
    const std::size_t at = place_in(bytes, draw);
    const std::size_t length = std::min(bytes.size() - at, std::size_t{1} << draw.below(12));
    switch (draw.below(9)) {
        case 0:
        case 1:
        case 2:
            bytes[at] = static_cast<char>(bytes[at] ^ (1U << draw.below(8)));
            break;
        case 3:
            bytes[at] = static_cast<char>(draw.below(256));
            break;
        case 4: {
            const std::uint64_t number = odd_number(draw);
            const std::size_t size = std::min<std::size_t>(bytes.size() - at, 1U << draw.below(4));
            std::memcpy(bytes.data() + at, &number, size);
            break;
        }
        case 5:
            bytes.replace(at, length, std::string(length, '\0'));
            break;
        case 6:
            bytes.erase(at, length);
            break;
        case 7:
            bytes.insert(draw.below(bytes.size()), bytes.substr(at, length));
            break;
        default:
            bytes.resize(at);
    }
}

}  // namespace

std::string mutate_text(std::string text, Draw& draw) {
    std::vector<std::string> tokens = tokens_of(text);
    for (std::size_t changes = 1 + draw.below(draw.one_in(5) ? 6 : 1); changes > 0; --changes) {
        if (!tokens.empty()) change_tokens(tokens, draw);
    }
    text = joined(tokens).substr(0, longest_text);
    if (draw.one_in(10)) change_bytes(text, draw);
    return text;
}

std::string mutate_bytes(std::string bytes, Draw& draw) {
    for (std::size_t changes = 1 + draw.below(draw.one_in(3) ? 5 : 1); changes > 0; --changes) {
        change_bytes(bytes, draw);
    }
    return bytes;
}

std::string mutate_safetensors(const std::string& file, Draw& draw) {
    std::uint64_t length = 0;
    if (draw.one_in(2) || file.size() < sizeof(length)) return mutate_bytes(file, draw);
    std::memcpy(&length, file.data(), sizeof(length));
    length = std::min<std::uint64_t>(length, file.size() - sizeof(length));
    const std::string header = mutate_text(file.substr(sizeof(length), length), draw);
    const std::uint64_t size = header.size();
    return std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + header +
           file.substr(sizeof(length) + length);
}

}  // namespace loratrain::fuzz
