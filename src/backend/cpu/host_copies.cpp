#include "backend/host_copies.h"

#include <cstring>
#include <memory>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"

namespace loratrain {

namespace {

char* row(void* data, std::size_t i, std::size_t pitch) {
    return static_cast<char*>(data) + i * pitch;
}

class CpuHostCopies final : public HostCopies {
  public:
    explicit CpuHostCopies(CpuBackend& backend) : backend_(backend) {}

    void pin(void* /*data*/, std::size_t /*bytes*/) override {}
    void save(std::span<const HostCopy> copies) override {
        for (const HostCopy& copy : copies) {
            for (std::size_t i = 0; i < copy.rows; ++i) {
                std::memcpy(row(copy.host, i, copy.host_pitch()), row(copy.device, i, copy.pitch),
                            copy.row_bytes);
            }
        }
    }
    void load(std::int32_t /*place*/, std::span<const HostCopy> copies,
              StreamClock* clock) override {
        if (clock != nullptr) clock->mark();
        for (const HostCopy& copy : copies) {
            for (std::size_t i = 0; i < copy.rows; ++i) {
                std::memcpy(row(copy.device, i, copy.pitch), row(copy.host, i, copy.host_pitch()),
                            copy.row_bytes);
            }
        }
        if (clock != nullptr) clock->mark();
    }
    void store(std::int32_t /*place*/, std::span<const HostCopy> copies,
               StreamClock* clock) override {
        if (clock != nullptr) clock->mark();
        save(copies);
        if (clock != nullptr) clock->mark();
    }
    void await(std::int32_t /*place*/) override {}
    std::unique_ptr<StreamClock> make_clock() override { return backend_.make_clock(); }

  private:
    CpuBackend& backend_;
};

}  // namespace

std::string HostCopies::offer(void* /*data*/) {
    throw Error("memory of this backend cannot be opened by other processes");
}

void* HostCopies::open(const std::string& /*offer*/) {
    throw Error("this backend opens no memory of other processes");
}

std::unique_ptr<HostCopies> CpuBackend::make_host_copies(std::int32_t /*places*/) {
    return std::make_unique<CpuHostCopies>(*this);
}

}  // namespace loratrain
