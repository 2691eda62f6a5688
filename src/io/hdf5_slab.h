#pragma once

#include <hdf5.h>

#include <cstdint>
#include <string>

namespace loratrain {

/// Reads elements [first, first + count) of the first axis, and all elements of the other axes, as
/// `memory_type`. InputError at `where` if the data are damaged. Threads share chunks of whole rows
/// that are protected by Fletcher-32 alone, as base.h5 has them; the library's lock is not taken
/// while these are read.
void read_hdf5_slab(hid_t dataset, hid_t memory_type, std::int64_t first, std::int64_t count,
                    void* target, const std::string& where);

}  // namespace loratrain
