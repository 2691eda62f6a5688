#include "io/weights/packed_experts.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/tensor.h"
#include "base/text.h"
#include "base/threads.h"
#include "io/float_convert.h"
#include "io/tensor_names.h"
#include "io/weights/mxfp4.h"

namespace loratrain {

namespace {

using Shape = std::vector<std::int64_t>;

constexpr std::string_view gate_up_end = ".mlp.experts.gate_up_proj";
constexpr std::string_view down_end = ".mlp.experts.down_proj";
constexpr std::string_view bias_end = ".mlp.experts.gate_up_bias";
constexpr const char* blocks_end = "_blocks";
constexpr const char* scales_end = "_scales";

std::string of_expert(const std::string& name, std::int64_t expert) {
    return cat(name, ".", expert);
}

/// Adds the matrices of one expert to `tensors`; `outputs` are those of all of them.
void add_matrices(const std::string& whole, std::int64_t expert, std::int64_t outputs,
                  const PackedTensor& common, std::map<std::string, PackedTensor>& tensors) {
    const std::int64_t layer = layer_in_name(whole);
    const std::vector<Linear> linears = whole.ends_with(gate_up_end)
                                            ? std::vector{Linear::gate, Linear::up}
                                            : std::vector{Linear::down};
    PackedTensor tensor = common;
    tensor.step = std::ssize(linears);
    tensor.shape.insert(tensor.shape.begin(), outputs / tensor.step);
    for (const Linear linear : linears) {
        tensors[expert_weight_name(layer, expert, linear)] = tensor;
        ++tensor.begin;
    }
}

PackedExperts of_numbers(const std::string& name, const SafetensorsEntry& entry) {
    PackedExperts experts;
    for (std::int64_t expert = 0; expert < entry.shape[0]; ++expert) {
        const std::string piece = of_expert(name, expert);
        experts.parts.push_back({piece, {entry.shape[1], entry.shape[2]}});
        add_matrices(name, expert, entry.shape[2],
                     {.from = piece, .dtype = entry.dtype, .shape = {entry.shape[1]}},
                     experts.tensors);
    }
    return experts;
}

/// `scales` have the shape of the blocks but for the bytes.
PackedExperts of_blocks(const std::string& whole, const Shape& scales) {
    PackedExperts experts;
    const std::int64_t rows = scales[1];
    const std::int64_t groups = scales[2];
    for (std::int64_t expert = 0; expert < scales[0]; ++expert) {
        const std::string piece = of_expert(whole + blocks_end, expert);
        experts.parts.push_back({piece, {rows, groups, mxfp4_block_bytes}});
        add_matrices(whole, expert, rows,
                     {.form = PackedTensor::Form::mxfp4,
                      .from = piece,
                      .scales = of_expert(whole + scales_end, expert),
                      .dtype = "BF16",
                      .shape = {groups * mxfp4_block}},
                     experts.tensors);
    }
    return experts;
}

PackedExperts of_scales(const std::string& name, const Shape& scales) {
    PackedExperts experts;
    for (std::int64_t expert = 0; expert < scales[0]; ++expert) {
        experts.parts.push_back({of_expert(name, expert), {scales[1], scales[2]}});
    }
    return experts;
}

bool is_matrices(const std::string& whole) {
    return layer_in_name(whole) >= 0 && (whole.ends_with(gate_up_end) || whole.ends_with(down_end));
}

/// Of a layer's experts, [E, rows, in / 32], where blocks and scales fit each other; else empty.
Shape scales_of(const std::string& whole, const std::map<std::string, SafetensorsEntry>& all) {
    const auto blocks = all.find(whole + blocks_end);
    const auto scales = all.find(whole + scales_end);
    if (!is_matrices(whole) || blocks == all.end() || scales == all.end()) return {};
    Shape expected = scales->second.shape;
    expected.push_back(mxfp4_block_bytes);
    const bool fit = expected.size() == 4 && blocks->second.shape == expected &&
                     blocks->second.dtype == "U8" && scales->second.dtype == "U8" &&
                     element_count(expected) > 0 &&
                     (expected[1] % 2 == 0 || !whole.ends_with(gate_up_end));
    return fit ? scales->second.shape : Shape{};
}

PackedExperts of_bias(const std::string& name, const SafetensorsEntry& entry) {
    PackedTensor bias{.form = PackedTensor::Form::bias, .from = name};
    bias.dtype = entry.dtype;
    bias.shape = entry.shape;
    return {{}, {{name, bias}}};
}

/// target[i][j] = source[j][begin + step i]
template <class Bits>
void take_columns(const PackedTensor& packed, const char* source, char* target) {
    constexpr std::int64_t tile = 64;
    const std::int64_t inputs = packed.shape[1];
    const std::int64_t width = packed.shape[0] * packed.step;
    share_rows(packed.shape[0], inputs, [&](std::int64_t first, std::int64_t end) {
        for (std::int64_t begin = 0; begin < inputs; begin += tile) {
            const std::int64_t last = std::min(begin + tile, inputs);
            for (std::int64_t i = first; i < end; ++i) {
                const std::int64_t column = packed.begin + packed.step * i;
                for (std::int64_t j = begin; j < last; ++j) {
                    std::memcpy(target + (i * inputs + j) * sizeof(Bits),
                                source + (j * width + column) * sizeof(Bits), sizeof(Bits));
                }
            }
        }
    });
}

template <class Bits>
void part_bias(const PackedTensor& packed, const char* source, char* target) {
    const std::int64_t half = packed.shape[1] / 2;
    for (std::int64_t i = 0; i < packed.shape[0] * half; ++i) {
        for (std::int64_t part = 0; part < 2; ++part) {
            const std::int64_t to = i / half * 2 * half + part * half + i % half;
            std::memcpy(target + to * sizeof(Bits), source + (2 * i + part) * sizeof(Bits),
                        sizeof(Bits));
        }
    }
}

template <class Bits>
void rearrange(const PackedTensor& packed, const char* source, char* target) {
    if (packed.form == PackedTensor::Form::bias) return part_bias<Bits>(packed, source, target);
    take_columns<Bits>(packed, source, target);
}

std::vector<char> bytes_of(const SafetensorsFile& file, const std::string& name) {
    const SafetensorsEntry& entry = file.entry(name);
    std::vector<char> bytes(entry.end - entry.begin);
    file.read_bytes(name, 0, bytes.size(), bytes.data());
    return bytes;
}

void decode(const PackedTensor& packed, const std::vector<char>& blocks,
            const std::vector<char>& scales, char* target) {
    const auto* codes = reinterpret_cast<const std::uint8_t*>(blocks.data());
    const auto* exponents = reinterpret_cast<const std::uint8_t*>(scales.data());
    auto* values = reinterpret_cast<BFloat16*>(target);
    const std::int64_t groups = packed.shape[1] / mxfp4_block;
    share_rows(packed.shape[0], packed.shape[1], [&](std::int64_t first, std::int64_t end) {
        for (std::int64_t i = first; i < end; ++i) {
            for (std::int64_t g = 0; g < groups; ++g) {
                const std::int64_t from = (packed.begin + packed.step * i) * groups + g;
                std::array<float, mxfp4_block> weights{};
                decode_mxfp4(codes + from * mxfp4_block_bytes, exponents[from], weights.data());
                std::ranges::transform(weights, values + (i * groups + g) * mxfp4_block,
                                       to_bfloat16);
            }
        }
    });
}

}  // namespace

PackedExperts packed_experts(const std::string& name,
                             const std::map<std::string, SafetensorsEntry>& all) {
    const SafetensorsEntry& entry = all.at(name);
    const bool some = element_count(entry.shape) > 0;
    const bool even = some && entry.shape.back() % 2 == 0;
    if (name.ends_with(bias_end) && entry.shape.size() == 2 && even) return of_bias(name, entry);
    const bool fits = name.ends_with(gate_up_end) ? even : some;
    if (is_matrices(name) && entry.shape.size() == 3 && fits) return of_numbers(name, entry);
    for (const std::string_view end : {blocks_end, scales_end}) {
        if (!name.ends_with(end)) continue;
        const std::string whole = name.substr(0, name.size() - end.size());
        const Shape scales = scales_of(whole, all);
        if (scales.empty()) return {};
        return end == blocks_end ? of_blocks(whole, scales) : of_scales(name, scales);
    }
    return {};
}

std::vector<char> unpack(const PackedTensor& packed, const SafetensorsFile& file,
                         const SafetensorsFile& scales) {
    const std::vector<char> source = bytes_of(file, packed.from);
    const auto bytes_each = size_of(float_format(packed.dtype).value());
    std::vector<char> target(static_cast<std::size_t>(element_count(packed.shape)) * bytes_each);
    if (packed.form == PackedTensor::Form::mxfp4) {
        decode(packed, source, bytes_of(scales, packed.scales), target.data());
    } else if (bytes_each == sizeof(std::uint16_t)) {
        rearrange<std::uint16_t>(packed, source.data(), target.data());
    } else {
        rearrange<std::uint32_t>(packed, source.data(), target.data());
    }
    return target;
}

}  // namespace loratrain
