#include "io/safetensors.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "io/capped_problems.h"
#include "io/checksum.h"
#include "io/files.h"
#include "io/float_convert.h"
#include "io/json_text.h"

namespace loratrain {

namespace {

struct SafetensorsHeader {
    std::map<std::string, SafetensorsEntry> entries;
    std::map<std::string, std::string> metadata;
};

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

constexpr std::uint64_t prefix_bytes = 8;
constexpr std::uint64_t largest_header = 100'000'000;

std::string read_header(const InputFile& file) {
    const std::string hint = "is it a safetensors file? It may be truncated; download it again";
    if (file.size() < prefix_bytes) {
        throw InputError(file.path(), cat("has only ", file.size(), " bytes"), hint);
    }
    std::uint64_t bytes = 0;
    file.read(0, prefix_bytes, &bytes);
    if (bytes > largest_header) {
        throw InputError(file.path(), cat("header of ", bytes, " bytes is too large"), hint);
    }
    if (bytes > file.size() - prefix_bytes) {
        throw InputError(file.path(),
                         cat("header of ", bytes, " bytes does not fit into the file of ",
                             file.size(), " bytes"),
                         hint);
    }
    std::string text(bytes, '\0');
    file.read(prefix_bytes, bytes, text.data());
    if (!text.starts_with('{')) {
        throw InputError(file.path(), "header does not begin with '{'", hint);
    }
    return text;
}

std::string header_text(const std::vector<const TensorSource*>& tensors,
                        const std::map<std::string, std::string>& extra_metadata, DType dtype) {
    Json header;
    header["__metadata__"] = extra_metadata;
    header["__metadata__"]["format"] = "pt";
    std::uint64_t begin = 0;
    for (const TensorSource* tensor : tensors) {
        const auto count = static_cast<std::uint64_t>(element_count(tensor->shape));
        const std::uint64_t end = begin + count * size_of(dtype);
        LORATRAIN_CHECK(!header.contains(tensor->name), tensor->name, " is given twice");
        header[tensor->name] = {{"dtype", dtype == DType::f32 ? "F32" : "BF16"},
                                {"shape", tensor->shape},
                                {"data_offsets", {begin, end}}};
        begin = end;
    }
    return dump_aligned_json(header);
}

/// A file, and the checksum of what is written into it.
class SummedFile {
  public:
    explicit SummedFile(const std::string& path) : file_(path) {}

    void write(const void* data, std::uint64_t bytes) {
        file_.write(data, bytes);
        checksum_.update(data, bytes);
    }

    /// Block by block, which the processor's cache still holds when its sum is taken.
    void write_values(std::span<const float> values, DType dtype) {
        constexpr std::size_t most = std::size_t{1} << 16U;
        while (!values.empty()) {
            const std::span<const float> block = values.first(std::min(most, values.size()));
            values = values.subspan(block.size());
            if (dtype == DType::f32) {
                write(block.data(), block.size_bytes());
                continue;
            }
            rounded_.resize(block.size());
            std::transform(block.begin(), block.end(), rounded_.begin(), to_bfloat16);
            write(rounded_.data(), rounded_.size() * sizeof(BFloat16));
        }
    }

    std::string close() {
        file_.close();
        return checksum_.hex();
    }

  private:
    OutputFile file_;
    Checksum checksum_;
    std::vector<BFloat16> rounded_;
};

/// Reads the JSON header of a file whose data section has `data_bytes` bytes. Checks known dtypes,
/// sizes that match shapes, and ranges that cover the section without hole or overlap.
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

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path)
    : file_(std::make_shared<const InputFile>(path)) {
    const std::string text = read_header(*file_);
    data_start_ = prefix_bytes + text.size();
    SafetensorsHeader header =
        parse_safetensors_header(text, file_->size() - data_start_, file_->path());
    entries_ = std::move(header.entries);
    metadata_ = std::move(header.metadata);
}

void SafetensorsFile::rename(const std::function<std::string(const std::string&)>& name_of) {
    std::map<std::string, SafetensorsEntry> renamed;
    for (const auto& [name, entry] : entries_) {
        const std::string other = name_of(name);
        if (!other.empty()) renamed.emplace(other, entry);
    }
    entries_ = std::move(renamed);
}

void SafetensorsFile::split(const std::string& name, const Parts& parts) {
    const SafetensorsEntry whole = entry(name);
    const std::uint64_t bytes =
        (whole.end - whole.begin) / static_cast<std::uint64_t>(element_count(whole.shape));
    entries_.erase(name);
    std::uint64_t begin = whole.begin;
    for (const auto& [part, shape] : parts) {
        const std::uint64_t end = begin + bytes * static_cast<std::uint64_t>(element_count(shape));
        entries_[part] = {whole.dtype, shape, begin, end};
        begin = end;
    }
    LORATRAIN_CHECK(begin == whole.end, "parts of ", name);
}

const SafetensorsEntry& SafetensorsFile::entry(const std::string& name) const {
    const auto found = entries_.find(name);
    if (found == entries_.end()) throw InputError(path() + ":" + name, "tensor is missing");
    return found->second;
}

void SafetensorsFile::read_bytes(const std::string& name, std::uint64_t first, std::uint64_t bytes,
                                 void* target) const {
    const SafetensorsEntry& found = entry(name);
    LORATRAIN_CHECK(first <= found.end - found.begin && bytes <= found.end - found.begin - first,
                    path(), ":", name);
    file_->read(data_start_ + found.begin + first, bytes, target);
}

std::vector<float> SafetensorsFile::read_floats(const std::string& name) const {
    const SafetensorsEntry& found = entry(name);
    const auto format = float_format(found.dtype);
    if (!format) {
        throw InputError(path() + ":" + name, "dtype " + found.dtype + " is not a float type",
                         "F32, BF16, F16 and F64 can be read");
    }
    std::vector<char> bytes(found.end - found.begin);
    read_bytes(name, 0, bytes.size(), bytes.data());
    std::vector<float> values(bytes.size() / size_of(*format));
    convert_to_f32(*format, bytes.data(), static_cast<std::int64_t>(values.size()), values.data());
    return values;
}

std::vector<TensorSource> sources_of(const std::vector<NamedTensor>& tensors) {
    std::vector<TensorSource> sources;
    sources.reserve(tensors.size());
    for (const NamedTensor& tensor : tensors) {
        sources.push_back({tensor.name, tensor.shape, [&tensor](std::vector<float>& /*room*/) {
                               return std::span<const float>(tensor.values);
                           }});
    }
    return sources;
}

std::string write_safetensors(const std::string& path, const std::vector<TensorSource>& tensors,
                              const std::map<std::string, std::string>& extra_metadata,
                              DType dtype) {
    std::vector<const TensorSource*> sorted;
    sorted.reserve(tensors.size());
    for (const TensorSource& tensor : tensors) sorted.push_back(&tensor);
    std::sort(sorted.begin(), sorted.end(),
              [](const TensorSource* a, const TensorSource* b) { return a->name < b->name; });
    const std::string header = header_text(sorted, extra_metadata, dtype);
    const std::uint64_t header_bytes = header.size();
    std::string checksum;
    write_file_atomic(path, [&](const std::string& temporary) {
        SummedFile file(temporary);
        file.write(&header_bytes, sizeof(header_bytes));
        file.write(header.data(), header.size());
        std::vector<float> room;
        for (const TensorSource* tensor : sorted) {
            const std::span<const float> values = tensor->values(room);
            LORATRAIN_CHECK(element_count(tensor->shape) == std::ssize(values), tensor->name);
            file.write_values(values, dtype);
        }
        checksum = file.close();
    });
    return checksum;
}

std::string write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                              const std::map<std::string, std::string>& extra_metadata,
                              DType dtype) {
    return write_safetensors(path, sources_of(tensors), extra_metadata, dtype);
}

}  // namespace loratrain
