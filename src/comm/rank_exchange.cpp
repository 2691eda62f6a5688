#include "comm/rank_exchange.h"

#include <numeric>

#include "base/error.h"

namespace loratrain {

namespace {

std::vector<int> places_of(std::span<const int> counts) {
    std::vector<int> places(counts.size());
    std::exclusive_scan(counts.begin(), counts.end(), places.begin(), 0);
    return places;
}

void check_sum(std::span<const int> counts, std::size_t values, int ranks) {
    const auto sum = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    LORATRAIN_CHECK(std::ssize(counts) == ranks && sum == values, counts.size(), " counts of ", sum,
                    " values, but there are ", values, " for ", ranks, " ranks");
}

}  // namespace

RankExchange::RankExchange(const MpiSession& mpi) : size_(mpi.size()) {
    MPI_CHECK(MPI_Comm_dup(mpi.comm(), &comm_));
    MPI_CHECK(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
}

RankExchange::~RankExchange() {
    MPI_Comm_free(&comm_);
}

void RankExchange::begin_all_to_all(std::span<const float> sent, std::span<const int> send_counts,
                                    std::span<float> received,
                                    std::span<const int> receive_counts) {
    LORATRAIN_CHECK(under_way_ == MPI_REQUEST_NULL, "an exchange is under way");
    check_sum(send_counts, sent.size(), size_);
    check_sum(receive_counts, received.size(), size_);
    send_places_ = places_of(send_counts);
    receive_places_ = places_of(receive_counts);
    MPI_CHECK(MPI_Ialltoallv(sent.data(), send_counts.data(), send_places_.data(), MPI_FLOAT,
                             received.data(), receive_counts.data(), receive_places_.data(),
                             MPI_FLOAT, comm_, &under_way_));
}

void RankExchange::begin_all_gather(std::span<const double> own, std::span<double> all) {
    LORATRAIN_CHECK(under_way_ == MPI_REQUEST_NULL, "an exchange is under way");
    LORATRAIN_CHECK(all.size() == own.size() * static_cast<std::size_t>(size_), all.size(),
                    " values for ", own.size(), " of each of ", size_, " ranks");
    const int count = static_cast<int>(own.size());
    MPI_CHECK(MPI_Iallgather(own.data(), count, MPI_DOUBLE, all.data(), count, MPI_DOUBLE, comm_,
                             &under_way_));
}

bool RankExchange::done() {
    int done = 0;
    MPI_CHECK(MPI_Test(&under_way_, &done, MPI_STATUS_IGNORE));
    return done != 0;
}

}  // namespace loratrain
