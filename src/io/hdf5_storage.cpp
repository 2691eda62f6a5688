#include "io/hdf5_storage.h"

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/text.h"
#include "io/checksum.h"
#include "io/hdf5_handle.h"

namespace loratrain {

namespace {

std::optional<std::uint64_t> inflated_bytes(std::span<const std::byte> stored, std::uint64_t most) {
    std::vector<Bytef> inflated(most + 1);
    uLongf bytes = inflated.size();
    const int status = ::uncompress(inflated.data(), &bytes,
                                    reinterpret_cast<const Bytef*>(stored.data()), stored.size());
    if (status != Z_OK || bytes > most) return std::nullopt;
    return bytes;
}

/// The filters of a dataset's chunks. HDF5 itself does not check the size of a chunk after its
/// filters are undone, and reads beyond its memory if the chunk is too short.
class ChunkFilters {
  public:
    /// `properties`: the dataset's creation properties.
    explicit ChunkFilters(hid_t properties);

    /// Why chunks cannot be read: a filter other than shuffle, fletcher32 and deflate (gzip), a
    /// filter that this HDF5 lacks, or deflate twice; "" = they can be read.
    const std::string& problem() const { return problem_; }

    bool empty() const { return filters_.empty(); }

    /// True if a stored chunk's size depends on its contents.
    bool compress() const { return compress_; }

    /// Bytes that the filters other than compression add to a chunk.
    std::uint64_t added_bytes() const { return added_; }

    /// Bytes of a chunk after its filters are undone; none if that fails or gives more than `most`
    /// bytes. Bit i of `skipped`: the chunk was stored without filter i.
    std::optional<std::uint64_t> undone_bytes(std::span<const std::byte> stored,
                                              std::uint32_t skipped, std::uint64_t most) const;

  private:
    std::vector<H5Z_filter_t> filters_;
    std::string problem_;
    bool compress_ = false;
    std::uint64_t added_ = 0;
};

ChunkFilters::ChunkFilters(hid_t properties) {
    for (int i = 0; i < H5Pget_nfilters(properties); ++i) {
        unsigned flags = 0;
        std::size_t values = 0;
        const H5Z_filter_t filter = H5Pget_filter2(properties, static_cast<unsigned>(i), &flags,
                                                   &values, nullptr, 0, nullptr, nullptr);
        const bool deflates = filter == H5Z_FILTER_DEFLATE;
        const bool sums = filter == H5Z_FILTER_FLETCHER32;
        const bool known = sums || filter == H5Z_FILTER_SHUFFLE || (deflates && !compress_);
        if (!known || H5Zfilter_avail(filter) <= 0) {
            problem_ = cat("needs filter ", filter,
                           ": can be read with gzip (once), shuffle and fletcher32 only");
        }
        if (sums) added_ += fletcher32_bytes;
        compress_ = compress_ || deflates;
        filters_.push_back(filter);
    }
}

std::optional<std::uint64_t> ChunkFilters::undone_bytes(std::span<const std::byte> stored,
                                                        std::uint32_t skipped,
                                                        std::uint64_t most) const {
    std::uint64_t bytes = stored.size();
    for (std::size_t i = filters_.size(); i-- > 0;) {
        if ((skipped >> i & 1U) != 0) continue;
        if (filters_[i] == H5Z_FILTER_FLETCHER32) {
            if (bytes < fletcher32_bytes) return std::nullopt;
            bytes -= fletcher32_bytes;
        } else if (filters_[i] == H5Z_FILTER_DEFLATE) {
            const auto inflated = inflated_bytes(stored.first(bytes), most + added_);
            if (!inflated) return std::nullopt;
            bytes = *inflated;
        }
    }
    return bytes;
}

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

std::string contiguous_problem(hid_t dataset, std::uint64_t bytes) {
    const haddr_t begin = H5Dget_offset(dataset);
    if (begin == HADDR_UNDEF) return "its data were never written";
    const std::uint64_t file = file_bytes(dataset);
    if (bytes > file || begin > file - bytes) return "its data reach beyond the end of the file";
    return "";
}

/// HDF5 reads beyond its memory where fewer bytes lie in the dataset's header than it has elements.
std::string compact_problem(hid_t dataset, std::uint64_t bytes) {
    const hsize_t stored = H5Dget_storage_size(dataset);
    return stored == bytes ? "" : cat("has ", stored, " bytes in its header and needs ", bytes);
}

/// A dataset's chunks as they must be stored.
struct Chunks {
    hid_t dataset;
    const ChunkFilters& filters;
    Extents extents;      ///< of the dataset
    Extents chunk;        ///< of a chunk
    std::uint64_t bytes;  ///< of a chunk in memory
};

/// What is wrong with the stored bytes of a compressed chunk.
std::string compressed_problem(const Chunks& chunks, const Extents& at, hsize_t stored) {
    std::vector<std::byte> bytes(stored);
    std::uint32_t skipped = 0;
    if (H5Dread_chunk(chunks.dataset, H5P_DEFAULT, at.data(), &skipped, bytes.data()) < 0) {
        return "cannot be read: " + hdf5_reason();
    }
    const auto undone = chunks.filters.undone_bytes(bytes, skipped, chunks.bytes);
    return undone == chunks.bytes ? "" : cat("does not hold its ", chunks.bytes, " bytes");
}

std::string chunk_problem(const Chunks& chunks, const Extents& at, std::uint64_t file) {
    hsize_t stored = 0;
    if (H5Dget_chunk_storage_size(chunks.dataset, at.data(), &stored) < 0 || stored == 0) {
        return "is not in the file's index";
    }
    const bool compressed = chunks.filters.compress();
    const bool too_much = stored > file || chunks.bytes / largest_compression > stored;
    if (compressed ? too_much : stored != chunks.bytes + chunks.filters.added_bytes()) {
        return cat("has ", stored, " bytes in the file's index");
    }
    return compressed ? compressed_problem(chunks, at, stored) : "";
}

std::string first_chunk_problem(const Chunks& chunks) {
    const std::uint64_t file = file_bytes(chunks.dataset);
    Extents at(chunks.extents.size(), 0);
    for (;;) {
        if (const std::string problem = chunk_problem(chunks, at, file); !problem.empty()) {
            std::vector<std::string> words;
            for (const hsize_t i : at) words.push_back(std::to_string(i));
            return cat("its chunk at [", join(words, ", "), "] ", problem);
        }
        std::size_t axis = at.size();
        while (axis > 0 && (at[axis - 1] += chunks.chunk[axis - 1]) >= chunks.extents[axis - 1]) {
            at[--axis] = 0;
        }
        if (axis == 0) return "";
    }
}

std::string chunked_problem(hid_t dataset, hid_t properties, const Extents& extents,
                            std::size_t element_bytes) {
    const ChunkFilters filters(properties);
    if (!filters.problem().empty()) return filters.problem();
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
    if (!whole || *whole > UINT32_MAX) return "has chunks that are too large";
    // Of single chunks without filters the library tells the size in memory.
    const std::uint64_t all = *wanted * *whole;
    const hsize_t stored = filters.empty() ? H5Dget_storage_size(dataset) : all;
    if (stored != all) {
        return cat("the file's index has ", stored, " bytes for ", *wanted, " chunks of ", *whole);
    }
    return first_chunk_problem({dataset, filters, extents, chunk, *whole});
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
    return layout == H5D_CONTIGUOUS ? contiguous_problem(dataset, *bytes)
                                    : compact_problem(dataset, *bytes);
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
