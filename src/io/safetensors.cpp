#include "io/safetensors.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/tensor.h"
#include "io/files.h"
#include "io/float_convert.h"
#include "io/json_text.h"
#include "io/safetensors_header.h"

namespace loratrain {

namespace {

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

std::string header_text(const std::vector<const NamedTensor*>& tensors,
                        const std::map<std::string, std::string>& extra_metadata, DType dtype) {
    Json header;
    header["__metadata__"] = extra_metadata;
    header["__metadata__"]["format"] = "pt";
    std::uint64_t begin = 0;
    for (const NamedTensor* tensor : tensors) {
        const std::uint64_t end = begin + tensor->values.size() * size_of(dtype);
        LORATRAIN_CHECK(
            element_count(tensor->shape) == static_cast<std::int64_t>(tensor->values.size()),
            tensor->name);
        LORATRAIN_CHECK(!header.contains(tensor->name), tensor->name, " is given twice");
        header[tensor->name] = {{"dtype", dtype == DType::f32 ? "F32" : "BF16"},
                                {"shape", tensor->shape},
                                {"data_offsets", {begin, end}}};
        begin = end;
    }
    std::string text = dump_json(header);
    text.resize((text.size() + 7) / 8 * 8, ' ');
    return text;
}

void write_values(OutputFile& file, const std::vector<float>& values, DType dtype) {
    if (dtype == DType::f32) return file.write(values.data(), values.size() * sizeof(float));
    std::vector<BFloat16> rounded(values.size());
    std::transform(values.begin(), values.end(), rounded.begin(), to_bfloat16);
    file.write(rounded.data(), rounded.size() * sizeof(BFloat16));
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

void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& extra_metadata, DType dtype) {
    std::vector<const NamedTensor*> sorted;
    sorted.reserve(tensors.size());
    for (const NamedTensor& tensor : tensors) sorted.push_back(&tensor);
    std::sort(sorted.begin(), sorted.end(),
              [](const NamedTensor* a, const NamedTensor* b) { return a->name < b->name; });
    const std::string header = header_text(sorted, extra_metadata, dtype);
    const std::uint64_t header_bytes = header.size();
    write_file_atomic(path, [&](const std::string& temporary) {
        OutputFile file(temporary);
        file.write(&header_bytes, sizeof(header_bytes));
        file.write(header.data(), header.size());
        for (const NamedTensor* tensor : sorted) {
            write_values(file, tensor->values, dtype);
        }
        file.close();
    });
}

}  // namespace loratrain
