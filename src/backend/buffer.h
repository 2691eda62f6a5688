#pragma once

#include <cstddef>
#include <utility>

namespace loratrain {

class Backend;

/// Memory of a backend, aligned to 64 bytes and released on destruction. Moves, does not copy.
class Buffer {
  public:
    Buffer() = default;
    Buffer(Backend* owner, void* data, std::size_t bytes)
        : owner_(owner), data_(data), bytes_(bytes) {}
    Buffer(Buffer&& other) noexcept { *this = std::move(other); }
    Buffer& operator=(Buffer&& other) noexcept {
        std::swap(owner_, other.owner_);
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer();

    void* data() const { return data_; }
    template <class T>
    T* as() const {
        return static_cast<T*>(data_);
    }
    std::size_t bytes() const { return bytes_; }

  private:
    Backend* owner_ = nullptr;
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

}  // namespace loratrain
