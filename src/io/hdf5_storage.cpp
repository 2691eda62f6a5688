#include "io/hdf5_storage.h"

#include <cstdint>
#include <optional>
#include <vector>

#include "base/text.h"
#include "io/hdf5_handle.h"

namespace loratrain {

namespace {

/// More than any filter of HDF5 saves (deflate: 1032).
constexpr std::uint64_t largest_compression = 2048;

using Extents = std::vector<hsize_t>;

Extents extents_of(hid_t dataset) {
    const Hdf5Handle space(H5Dget_space(dataset), H5Sclose);
    const int rank = H5Sget_simple_extent_ndims(space.get());
    Extents extents(static_cast<std::size_t>(rank > 0 ? rank : 0));
    if (rank > 0) H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr);
    return extents;
}

/// None where it does not fit in 64 bits.
std::optional<std::uint64_t> product(const Extents& extents, std::uint64_t factor) {
    std::uint64_t result = factor;
    for (const hsize_t extent : extents) {
        if (__builtin_mul_overflow(result, extent, &result)) return std::nullopt;
    }
    return result;
}

std::uint64_t file_bytes(hid_t dataset) {
    const Hdf5Handle file(H5Iget_file_id(dataset), H5Fclose);
    hsize_t bytes = 0;
    return file && H5Fget_filesize(file.get(), &bytes) >= 0 ? bytes : 0;
}

/// What is known of the size of a stored chunk.
struct StoredSize {
    std::uint64_t least = 0;
    std::uint64_t most = 0;
};

/// What the filters of a dataset make of a chunk; or why they cannot be undone.
struct Filters {
    std::string problem;
    bool compress = false;
    std::uint64_t added = 0;  ///< bytes
};

Filters filters_of(hid_t properties) {
    constexpr std::uint64_t fletcher32_bytes = 4;
    Filters filters;
    for (int i = 0; i < H5Pget_nfilters(properties); ++i) {
        unsigned flags = 0;
        std::size_t values = 0;
        const H5Z_filter_t filter = H5Pget_filter2(properties, static_cast<unsigned>(i), &flags,
                                                   &values, nullptr, 0, nullptr, nullptr);
        if (filter < 0 || H5Zfilter_avail(filter) <= 0) {
            filters.problem = cat("needs filter ", filter, ", which this HDF5 library lacks");
        } else if (filter == H5Z_FILTER_FLETCHER32) {
            filters.added += fletcher32_bytes;
        } else if (filter != H5Z_FILTER_SHUFFLE) {
            filters.compress = true;
        }
    }
    return filters;
}

std::string contiguous_problem(hid_t dataset, std::uint64_t bytes) {
    const haddr_t begin = H5Dget_offset(dataset);
    if (begin == HADDR_UNDEF) return "its data were never written";
    const std::uint64_t file = file_bytes(dataset);
    if (bytes > file || begin > file - bytes) return "its data reach beyond the end of the file";
    return "";
}

/// The first chunk that the index does not have as it must be. Of sizes that are wrong HDF5 reads
/// beyond its memory.
std::string chunk_problem(hid_t dataset, const Extents& extents, const Extents& chunk,
                          const StoredSize& size) {
    Extents at(extents.size(), 0);
    for (;;) {
        hsize_t bytes = 0;
        const bool found = H5Dget_chunk_storage_size(dataset, at.data(), &bytes) >= 0 && bytes > 0;
        if (!found || bytes < size.least || bytes > size.most) {
            std::vector<std::string> words;
            for (const hsize_t i : at) words.push_back(std::to_string(i));
            const std::string where = cat("its chunk at [", join(words, ", "), "] ");
            return where + (found ? cat("has ", bytes, " bytes in the file's index")
                                  : "is not in the file's index");
        }
        std::size_t axis = at.size();
        while (axis > 0 && (at[axis - 1] += chunk[axis - 1]) >= extents[axis - 1]) {
            at[--axis] = 0;
        }
        if (axis == 0) return "";
    }
}

std::string chunked_problem(hid_t dataset, hid_t properties, const Extents& extents,
                            std::size_t element_bytes) {
    const Filters filters = filters_of(properties);
    if (!filters.problem.empty()) return filters.problem;
    Extents chunk(extents.size());
    if (H5Pget_chunk(properties, static_cast<int>(chunk.size()), chunk.data()) !=
        static_cast<int>(chunk.size())) {
        return "the sizes of its chunks cannot be read";
    }
    Extents chunks;
    for (std::size_t i = 0; i < chunk.size(); ++i) {
        if (chunk[i] == 0) return "has chunks of no size";
        chunks.push_back((extents[i] - 1) / chunk[i] + 1);
    }
    const auto wanted = product(chunks, 1);
    const Hdf5Handle space(H5Dget_space(dataset), H5Sclose);
    hsize_t found = 0;
    if (H5Dget_num_chunks(dataset, space.get(), &found) < 0) {
        return "the index of its chunks cannot be read: " + hdf5_reason();
    }
    if (!wanted || found != *wanted) {
        return cat("the file's index has ", found, " of its ",
                   wanted ? std::to_string(*wanted) : "2^64 or more", " chunks");
    }
    const auto whole = product(chunk, element_bytes);
    if (!whole) return "has chunks that are too large";
    StoredSize size{*whole + filters.added, *whole + filters.added};
    if (filters.compress) size = {filters.added + 1, file_bytes(dataset)};
    return chunk_problem(dataset, extents, chunk, size);
}

}  // namespace

std::string storage_problem(hid_t dataset) {
    const Hdf5Handle properties(H5Dget_create_plist(dataset), H5Pclose);
    if (!properties) return "its layout cannot be read: " + hdf5_reason();
    const H5D_layout_t layout = H5Pget_layout(properties.get());
    if (layout == H5D_VIRTUAL || H5Pget_external_count(properties.get()) > 0) {
        return "keeps its data in another file";
    }
    const Extents extents = extents_of(dataset);
    const Hdf5Handle type(H5Dget_type(dataset), H5Tclose);
    const std::size_t element_bytes = H5Tget_size(type.get());
    const auto bytes = product(extents, element_bytes);
    if (bytes && *bytes == 0) return "";
    if (!bytes || *bytes / largest_compression > file_bytes(dataset)) {
        return "claims more data than the file can hold";
    }
    if (layout == H5D_CHUNKED) {
        return chunked_problem(dataset, properties.get(), extents, element_bytes);
    }
    return layout == H5D_CONTIGUOUS ? contiguous_problem(dataset, *bytes) : "";
}

bool has_chunks_without_checksum(hid_t dataset) {
    const Hdf5Handle properties(H5Dget_create_plist(dataset), H5Pclose);
    if (!properties || H5Pget_layout(properties.get()) != H5D_CHUNKED) return false;
    unsigned flags = 0;
    std::size_t values = 0;
    return H5Pget_filter_by_id2(properties.get(), H5Z_FILTER_FLETCHER32, &flags, &values, nullptr,
                                0, nullptr, nullptr) < 0;
}

}  // namespace loratrain
