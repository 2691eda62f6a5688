#include "comm/rank_exchange.h"

#ifdef LORATRAIN_WITH_NCCL

#include <vector>

#include "base/device_memory.h"
#include "comm/mpi_session.h"
#include "comm/nccl_check.h"

namespace loratrain {

namespace {

class NcclExchange final : public DeviceExchange {
  public:
    NcclExchange(const MpiSession& mpi, cudaStream_t stream)
        : stream_(stream), rank_(mpi.rank()), ranks_(mpi.size()) {
        ncclUniqueId id{};
        if (rank_ == 0) check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
        MPI_CHECK(MPI_Bcast(&id, sizeof(id), MPI_BYTE, 0, mpi.comm()));
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.maxCTAs = device_memory::exchange_channels;
        check_nccl(ncclCommInitRankConfig(&comm_, ranks_, id, rank_, &config),
                   "ncclCommInitRankConfig");
        connect();
    }
    ~NcclExchange() override { ncclCommDestroy(comm_); }
    NcclExchange(const NcclExchange&) = delete;
    NcclExchange& operator=(const NcclExchange&) = delete;

    void all_to_all(const float* sent, std::span<const int> send_counts, float* received,
                    std::span<const int> receive_counts) override {
        check_nccl(ncclGroupStart(), "ncclGroupStart");
        for (int peer = 0; peer < ranks_; ++peer) {
            const auto p = static_cast<std::size_t>(peer);
            move(peer, {sent, static_cast<std::size_t>(send_counts[p])},
                 {received, static_cast<std::size_t>(receive_counts[p])});
            sent += send_counts[p];
            received += receive_counts[p];
        }
        check_nccl(ncclGroupEnd(), "ncclGroupEnd");
    }

    void check_peers() const override {
        const char* failure = failure_of(comm_);
        if (failure != nullptr) {
            throw Error(cat("NCCL between rank ", rank_, " and the others that sum gradients ",
                            "with it failed: ", failure, "; NCCL_DEBUG=INFO makes NCCL say why"));
        }
    }

  private:
    void move(int peer, std::span<const float> out, std::span<float> in) {
        if (peer == rank_) {
            if (out.empty()) return;
            check_cuda(cudaMemcpyAsync(in.data(), out.data(), out.size_bytes(),
                                       cudaMemcpyDeviceToDevice, stream_),
                       "cudaMemcpyAsync");
            return;
        }
        if (!out.empty()) {
            check_nccl(ncclSend(out.data(), out.size(), ncclFloat32, peer, comm_, stream_),
                       "ncclSend");
        }
        if (!in.empty()) {
            check_nccl(ncclRecv(in.data(), in.size(), ncclFloat32, peer, comm_, stream_),
                       "ncclRecv");
        }
    }

    /// NCCL connects at the first messages, and would block the host then.
    void connect() {
        void* scratch = nullptr;
        const auto count = static_cast<std::size_t>(ranks_);
        check_cuda(cudaMalloc(&scratch, 2 * count * sizeof(float)), "cudaMalloc");
        const std::vector<int> ones(count, 1);
        auto* values = static_cast<float*>(scratch);
        all_to_all(values, ones, values + count, ones);
        check_cuda(cudaStreamSynchronize(stream_), "first exchange over NCCL");
        check_cuda(cudaFree(scratch), "cudaFree");
    }

    cudaStream_t stream_;
    int rank_;
    int ranks_;
    ncclComm_t comm_ = nullptr;
};

}  // namespace

std::unique_ptr<DeviceExchange> make_nccl_exchange(const MpiSession& mpi, void* stream) {
    return std::make_unique<NcclExchange>(mpi, static_cast<cudaStream_t>(stream));
}

}  // namespace loratrain

#else

namespace loratrain {

std::unique_ptr<DeviceExchange> make_nccl_exchange(const MpiSession& /*mpi*/, void* /*stream*/) {
    return nullptr;
}

}  // namespace loratrain

#endif
