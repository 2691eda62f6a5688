#include "comm/communicator.h"
#include "comm/mpi_rank_group.h"
#include "comm/nccl_communicator.h"
#include "comm/nccl_rank_group.h"

namespace loratrain {

std::unique_ptr<Communicator> make_communicator(const MpiSession& mpi,
                                                const std::vector<RankPair>& neighbours,
                                                std::size_t link_room, const Backend& backend) {
    void* stream = backend.native_stream();
    if (stream != nullptr && mpi.size() > 1) {
        return make_nccl_communicator(mpi, neighbours, stream);
    }
    return make_mpi_communicator(mpi, neighbours, link_room);
}

std::unique_ptr<RankGroup> make_rank_group(const MpiSession& mpi, int color,
                                           const Backend& backend) {
    void* stream = backend.native_stream();
    return stream != nullptr ? make_nccl_rank_group(mpi, color, stream)
                             : make_mpi_rank_group(mpi, color);
}

}  // namespace loratrain
