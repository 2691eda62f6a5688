#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/readback.h"
#include "kernels/sizes.h"

namespace loratrain {

/// Rows of values: to[r * to_ld + c] = from[r * from_ld + c] for r < rows, c < cols.
struct CopyBlock {
    const float* from = nullptr;
    float* to = nullptr;
    std::int64_t rows = 1;
    std::int64_t cols = 0;
    std::int64_t from_ld = 0;
    std::int64_t to_ld = 0;
};

/// Parts of a sum, of `count` values each; part i begins at values + places[i].
struct AddParts {
    float* values = nullptr;
    std::vector<std::int64_t> places;  ///< at most SideStream::most_parts
    std::int64_t count = 0;
};

/// What a backend's device does beside the ops, on a stream of its own and before them where both
/// can go on: sums of gradients over ranks. Not ordered with the ops: whoever queues something here
/// knows that what it reads is there. Calls return when queued. Destroyed before its backend.
class SideStream {
  public:
    static constexpr std::size_t most_parts = kernels::most_parts;
    /// Backend memory that add_parts needs for its own.
    static constexpr std::size_t workspace_bytes = kernels::add_parts_bytes;

    virtual ~SideStream() = default;
    virtual void* native_stream() const = 0;  ///< a cudaStream_t, for communicators
    virtual void zero(void* target, std::size_t bytes) = 0;
    virtual void copy(std::span<const CopyBlock> blocks) = 0;
    /// Each part becomes the sum of all, added in their order in fp32; *squares (backend memory) +=
    /// the squares of the sums, in fp64. The same bits in every run.
    virtual void add_parts(std::span<const AddParts> sums, double* squares, void* workspace) = 0;
    /// As Backend::read_later, of this stream.
    virtual std::unique_ptr<Readback> read_later(std::span<const ReadPart> parts) = 0;
};

}  // namespace loratrain
