#include "backend/host_copies.h"

#include <cstring>
#include <memory>

#include "backend/cpu/cpu_backend.h"

namespace loratrain {

namespace {

char* row(void* data, std::size_t i, std::size_t pitch) {
    return static_cast<char*>(data) + i * pitch;
}

class CpuHostCopies final : public HostCopies {
  public:
    void pin(void* /*data*/, std::size_t /*bytes*/) override {}
    void save(std::span<const HostCopy> copies) override {
        for (const HostCopy& copy : copies) {
            for (std::size_t i = 0; i < copy.rows; ++i) {
                std::memcpy(row(copy.host, i, copy.row_bytes), row(copy.device, i, copy.pitch),
                            copy.row_bytes);
            }
        }
    }
    void load(std::int32_t /*place*/, std::span<const HostCopy> copies) override {
        for (const HostCopy& copy : copies) {
            for (std::size_t i = 0; i < copy.rows; ++i) {
                std::memcpy(row(copy.device, i, copy.pitch), row(copy.host, i, copy.row_bytes),
                            copy.row_bytes);
            }
        }
    }
    void await(std::int32_t /*place*/) override {}
};

}  // namespace

std::unique_ptr<HostCopies> CpuBackend::make_host_copies(std::int32_t /*places*/) {
    return std::make_unique<CpuHostCopies>();
}

}  // namespace loratrain
