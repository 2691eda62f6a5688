#include "comm/rank_groups.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "base/activity.h"
#include "base/error.h"
#include "comm/mpi_session.h"
#include "comm/waiting.h"

namespace loratrain {

namespace {

constexpr std::int64_t elements_at_once = 1 << 20;
constexpr std::chrono::microseconds between_looks_at_sums{20};

/// Calls use(elements of the view, place in the piece, count) for the stretches, each within a row,
/// of elements [begin, end) of the view, row after row.
template <class Use>
void for_each_stretch(const TensorView& view, std::int64_t begin, std::int64_t end,
                      const Use& use) {
    for (std::int64_t at = begin; at < end;) {
        const std::int64_t column = at % view.cols;
        const std::int64_t count = std::min(end - at, view.cols - column);
        use(view.f32() + at / view.cols * view.ld + column, at - begin, count);
        at += count;
    }
}

class MpiRankGroup final : public RankGroup {
  public:
    MpiRankGroup(const MpiSession& mpi, int color)
        : quiet_(threads_per_rank(mpi) * mpi.host_size() > mpi.host_processors()) {
        MPI_CHECK(MPI_Comm_split(mpi.comm(), color, mpi.rank(), &comm_));
        MPI_CHECK(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
        MPI_CHECK(MPI_Comm_rank(comm_, &index_));
        MPI_CHECK(MPI_Comm_size(comm_, &size_));
    }
    ~MpiRankGroup() override { MPI_Comm_free(&comm_); }
    MpiRankGroup(const MpiRankGroup&) = delete;
    MpiRankGroup& operator=(const MpiRankGroup&) = delete;

    std::int32_t index() const override { return index_; }
    std::int32_t size() const override { return size_; }

    void all_reduce(const TensorView& values) override {
        LORATRAIN_CHECK(values.dtype == DType::f32, "sum over ranks of ", to_string(values.dtype));
        if (size_ == 1) return;
        for (std::int64_t at = 0; at < values.numel(); at += elements_at_once) {
            reduce_piece(values, at, std::min(values.numel(), at + elements_at_once));
        }
    }

    void all_gather(const void* own, std::size_t bytes, void* all) override {
        char* place = static_cast<char*>(all) + static_cast<std::size_t>(index_) * bytes;
        if (own != place) std::memmove(place, own, bytes);
        LORATRAIN_CHECK(bytes <= gathered_at_once, "all_gather of ", bytes, " bytes");
        wait([&](MPI_Request* request) {
            return MPI_Iallgather(MPI_IN_PLACE, 0, MPI_BYTE, all, static_cast<int>(bytes), MPI_BYTE,
                                  comm_, request);
        });
    }

  private:
    static constexpr std::size_t gathered_at_once = 1U << 30U;

    template <class Start>
    void wait(const Start& start) {
        const activity::Waiting waiting;
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_CHECK(start(&request));
        wait_for({&request, 1}, quiet_, between_looks_at_sums);
    }

    void reduce_piece(const TensorView& values, std::int64_t begin, std::int64_t end) {
        share_out(static_cast<int>(end - begin));
        whole_.resize(static_cast<std::size_t>(end - begin));
        for_each_stretch(values, begin, end,
                         [&](const float* from, std::int64_t at, std::int64_t count) {
                             std::copy_n(from, count, whole_.data() + at);
                         });
        add_own_share();
        wait([&](MPI_Request* request) {
            return MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_FLOAT, whole_.data(), counts_.data(),
                                   firsts_.data(), MPI_FLOAT, comm_, request);
        });
        for_each_stretch(values, begin, end, [&](float* to, std::int64_t at, std::int64_t count) {
            std::copy_n(whole_.data() + at, count, to);
        });
    }

    /// Who adds up which elements of a piece, and where the ranks' values of the own ones come.
    void share_out(int elements) {
        counts_.clear();
        firsts_.clear();
        for (int rank = 0; rank < size_; ++rank) {
            firsts_.push_back(share_begin(elements, rank));
            counts_.push_back(share_begin(elements, rank + 1) - firsts_.back());
        }
        const int own = counts_[static_cast<std::size_t>(index_)];
        part_counts_.assign(static_cast<std::size_t>(size_), own);
        part_firsts_.clear();
        for (int rank = 0; rank < size_; ++rank) part_firsts_.push_back(rank * own);
    }

    int share_begin(int elements, int rank) const {
        return static_cast<int>(std::int64_t{elements} * rank / size_);
    }

    void add_own_share() {
        const auto own = static_cast<std::size_t>(counts_[static_cast<std::size_t>(index_)]);
        parts_.resize(own * static_cast<std::size_t>(size_));
        wait([&](MPI_Request* request) {
            return MPI_Ialltoallv(whole_.data(), counts_.data(), firsts_.data(), MPI_FLOAT,
                                  parts_.data(), part_counts_.data(), part_firsts_.data(),
                                  MPI_FLOAT, comm_, request);
        });
        float* sum = whole_.data() + firsts_[static_cast<std::size_t>(index_)];
        std::copy_n(parts_.data(), own, sum);
        for (std::size_t rank = 1; rank < static_cast<std::size_t>(size_); ++rank) {
            const float* part = parts_.data() + rank * own;
            for (std::size_t i = 0; i < own; ++i) sum[i] += part[i];
        }
    }

    MPI_Comm comm_ = MPI_COMM_NULL;
    int index_ = 0;
    int size_ = 1;
    bool quiet_;
    std::vector<float> whole_;  ///< a piece of the values
    std::vector<float> parts_;  ///< every rank's values of this rank's share
    std::vector<int> counts_;   ///< of the ranks' shares
    std::vector<int> firsts_;
    std::vector<int> part_counts_;
    std::vector<int> part_firsts_;
};

}  // namespace

std::unique_ptr<RankGroup> make_mpi_rank_group(const MpiSession& mpi, int color) {
    return std::make_unique<MpiRankGroup>(mpi, color);
}

}  // namespace loratrain
