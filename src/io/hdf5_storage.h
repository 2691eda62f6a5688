#pragma once

#include <hdf5.h>

#include <string>

namespace loratrain {

/// Checks of how a dataset's data are stored, before HDF5 reads them.

/// Why a dataset's data cannot all be read from its own file; "" = they can. Reasons:
///   - they lie in another file, or beyond the end of this one,
///   - they were never written, or the index has lost them (HDF5 would return fill values without
///     an error),
///   - their size is not that of their elements (HDF5 would read beyond its memory),
///   - they need a filter that cannot be undone.
/// Only compressed data are read for the check.
std::string storage_problem(hid_t dataset);

/// True if damage of the data may go unnoticed while reading: a chunk lacks the fletcher32 filter.
/// False for datasets that are not stored in chunks.
bool has_chunks_without_checksum(hid_t dataset);

}  // namespace loratrain
