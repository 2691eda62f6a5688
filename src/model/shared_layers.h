#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace loratrain {

/// Where layers that stream lie whose weights several ranks of a host have once between them
/// (plan/memory/streamed_layers.h). Made by who knows the ranks; a stage knows no others. Layers
/// are counted from the stage's first.
class SharedLayers {
  public:
    virtual ~SharedLayers() = default;

    /// Whether they lie where other ranks compute with them, laid out as in a buffer of streamed
    /// layers; else in host memory, packed.
    virtual bool owned_by_ranks() const = 0;
    /// Host memory that layers are in, to be pinned.
    virtual std::vector<std::span<char>> host_memory() const = 0;
    /// Of host memory: whether this rank puts the layer there. It does so before loaded().
    virtual bool fills(std::int32_t layer) const = 0;
    /// Held by ranks: host memory for the layers of this rank, one behind the other; null: the
    /// backend's, allocated as one.
    virtual void* room() const = 0;
    /// Of that memory, which the backend does not count.
    virtual std::size_t room_bytes() const = 0;
    /// All of this rank's layers are where they belong; or `failure` says why not. Collective over
    /// all ranks: on return every layer is there; throws where another rank failed. `held`: the
    /// backend's memory of this rank's layers, which others open; null = none.
    virtual void loaded(const std::string& failure, void* held) = 0;
    /// A layer that streams; of another rank's only after loaded().
    virtual char* weights(std::int32_t layer) const = 0;
    /// This rank reads no other's memory any more; on return none does. Collective over all ranks.
    virtual void leave() = 0;
};

}  // namespace loratrain
