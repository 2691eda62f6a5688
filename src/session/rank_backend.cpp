#include "session/rank_backend.h"

#include "backend/make_backend.h"

namespace loratrain {

std::unique_ptr<Backend> make_rank_backend(const MpiSession& mpi, BackendKind kind, DType compute,
                                           const std::string& algorithm_file) {
    return make_backend(kind == BackendKind::cuda ? "cuda" : "cpu",
                        {threads_per_rank(mpi), mpi.host_rank(), compute, algorithm_file});
}

}  // namespace loratrain
