#include "comm/rank_exchange.h"

#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "base/activity.h"
#include "base/error.h"
#include "comm/mpi_check.h"

namespace loratrain {

namespace {

constexpr std::chrono::microseconds between_looks_at_exchange{50};

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

/// Leaves the processor to others between its looks: replicas differ in what they have to do.
template <class Start>
void RankExchange::wait(const Start& start, const Meanwhile& meanwhile) {
    const activity::Waiting waiting;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_CHECK(start(&request));
    for (int done = 0;;) {
        MPI_CHECK(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
        if (done != 0) return;
        if (meanwhile) meanwhile();
        std::this_thread::sleep_for(between_looks_at_exchange);
    }
}

void RankExchange::all_to_all(std::span<const float> sent, std::span<const int> send_counts,
                              std::span<float> received, std::span<const int> receive_counts,
                              const Meanwhile& meanwhile) {
    check_sum(send_counts, sent.size(), size_);
    check_sum(receive_counts, received.size(), size_);
    const std::vector<int> send_places = places_of(send_counts);
    const std::vector<int> receive_places = places_of(receive_counts);
    wait(
        [&](MPI_Request* request) {
            return MPI_Ialltoallv(sent.data(), send_counts.data(), send_places.data(), MPI_FLOAT,
                                  received.data(), receive_counts.data(), receive_places.data(),
                                  MPI_FLOAT, comm_, request);
        },
        meanwhile);
}

void RankExchange::all_gather(std::span<const double> own, std::span<double> all,
                              const Meanwhile& meanwhile) {
    LORATRAIN_CHECK(all.size() == own.size() * static_cast<std::size_t>(size_), all.size(),
                    " values for ", own.size(), " of each of ", size_, " ranks");
    const int count = static_cast<int>(own.size());
    wait(
        [&](MPI_Request* request) {
            return MPI_Iallgather(own.data(), count, MPI_DOUBLE, all.data(), count, MPI_DOUBLE,
                                  comm_, request);
        },
        meanwhile);
}

}  // namespace loratrain
