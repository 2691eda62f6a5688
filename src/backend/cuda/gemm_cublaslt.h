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

/// Gemm and GemmFp8 (backend/ops/gemm.h) on cuBLASLt: row-major, sums in fp32, no TF32, no
/// reduction whose order depends on timing.
///
/// Products of a class (base/gemm_shape.h), such as those of microbatches with other numbers of
/// tokens or other adapters, share a list of candidate algorithms. The list is made when the class
/// is first met:
///   bf16, codes  by timing the library's proposals for the largest rows of the class (never into a
///                C that is added to). Slow algorithms run once; those close to the best run again.
///                Once a family of shapes has lists, also from a run before, only their algorithms
///                and a few proposals are tried.
///   fp32         the library's first proposals for the largest sizes of the class; not timed
/// Each product takes the candidate with the least expected time (pick_candidate()), since an
/// algorithm that is best for one number of rows takes up to twice as long for a few more rows,
/// whose tiles do not fit its waves. So a choice depends on the list and the product, not on
/// earlier products.
///
/// Lists are read from `algorithm_file` (the run's) and the file that LORATRAIN_ALGO_CACHE names
/// (shared by runs, which then reproduce their bits and start without timing), and appended to
/// both: GemmChoices. If several ranks time a class at once, the first to append chooses for all.
/// Lines of another cuBLAS or GPU are ignored.
class GemmCublasLt {
  public:
    /// Memory for timing is counted in `use`.
    GemmCublasLt(cudaStream_t stream, DType dtype, const std::string& device,
                 const Buffer& workspace, MemoryUse* use, const std::string& algorithm_file);
    ~GemmCublasLt();
    GemmCublasLt(const GemmCublasLt&) = delete;
    GemmCublasLt& operator=(const GemmCublasLt&) = delete;

    /// Allocates memory for A and C of the largest rows of a class, for timing. Without it, memory
    /// is allocated at the first timing, which waits for the whole device.
    void reserve_timing(std::size_t bytes);

    /// Sets a function that is called before an algorithm runs for the first time.
    void before_stalls(const std::function<void()>& call) { before_stall_ = call; }

    /// Number of classes that were timed, and the seconds that took.
    const FirstUses& first_uses() const { return first_uses_; }

    /// m, n, k >= 1. In fp32, sums of more than 1024 terms are made in pieces of 1024, one after
    /// another: as exact as the blocks of a CPU's library, with any algorithm.
    void run(const Gemm& op);
    /// Products of e4m3 codes, scaled by row and column (cuBLAS 12.9 or later). Algorithms are
    /// chosen as in bf16.
    void run(const GemmFp8& op);
    /// "cuBLASLt 13.0.2", of the library that is loaded.
    static std::string library();

  private:
    struct Problem;
    /// A Gemm, or a GemmFp8, whose a and b are then bytes.
    struct Product {
        Gemm of;
        const float* a_scales = nullptr;  ///< null = no codes
        const float* b_scales = nullptr;
        bool fast = false;
        bool is_coded() const { return a_scales != nullptr; }
        std::size_t a_bytes() const;
        std::size_t c_bytes() const;
    };
    /// Accumulation also encodes the kind of product: accumulation_of().
    using Key = GemmKey;
    using AlgoKey = std::array<std::uint64_t, std::extent_v<decltype(cublasLtMatmulAlgo_t::data)>>;

    void run_whole(const Product& op);
    static Key key_of(const Product& op);
    static Key class_of(Key key);
    static std::unique_ptr<Problem> make_problem(const Product& op);
    cublasLtMatmulAlgo_t choose(const Problem& problem, const Product& op, const Key& key);
    std::vector<cublasLtMatmulHeuristicResult_t> proposals(const Problem& problem, const Key& key,
                                                           int most) const;
    /// Makes the list of a new class, of which `op` is the first product.
    GemmCandidates candidates_for(const Product& op, const Key& key);
    /// The library's proposals, not timed.
    GemmCandidates proposed(const Product& gemm, const Key& key) const;
    /// The product to be timed for a class: `op` with the largest rows of its class, A and C in
    /// scratch memory. If `op` has the largest rows, a transposed A, or there is too little memory:
    /// `op` itself, with C in scratch memory if C must be kept; none without memory for C.
    std::optional<Product> gemm_to_time(const Product& op);
    /// The proposals for `gemm` and for the smallest rows of its class, sorted by their time for
    /// `gemm`. Writes its C.
    GemmCandidates fastest(const Product& gemm, const Key& key);
    static Product smallest_of(Product gemm);
    /// Without memory for its operands.
    static Product largest_of(const Key& key, Product gemm);
    /// Waves of a candidate with a problem in thousandths; 0 = not known. None if the candidate
    /// cannot be used.
    std::optional<std::int64_t> milliwaves(const GemmCandidate& candidate,
                                           const Problem& problem) const;
    cublasStatus_t launch(const Problem& problem, const Product& op,
                          const cublasLtMatmulAlgo_t& algo) const;
    /// Time of one run of an algorithm. Runs it more than once if it is short, or if its kernel may
    /// not be loaded yet; fewer times if it is far slower than `best_so_far`. Infinite if the
    /// algorithm fails.
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
    std::set<std::pair<Key, AlgoKey>> used_;    ///< class and algorithm that a product has used
    std::set<std::pair<Key, AlgoKey>> loaded_;  ///< class and algorithm that have run in timings
    std::function<void()> before_stall_;
    std::map<Key, std::unique_ptr<Problem>> problems_;
};

}  // namespace loratrain
