#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace loratrain {

/// Streamed layers whose weights the ranks of a host store once for all of them
/// (plan/memory/streamed_layers.h). The code that knows the ranks implements it; a stage does not
/// know other ranks. Layers are counted from the stage's first layer.
class SharedLayers {
  public:
    virtual ~SharedLayers() = default;

    /// Whether the layers lie in the memory of the ranks that own them, in the layout of a buffer
    /// of streamed layers. If false, they lie in host memory, packed.
    virtual bool owned_by_ranks() const = 0;
    /// Host memory that holds layers; the caller pins it.
    virtual std::vector<std::span<char>> host_memory() const = 0;
    /// With layers in host memory: whether this rank writes the layer there. It does so before
    /// loaded().
    virtual bool fills(std::int32_t layer) const = 0;
    /// With layers owned by ranks: host memory for the layers of this rank, contiguous. Null: the
    /// backend allocates one block.
    virtual void* room() const = 0;
    /// Size of room(), in bytes; the backend does not count it.
    virtual std::size_t room_bytes() const = 0;
    /// Tells the other ranks that this rank's layers are in place, or by `failure` why not. `held`
    /// is the backend memory of this rank's layers, which other ranks open; null = none. Collective
    /// over all ranks: on return every layer is in place. Throws if another rank failed.
    virtual void loaded(const std::string& failure, void* held) = 0;
    /// Weights of a streamed layer. A layer of another rank is valid only after loaded().
    virtual char* weights(std::int32_t layer) const = 0;
    /// Ends the use of other ranks' memory. Collective over all ranks: on return no rank reads
    /// another's memory.
    virtual void leave() = 0;
};

}  // namespace loratrain
