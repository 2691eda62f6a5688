#include "session/rank_backend.h"

#include <malloc.h>

#include "backend/make_backend.h"
#include "base/log.h"
#include "base/tensor.h"
#include "base/text.h"
#include "comm/collective.h"
#include "io/files.h"

namespace loratrain {

std::unique_ptr<Backend> make_rank_backend(const MpiSession& mpi, BackendKind kind, DType compute,
                                           const std::string& algorithm_file) {
    return make_backend(kind == BackendKind::cuda ? "cuda" : "cpu",
                        {threads_per_rank(mpi), mpi.host_rank(), compute, algorithm_file});
}

void give_back_large_blocks() {
#ifdef M_MMAP_THRESHOLD
    constexpr int large = 1 << 20;
    mallopt(M_MMAP_THRESHOLD, large);
#endif
}

std::vector<MeasuredMemory> record_memory(const MpiSession& mpi, const std::string& run_dir,
                                          const Backend& backend, std::uint64_t others,
                                          const ResidentMemory& before) {
    const auto allocated = gather_numbers(mpi, backend.memory().peak + others);
    const auto resident = gather_numbers(mpi, resident_memory().peak - before.now);
    std::vector<MeasuredMemory> ranks;
    for (std::size_t r = 0; r < allocated.size(); ++r) ranks.push_back({allocated[r], resident[r]});
    if (!mpi.is_root()) return ranks;
    warn_at_failure(
        [&] { write_text_atomic(run_dir + "/" + memory_file_name, memory_to_json(ranks)); });
    return ranks;
}

void log_memory(const Plan& plan, const std::vector<MeasuredMemory>& ranks) {
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        log::info(cat("memory of rank ", r, ": planned ",
                      human_bytes(plan.memory[r % plan.memory.size()].total()), ", allocated ",
                      human_bytes(ranks[r].allocated), ", resident growth ",
                      human_bytes(ranks[r].resident_growth)));
    }
}

}  // namespace loratrain
