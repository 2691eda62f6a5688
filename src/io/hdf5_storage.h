#pragma once

#include <hdf5.h>

#include <string>

namespace loratrain {

/// Why a dataset's data cannot all be read from its own file, "" = they can: they lie in another
/// file or beyond the end of this one, were never written or lost their place in the index (HDF5
/// would give fill values without a word), have another size than their elements need (HDF5 would
/// read beyond its memory), or need a filter that cannot be undone. Reads compressed data only.
std::string storage_problem(hid_t dataset);

/// Whether damage of its data is noticed while reading: chunks have the fletcher32 filter. Datasets
/// that are not cut into chunks have none.
bool has_chunks_without_checksum(hid_t dataset);

}  // namespace loratrain
