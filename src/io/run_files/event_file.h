#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace loratrain {

/// TensorBoard's event files: a sequence of TFRecords, each a serialised Event.
///   record: u64 length, u32 masked_crc32c(length), payload, u32 masked_crc32c(payload)
///   Event (tensorflow/core/util/event.proto): 1 double wall_time, 2 int64 step,
///     3 string file_version | 5 Summary{1 Value{1 string tag, 2 float simple_value}}
/// All numbers are little-endian.

/// CRC-32C (Castagnoli), the polynomial of iSCSI.
std::uint32_t crc32c(std::string_view bytes);

/// crc32c() as TFRecords store it: rotated right by 15 bits, plus 0xa282ead8.
std::uint32_t masked_crc32c(std::string_view bytes);

/// A payload as a record.
std::string tf_record(std::string_view payload);

/// The first record of every event file.
std::string event_file_header(double wall_time);

using Scalar = std::pair<std::string, double>;  ///< tag, value

/// A record with the scalars of a step; "" without scalars.
std::string scalar_event(double wall_time, std::int64_t step, const std::vector<Scalar>& scalars);

}  // namespace loratrain
