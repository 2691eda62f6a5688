#include "io/hdf5_slab.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/threads.h"
#include "io/checksum.h"
#include "io/hdf5_handle.h"

namespace loratrain {

namespace {

/// A chunk of whole rows in the file: its data, and their Fletcher-32 sum behind them.
struct RowChunk {
    std::uint64_t first_row = 0;
    off_t place = 0;  ///< in the file
};

/// Chunks of whole rows along a dataset's first axis that Fletcher-32 alone protects, as base.h5
/// has them.
struct RowChunks {
    std::uint64_t rows = 0;  ///< of a chunk
    std::uint64_t row_bytes = 0;
    int file = -1;                 ///< descriptor
    std::vector<RowChunk> chunks;  ///< that hold the wanted rows

    std::uint64_t bytes() const { return rows * row_bytes; }
};

bool only_fletcher32_protects(hid_t properties) {
    std::size_t values = 0;
    return H5Pget_layout(properties) == H5D_CHUNKED && H5Pget_nfilters(properties) == 1 &&
           H5Pget_filter2(properties, 0, nullptr, &values, nullptr, 0, nullptr, nullptr) ==
               H5Z_FILTER_FLETCHER32;
}

/// The descriptor of a dataset's file, if addresses in it count from its first byte and no writes
/// are pending; else -1.
int descriptor_of(hid_t dataset) {
    const Hdf5Handle file(H5Iget_file_id(dataset), H5Fclose);
    const Hdf5Handle creation(H5Fget_create_plist(file.get()), H5Pclose);
    const Hdf5Handle access(H5Fget_access_plist(file.get()), H5Pclose);
    unsigned intent = 0;
    hsize_t before = 0;
    void* descriptor = nullptr;
    const bool plain = H5Fget_intent(file.get(), &intent) >= 0 && intent == H5F_ACC_RDONLY &&
                       H5Pget_userblock(creation.get(), &before) >= 0 && before == 0 &&
                       H5Pget_driver(access.get()) == H5FD_SEC2 &&
                       H5Fget_vfd_handle(file.get(), H5P_DEFAULT, &descriptor) >= 0;
    return plain && descriptor != nullptr ? *static_cast<const int*>(descriptor) : -1;
}

/// Where the chunks with rows [first, end) lie. False if one is not as it must be.
bool find_chunks(hid_t dataset, std::size_t axes, std::uint64_t first, std::uint64_t end,
                 RowChunks& chunks) {
    std::vector<hsize_t> at(axes, 0);
    for (at[0] = first - first % chunks.rows; at[0] < end; at[0] += chunks.rows) {
        unsigned skipped = 0;
        haddr_t place = HADDR_UNDEF;
        hsize_t stored = 0;
        const bool found =
            H5Dget_chunk_info_by_coord(dataset, at.data(), &skipped, &place, &stored) >= 0;
        if (!found || skipped != 0 || place == HADDR_UNDEF ||
            stored != chunks.bytes() + fletcher32_bytes) {
            return false;
        }
        chunks.chunks.push_back({at[0], static_cast<off_t>(place)});
    }
    return true;
}

/// None where the dataset is stored in another way, or its elements are not of `memory_type`.
std::optional<RowChunks> row_chunks_of(hid_t dataset, hid_t memory_type, std::uint64_t first,
                                       std::uint64_t end) {
    const Hdf5Lock lock;
    const Hdf5Handle type(H5Dget_type(dataset), H5Tclose);
    const Hdf5Handle properties(H5Dget_create_plist(dataset), H5Pclose);
    if (H5Tequal(type.get(), memory_type) <= 0) return std::nullopt;
    if (!only_fletcher32_protects(properties.get())) return std::nullopt;
    const std::vector<std::int64_t> shape = dataset_shape(dataset);
    std::vector<hsize_t> chunk(shape.size());
    H5Pget_chunk(properties.get(), static_cast<int>(chunk.size()), chunk.data());
    RowChunks chunks{chunk[0], H5Tget_size(type.get()), descriptor_of(dataset), {}};
    for (std::size_t i = 1; i < shape.size(); ++i) {
        if (chunk[i] != static_cast<hsize_t>(shape[i])) return std::nullopt;
        chunks.row_bytes *= chunk[i];
    }
    if (chunks.file < 0 || !find_chunks(dataset, shape.size(), first, end, chunks)) {
        return std::nullopt;
    }
    return chunks;
}

/// Reads `bytes` of data from `place` on, and the sum behind them. False if the sum is wrong or the
/// system cannot read them.
bool read_chunk(int file, off_t place, char* data, std::uint64_t bytes) {
    std::uint32_t sum = 0;
    iovec parts[] = {{data, bytes}, {&sum, sizeof(sum)}};
    std::uint64_t left = bytes + sizeof(sum);
    while (left > 0) {
        const ssize_t got = ::preadv(file, parts, 2, place);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        left -= static_cast<std::uint64_t>(got);
        place += got;
        auto taken = static_cast<std::uint64_t>(got);
        for (iovec& part : parts) {
            const std::uint64_t own = std::min<std::uint64_t>(taken, part.iov_len);
            part.iov_base = static_cast<char*>(part.iov_base) + own;
            part.iov_len -= own;
            taken -= own;
        }
    }
    return fletcher32(data, bytes) == sum;
}

/// Reads the rows of [first, end) that lie in a chunk; the first of all goes to `target`.
bool read_rows_of(const RowChunks& chunks, const RowChunk& chunk, std::uint64_t first,
                  std::uint64_t end, char* target) {
    const std::uint64_t from = std::max(first, chunk.first_row);
    const std::uint64_t rows = std::min(end, chunk.first_row + chunks.rows) - from;
    char* const out = target + (from - first) * chunks.row_bytes;
    if (rows == chunks.rows) return read_chunk(chunks.file, chunk.place, out, chunks.bytes());
    const auto whole = std::make_unique_for_overwrite<char[]>(chunks.bytes());
    if (!read_chunk(chunks.file, chunk.place, whole.get(), chunks.bytes())) return false;
    std::memcpy(out, whole.get() + (from - chunk.first_row) * chunks.row_bytes,
                rows * chunks.row_bytes);
    return true;
}

/// As H5Dread, without its copies, with a faster sum and on several threads. False if a chunk is
/// not as it must be: H5Dread says why.
bool read_rows(const RowChunks& chunks, std::uint64_t first, std::uint64_t end, char* target) {
    constexpr unsigned most_threads = 8;
    constexpr std::size_t chunks_of_thread = 2;
    const std::size_t worth = chunks.chunks.size() / chunks_of_thread;
    const auto threads = static_cast<int>(std::min<std::size_t>(
        worth, std::clamp(std::thread::hardware_concurrency(), 1U, most_threads)));
    std::atomic<bool> good = true;
    parallel_for(chunks.chunks.size(), threads, [&](std::size_t i) {
        if (good && !read_rows_of(chunks, chunks.chunks[i], first, end, target)) good = false;
    });
    return good;
}

}  // namespace

void read_hdf5_slab(hid_t dataset, hid_t memory_type, std::int64_t first, std::int64_t count,
                    void* target, const std::string& where) {
    const auto begin = static_cast<std::uint64_t>(first);
    const std::uint64_t end = begin + static_cast<std::uint64_t>(count);
    const auto chunks = row_chunks_of(dataset, memory_type, begin, end);
    if (chunks && read_rows(*chunks, begin, end, static_cast<char*>(target))) return;
    const Hdf5Lock lock;
    const Hdf5Handle file_space(H5Dget_space(dataset), H5Sclose);
    const auto shape = dataset_shape(dataset);
    std::vector<hsize_t> start(shape.size(), 0);
    std::vector<hsize_t> extent(shape.begin(), shape.end());
    start[0] = static_cast<hsize_t>(first);
    extent[0] = static_cast<hsize_t>(count);
    const Hdf5Handle memory_space(
        H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr), H5Sclose);
    const bool read = H5Sselect_hyperslab(file_space.get(), H5S_SELECT_SET, start.data(), nullptr,
                                          extent.data(), nullptr) >= 0 &&
                      H5Dread(dataset, memory_type, memory_space.get(), file_space.get(),
                              H5P_DEFAULT, target) >= 0;
    if (!read) {
        throw InputError(where, "data cannot be read: " + hdf5_reason(),
                         "the file is damaged or truncated; make it again or copy it again");
    }
}

}  // namespace loratrain
