#include "io/safetensors_header.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/error.h"
#include "io/capped_problems.h"
#include "io/json_text.h"

namespace loratrain {

namespace {

constexpr const char* damaged_hint = "the file is damaged; download or write it again";

std::optional<std::uint64_t> dtype_bits(const std::string& dtype) {
    static const std::map<std::string, std::uint64_t> bits{
        {"BOOL", 8},        {"U8", 8},         {"I8", 8},   {"F8_E4M3", 8}, {"F8_E5M2", 8},
        {"F8_E8M0", 8},     {"I16", 16},       {"U16", 16}, {"F16", 16},    {"BF16", 16},
        {"I32", 32},        {"U32", 32},       {"F32", 32}, {"F64", 64},    {"I64", 64},
        {"U64", 64},        {"C64", 64},       {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6},
        {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}};
    const auto found = bits.find(dtype);
    if (found == bits.end()) return std::nullopt;
    return found->second;
}

/// Bytes of the tensor, none when they overflow or are not whole.
std::optional<std::uint64_t> tensor_bytes(const std::vector<std::int64_t>& shape,
                                          std::uint64_t bits) {
    std::uint64_t total = bits;
    for (const std::int64_t extent : shape) {
        if (__builtin_mul_overflow(total, static_cast<std::uint64_t>(extent), &total)) {
            return std::nullopt;
        }
    }
    if (total % 8 != 0) return std::nullopt;
    return total / 8;
}

bool is_count(const Json& value) {
    return value.is_number_unsigned() && value.get<std::uint64_t>() <= INT64_MAX;
}

bool is_count_list(const Json& value) {
    return value.is_array() && std::all_of(value.begin(), value.end(), is_count);
}

std::string fields_problem(const Json& fields) {
    if (!fields.is_object()) return "entry is " + json_kind(fields) + ", must be an object";
    for (const char* key : {"dtype", "shape", "data_offsets"}) {
        if (!fields.contains(key)) return std::string("entry has no '") + key + "'";
    }
    if (!fields["dtype"].is_string()) return "dtype is " + json_text(fields["dtype"]);
    if (!is_count_list(fields["shape"])) return "shape is " + json_text(fields["shape"]);
    const Json& offsets = fields["data_offsets"];
    if (!is_count_list(offsets) || offsets.size() != 2) {
        return "data_offsets is " + json_text(offsets);
    }
    return "";
}

std::string entry_problem(const SafetensorsEntry& entry, std::uint64_t data_bytes) {
    const auto range = cat("[", entry.begin, ", ", entry.end, ")");
    if (entry.begin > entry.end) return "byte range " + range + " is reversed";
    const auto bits = dtype_bits(entry.dtype);
    if (!bits) return "unknown dtype '" + entry.dtype + "'";
    const auto bytes = tensor_bytes(entry.shape, *bits);
    if (!bytes) return "shape is too large for dtype " + entry.dtype;
    if (*bytes != entry.end - entry.begin) {
        return cat("shape and dtype need ", *bytes, " bytes, the byte range ", range, " holds ",
                   entry.end - entry.begin);
    }
    if (entry.end > data_bytes) {
        return cat("byte range ", range, " ends beyond the ", data_bytes,
                   " bytes of data in the file (truncated?)");
    }
    return "";
}

void check_coverage(const std::map<std::string, SafetensorsEntry>& entries,
                    std::uint64_t data_bytes, const std::string& path, CappedProblems& problems) {
    std::vector<std::pair<std::string, SafetensorsEntry>> ordered(entries.begin(), entries.end());
    std::sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
        return std::pair(a.second.begin, a.second.end) < std::pair(b.second.begin, b.second.end);
    });
    std::uint64_t covered = 0;
    for (const auto& [name, entry] : ordered) {
        if (entry.begin != covered) {
            problems.add(cat(path, ":", name),
                         cat("data begin at byte ", entry.begin, ", expected ", covered,
                             entry.begin > covered ? " (hole)" : " (overlap)"),
                         damaged_hint);
        }
        covered = entry.end;
    }
    if (covered != data_bytes) {
        problems.add(path, cat("has ", data_bytes, " bytes of data, its tensors cover ", covered),
                     damaged_hint);
    }
}

void read_metadata(const Json& fields, const std::string& path, SafetensorsHeader& header,
                   CappedProblems& problems) {
    if (!fields.is_object()) {
        problems.add(path, "__metadata__ is " + json_kind(fields) + ", must be an object",
                     damaged_hint);
        return;
    }
    for (const auto& [key, value] : fields.items()) {
        if (value.is_string()) {
            header.metadata[key] = value.get<std::string>();
        } else {
            problems.add(path,
                         "__metadata__ '" + key + "' is " + json_kind(value) + ", must be a string",
                         damaged_hint);
        }
    }
}

}  // namespace

SafetensorsHeader parse_safetensors_header(const std::string& json, std::uint64_t data_bytes,
                                           const std::string& path) {
    const Json document = parse_json(json, path);
    SafetensorsHeader header;
    CappedProblems problems(path);
    for (const auto& [name, fields] : document.items()) {
        if (name == "__metadata__") {
            read_metadata(fields, path, header, problems);
            continue;
        }
        std::string problem = fields_problem(fields);
        if (problem.empty()) {
            const Json& offsets = fields["data_offsets"];
            SafetensorsEntry entry{fields["dtype"], fields["shape"], offsets[0], offsets[1]};
            problem = entry_problem(entry, data_bytes);
            header.entries.emplace(name, std::move(entry));
        }
        if (!problem.empty()) problems.add(cat(path, ":", name), problem, damaged_hint);
    }
    if (problems.empty()) check_coverage(header.entries, data_bytes, path, problems);
    problems.throw_if_any();
    return header;
}

}  // namespace loratrain
