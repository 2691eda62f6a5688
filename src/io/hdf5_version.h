#pragma once

#include <string>

namespace loratrain {

/// "1.10.8", of the HDF5 library that is loaded.
std::string hdf5_version();

}  // namespace loratrain
