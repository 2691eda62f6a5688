#include "comm/communicator.h"
#include "comm/nccl_communicator.h"

namespace loratrain {

std::unique_ptr<Communicator> make_communicator(const MpiSession& mpi, const Backend& backend) {
    void* stream = backend.native_stream();
    if (stream != nullptr && mpi.size() > 1) return make_nccl_communicator(mpi, stream);
    return make_mpi_communicator(mpi);
}

}  // namespace loratrain
