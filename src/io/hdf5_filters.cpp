#include "io/hdf5_filters.h"

#include <zlib.h>

#include "base/text.h"

namespace loratrain {

namespace {

constexpr std::uint64_t fletcher32_bytes = 4;

std::optional<std::uint64_t> inflated_bytes(std::span<const std::byte> stored, std::uint64_t most) {
    std::vector<Bytef> inflated(most + 1);
    uLongf bytes = inflated.size();
    const int status = ::uncompress(inflated.data(), &bytes,
                                    reinterpret_cast<const Bytef*>(stored.data()), stored.size());
    if (status != Z_OK || bytes > most) return std::nullopt;
    return bytes;
}

}  // namespace

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

}  // namespace loratrain
