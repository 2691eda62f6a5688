#pragma once

namespace loratrain::kernels {

/// Bytes of shared memory that a GPU offers a block of threads. The largest tiles are made for the
/// most (sm_90); every kernel has tiles for the least (sm_86, sm_89; sm_80 has 163 KiB). Which ones
/// are taken follows a limit that the caller gives, and changes no bit of a result where nothing
/// else is said.
constexpr int most_shared_bytes = 227 * 1024;
constexpr int least_shared_bytes = 99 * 1024;

}  // namespace loratrain::kernels
