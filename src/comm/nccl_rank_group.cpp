#include "comm/rank_groups.h"

#ifdef LORATRAIN_WITH_NCCL

#include "base/device_memory.h"
#include "comm/mpi_session.h"
#include "comm/nccl_check.h"

namespace loratrain {

namespace {

/// NCCL sums few, some and many bytes in different ways.
constexpr std::size_t tried_bytes[] = {8, 4096, std::size_t{64} << 10U, std::size_t{1} << 20U,
                                       std::size_t{16} << 20U};

ncclDataType_t nccl_type(DType dtype) {
    LORATRAIN_CHECK(dtype == DType::f32 || dtype == DType::bf16, "sum over ranks of ",
                    to_string(dtype));
    return dtype == DType::f32 ? ncclFloat32 : ncclBfloat16;
}

class NcclRankGroup final : public RankGroup {
  public:
    NcclRankGroup(const MpiSession& mpi, int color, cudaStream_t stream) : stream_(stream) {
        MPI_Comm members = MPI_COMM_NULL;
        MPI_CHECK(MPI_Comm_split(mpi.comm(), color, mpi.rank(), &members));
        MPI_CHECK(MPI_Comm_rank(members, &index_));
        MPI_CHECK(MPI_Comm_size(members, &size_));
        if (size_ > 1) connect(members);
        MPI_CHECK(MPI_Comm_free(&members));
    }
    ~NcclRankGroup() override {
        if (comm_ != nullptr) ncclCommDestroy(comm_);
    }
    NcclRankGroup(const NcclRankGroup&) = delete;
    NcclRankGroup& operator=(const NcclRankGroup&) = delete;

    std::int32_t index() const override { return index_; }
    std::int32_t size() const override { return size_; }

    void all_reduce(const TensorView& values) override {
        LORATRAIN_CHECK(values.ld == values.cols || values.rows <= 1, "sum over ranks of rows ",
                        values.ld, " apart of ", values.cols);
        if (size_ == 1 || values.numel() == 0) return;
        check_peers();
        check_nccl(ncclAllReduce(values.data, values.data, static_cast<std::size_t>(values.numel()),
                                 nccl_type(values.dtype), ncclSum, comm_, stream_),
                   "ncclAllReduce");
    }

    void all_gather(const void* own, std::size_t bytes, void* all) override {
        char* place = static_cast<char*>(all) + static_cast<std::size_t>(index_) * bytes;
        if (size_ == 1) {
            if (own == place || bytes == 0) return;
            check_cuda(cudaMemcpyAsync(place, own, bytes, cudaMemcpyDeviceToDevice, stream_),
                       "cudaMemcpyAsync");
            return;
        }
        check_peers();
        check_nccl(ncclAllGather(own, all, bytes, ncclUint8, comm_, stream_), "ncclAllGather");
    }

  private:
    void connect(MPI_Comm members) {
        ncclUniqueId id{};
        if (index_ == 0) check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
        MPI_CHECK(MPI_Bcast(&id, sizeof(id), MPI_BYTE, 0, members));
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.maxCTAs = device_memory::nccl_channels;
        check_nccl(ncclCommInitRankConfig(&comm_, size_, id, index_, &config),
                   "ncclCommInitRankConfig");
        try_all_ways();
    }

    void try_all_ways() {
        const std::size_t largest = *std::rbegin(tried_bytes);
        void* scratch = nullptr;
        check_cuda(cudaMalloc(&scratch, largest), "cudaMalloc");
        check_cuda(cudaMemsetAsync(scratch, 0, largest, stream_), "cudaMemsetAsync");
        for (const std::size_t bytes : tried_bytes) {
            const auto count = static_cast<std::int64_t>(bytes / sizeof(float));
            all_reduce({scratch, DType::f32, 1, count, count});
            const std::size_t share = bytes / 8 / static_cast<std::size_t>(size_) * 8;
            all_gather(static_cast<char*>(scratch) + static_cast<std::size_t>(index_) * share,
                       share, scratch);
        }
        check_cuda(cudaStreamSynchronize(stream_), "first sums over NCCL");
        check_cuda(cudaFree(scratch), "cudaFree");
    }

    void check_peers() const {
        const char* failure = failure_of(comm_);
        if (failure != nullptr) {
            throw Error(cat("NCCL between lane ", index_, " and the others of its ", size_,
                            " failed: ", failure, "; NCCL_DEBUG=INFO makes NCCL say why"));
        }
    }

    cudaStream_t stream_;
    int index_ = 0;
    int size_ = 1;
    ncclComm_t comm_ = nullptr;
};

}  // namespace

std::unique_ptr<RankGroup> make_nccl_rank_group(const MpiSession& mpi, int color,
                                                void* compute_stream) {
    return std::make_unique<NcclRankGroup>(mpi, color, static_cast<cudaStream_t>(compute_stream));
}

}  // namespace loratrain

#else

#include "base/error.h"

namespace loratrain {

std::unique_ptr<RankGroup> make_nccl_rank_group(const MpiSession& /*mpi*/, int /*color*/,
                                                void* /*compute_stream*/) {
    throw InputError("parallel.deployment",
                     "tp above 1 on GPUs needs NCCL, but this program was built without NCCL",
                     "install NCCL and build again, or use tp: 1");
}

}  // namespace loratrain

#endif
