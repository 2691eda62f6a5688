#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/readback.h"
#include "kernels/sizes.h"

namespace loratrain {

/// Sums of gradients over ranks, on a stream beside the operators.

/// A copy of rows: to[r * to_ld + c] = from[r * from_ld + c] for r < rows, c < cols.
struct CopyBlock {
    const float* from = nullptr;
    float* to = nullptr;
    std::int64_t rows = 1;
    std::int64_t cols = 0;
    std::int64_t from_ld = 0;
    std::int64_t to_ld = 0;
};

/// Terms of a sum, of `count` values each; term i begins at values + places[i].
struct AddParts {
    float* values = nullptr;
    std::vector<std::int64_t> places;  ///< at most SideStream::most_parts
    std::int64_t count = 0;
};

/// A second stream of a backend's device, of higher priority than the operators' stream. The two
/// streams are not ordered: the caller knows that what it reads is there. Calls return when queued.
/// Destroyed before its backend.
class SideStream {
  public:
    static constexpr std::size_t most_parts = kernels::most_parts;

    virtual ~SideStream() = default;
    virtual void* native_stream() const = 0;  ///< a cudaStream_t, for communicators
    virtual void zero(void* target, std::size_t bytes) = 0;
    virtual void copy(std::span<const CopyBlock> blocks) = 0;
    /// Replaces each term by the sum of all terms, added in order in fp32; *squares (backend
    /// memory)
    /// += sum of the squares of the sums, in fp64. Reproducible to the bit. `workspace`:
    /// kernels::add_parts_bytes of backend memory.
    virtual void add_parts(std::span<const AddParts> sums, double* squares, void* workspace) = 0;
    /// As Backend::read_later(), for this stream.
    virtual std::unique_ptr<Readback> read_later(std::span<const ReadPart> parts) = 0;
};

}  // namespace loratrain
