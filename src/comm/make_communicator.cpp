#include <cstring>

#include "comm/communicator.h"
#include "comm/rank_groups.h"

namespace loratrain {

namespace {

/// By all threads of a backend on a processor: one alone takes in less than memory gives.
ByteCopy copy_by(Backend& backend) {
    return [&backend](void* to, const void* from, std::size_t bytes) {
        constexpr std::size_t row = std::size_t{32} << 10U;
        constexpr std::size_t columns = row / sizeof(float);
        const std::size_t rows = bytes / row;
        if (rows > 1) {
            const auto view = [rows](void* data) {
                return matrix(data, DType::f32, static_cast<std::int64_t>(rows), columns);
            };
            backend.copy({view(to), view(const_cast<void*>(from))});  // NOLINT(*-const-cast)
        }
        const std::size_t done = rows > 1 ? rows * row : 0;
        std::memcpy(static_cast<char*>(to) + done, static_cast<const char*>(from) + done,
                    bytes - done);
    };
}

}  // namespace

std::unique_ptr<Communicator> make_communicator(const MpiSession& mpi,
                                                const std::vector<RankPair>& neighbours,
                                                std::size_t link_room, Backend& backend) {
    void* stream = backend.native_stream();
    if (stream != nullptr && mpi.size() > 1) {
        return make_nccl_communicator(mpi, neighbours, stream);
    }
    return make_mpi_communicator(mpi, neighbours, link_room, copy_by(backend));
}

std::unique_ptr<RankGroup> make_rank_group(const MpiSession& mpi, int color,
                                           const Backend& backend) {
    void* stream = backend.native_stream();
    return stream != nullptr ? make_nccl_rank_group(mpi, color, stream)
                             : make_mpi_rank_group(mpi, color);
}

}  // namespace loratrain
