#pragma once

#include <cstdint>
#include <vector>

#include "support/device_data.h"

namespace loratrain {

/// Samples of the given lengths, packed; sample i has the id first_id + i.
class PackedSamples {
  public:
    PackedSamples(Backend& backend, const std::vector<std::int32_t>& lengths,
                  std::int32_t first_id = 100)
        : host_offsets_(offsets_of(lengths)),
          host_positions_(positions_of(lengths)),
          host_sample_ids_(sample_ids_of(lengths, first_id)),
          offsets_(backend, host_offsets_),
          positions_(backend, host_positions_),
          sample_ids_(backend, host_sample_ids_) {}

    PackedRows rows() const {
        return {host_offsets_.back(), static_cast<std::int64_t>(host_offsets_.size()) - 1,
                offsets_.data(),      host_offsets_.data(),
                positions_.data(),    sample_ids_.data()};
    }
    const std::vector<std::int32_t>& offsets() const { return host_offsets_; }
    const std::vector<std::int32_t>& positions() const { return host_positions_; }
    const std::vector<std::int32_t>& sample_ids() const { return host_sample_ids_; }

  private:
    static std::vector<std::int32_t> offsets_of(const std::vector<std::int32_t>& lengths) {
        std::vector<std::int32_t> result{0};
        for (const std::int32_t length : lengths) result.push_back(result.back() + length);
        return result;
    }
    static std::vector<std::int32_t> positions_of(const std::vector<std::int32_t>& lengths) {
        std::vector<std::int32_t> result;
        for (const std::int32_t length : lengths) {
            for (std::int32_t position = 0; position < length; ++position) {
                result.push_back(position);
            }
        }
        return result;
    }
    static std::vector<std::int32_t> sample_ids_of(const std::vector<std::int32_t>& lengths,
                                                   std::int32_t first_id) {
        std::vector<std::int32_t> result;
        for (std::size_t i = 0; i < lengths.size(); ++i) {
            result.insert(result.end(), lengths[i], first_id + static_cast<std::int32_t>(i));
        }
        return result;
    }

    std::vector<std::int32_t> host_offsets_;
    std::vector<std::int32_t> host_positions_;
    std::vector<std::int32_t> host_sample_ids_;
    DeviceVector<std::int32_t> offsets_;
    DeviceVector<std::int32_t> positions_;
    DeviceVector<std::int32_t> sample_ids_;
};

}  // namespace loratrain
