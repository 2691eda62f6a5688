#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/growing_memory.h"
#include "backend/gemm_choices.h"

namespace loratrain {

/// Row-major Gemm of backend.h on cuBLASLt: fp32 sums, no TF32, no reduction whose order depends on
/// timing. Products whose sizes are alike (base/gemm_shape.h), as those of packed microbatches of
/// other tokens or other adapters, share a list of algorithms, which is made at the first use of
/// such a class: in bf16 by timing the library's proposals with the rows that stand for the class
/// (never into a C that is added to), in fp32 of its first proposals for the largest sizes of
/// the class. Of the list each product takes the one that is expected to be the fastest by how its
/// tiles fill the GPU (gemm_choices.h), of those that the library lets it take: what is best for
/// one number of rows takes up to twice as long for a few more, whose tiles do not fit its waves.
/// So a choice depends on the list and the product, not on what was met before. What takes long is
/// timed once, and again where it is near the best so far. Once a family of shapes has lists, also
/// of a run before, later ones try these and a few proposals.
///
/// Lists are read from `algorithm_file` (of the run: its ranks share it, and a stopped run
/// continues to the bit) and the file that LORATRAIN_ALGO_CACHE names (of many runs: they repeat to
/// the bit and start without timing), and appended to both: GemmChoices. Of ranks that time a class
/// at the same time, the first to append has chosen for all. Lines of another cuBLAS or GPU are
/// ignored.
class GemmCublasLt {
  public:
    /// `use` counts the memory that timing takes.
    GemmCublasLt(cudaStream_t stream, DType dtype, const std::string& device,
                 const Buffer& workspace, MemoryUse* use, const std::string& algorithm_file);
    ~GemmCublasLt();
    GemmCublasLt(const GemmCublasLt&) = delete;
    GemmCublasLt& operator=(const GemmCublasLt&) = delete;

    /// Memory for A and C, of the most rows of a class, while algorithms are timed at the first use
    /// of one; where there is none it is allocated then, which waits for the whole
    /// device.
    void reserve_timing(std::size_t bytes);

    /// Before an algorithm runs that has not run yet.
    void before_stalls(const std::function<void()>& call) { before_stall_ = call; }

    /// Classes that were timed.
    const FirstUses& first_uses() const { return first_uses_; }

    /// m, n, k >= 1. In fp32 sums of more than 1024 terms are made in pieces of as many, one after
    /// another: as exact as the blocks of a CPU's library, whatever the algorithm.
    void run(const Gemm& op);
    /// Products of e4m3 codes, each scaled by its row and column (cuBLAS 12.9 or later); choices of
    /// algorithm as in bf16.
    void run(const GemmFp8& op);
    /// "cuBLASLt 13.0.2"
    static std::string library();

  private:
    struct Problem;
    /// A Gemm, or one of codes: its a and b are then bytes.
    struct Product {
        Gemm of;
        const float* a_scales = nullptr;  ///< null = no codes
        const float* b_scales = nullptr;
        bool fast = false;
        bool is_coded() const { return a_scales != nullptr; }
        std::size_t a_bytes() const;
        std::size_t c_bytes() const;
    };
    /// Accumulation tells of what too: accumulation_of.
    using Key = GemmKey;
    using AlgoKey = std::array<std::uint64_t, std::extent_v<decltype(cublasLtMatmulAlgo_t::data)>>;

    void run_whole(const Product& op);
    static Key key_of(const Product& op);
    static Key class_of(Key key);
    static std::unique_ptr<Problem> make_problem(const Product& op);
    cublasLtMatmulAlgo_t choose(const Problem& problem, const Product& op, const Key& key);
    std::vector<cublasLtMatmulHeuristicResult_t> proposals(const Problem& problem, const Key& key,
                                                           int most) const;
    /// The list of a class that none has yet, of which `op` is the first to be met.
    GemmCandidates candidates_for(const Product& op, const Key& key);
    /// The library's, not timed.
    GemmCandidates proposed(const Product& gemm, const Key& key) const;
    /// With the most rows of its class, A and C in scratch memory; or as it is, with C there where
    /// it must be kept: with the most rows, a transposed A, or too little memory for more. None
    /// where there is no memory for C.
    std::optional<Product> gemm_to_time(const Product& op);
    /// The proposals for it and for the fewest rows of its class, by its time; writes its C.
    GemmCandidates fastest(const Product& gemm, const Key& key);
    static Product smallest_of(Product gemm);
    /// Without memory.
    static Product largest_of(const Key& key, Product gemm);
    /// How often its tiles fill the GPU with the problem, in thousandths; 0 = not known. None where
    /// it cannot be used.
    std::optional<std::int64_t> milliwaves(const GemmCandidate& candidate,
                                           const Problem& problem) const;
    cublasStatus_t launch(const Problem& problem, const Product& op,
                          const cublasLtMatmulAlgo_t& algo) const;
    /// Of one run, after a first one where it is short or its kernel may not be loaded yet; fewer
    /// runs where it is far above the best so far. Infinite when the algorithm fails.
    float milliseconds(const Problem& problem, const Product& op, const cublasLtMatmulAlgo_t& algo,
                       Key of_class, float best_so_far);

    cudaStream_t stream_;
    DType dtype_;
    void* workspace_;
    std::size_t workspace_bytes_;
    GrowingMemory timing_;
    cublasLtHandle_t handle_ = nullptr;
    cudaEvent_t begin_ = nullptr;
    cudaEvent_t end_ = nullptr;
    GemmChoices choices_;
    FirstUses first_uses_;
    std::set<Key> met_;                         ///< classes
    std::set<std::pair<Key, AlgoKey>> used_;    ///< by class
    std::set<std::pair<Key, AlgoKey>> loaded_;  ///< have run in timings, by class
    std::function<void()> before_stall_;
    std::map<Key, std::unique_ptr<Problem>> problems_;
};

}  // namespace loratrain
