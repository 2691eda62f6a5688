#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/growing_memory.h"

namespace loratrain {

/// Row-major Gemm of backend.h on cuBLASLt: fp32 sums, no TF32, no reduction whose order depends on
/// timing. The algorithm of a shape is chosen at its first use: in bf16 by timing the library's
/// proposals (never into a C that is added to), in fp32 the library's first. Sizes within about 6%
/// of each other, or in one tile (sizes_alike), share a choice: microbatches of packed samples
/// hardly ever repeat their tokens or the total rank of their adapters. Timed are the proposals for
/// the fewest and the most rows that share it, with both: what is best for one number of rows takes
/// up to twice as long for a few more, whose tiles do not fit its waves. On an H200 the GEMMs of
/// llama-3.1-8b's layers, over all numbers of rows, took 2.3% longer with such choices than with
/// the best found for each number, 9.1% with choices for the first number in each eighth of a power
/// of two. A largest number of rows, which microbatches of equal samples have, is timed alone.
/// What takes long is timed once, and again where it is near the best so far. Once a family of
/// shapes has choices, also of a run before, later ones try these and a few proposals.
///
/// Choices are read from `algorithm_file` (one per rank: a stopped run continues to the bit) and
/// the file that LORATRAIN_ALGO_CACHE names (shared: runs repeat to the bit and start without
/// timing), the first line about a shape counts, and appended to both. Lines of another cuBLAS or
/// GPU are ignored.
class GemmCublasLt {
  public:
    /// `use` counts the memory that timing takes.
    GemmCublasLt(cudaStream_t stream, DType dtype, const std::string& device,
                 const Buffer& workspace, MemoryUse* use, const std::string& algorithm_file);
    ~GemmCublasLt();
    GemmCublasLt(const GemmCublasLt&) = delete;
    GemmCublasLt& operator=(const GemmCublasLt&) = delete;

    /// Memory for A and C, of the most rows that share a choice, while algorithms are timed at the
    /// first use of a shape; where there is none it is allocated then, which waits for the whole
    /// device.
    void reserve_timing(std::size_t bytes);

    /// Before an algorithm runs that has not run yet.
    void before_stalls(const std::function<void()>& call) { before_stall_ = call; }

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
    /// m, n, k, row strides, transpositions, accumulation (and of what: accumulation_of),
    /// alignments.
    using Key = std::array<std::int64_t, 13>;
    using AlgoKey = std::array<std::uint64_t, std::extent_v<decltype(cublasLtMatmulAlgo_t::data)>>;

    void run_whole(const Product& op);
    static Key key_of(const Product& op);
    static Key bucket_of(Key key);
    static std::unique_ptr<Problem> make_problem(const Product& op);
    /// Of products that differ in rows and terms alone.
    static Key family_of(Key bucket);
    cublasLtMatmulAlgo_t choose(const Problem& problem, const Product& op, const Key& key);
    std::vector<cublasLtMatmulHeuristicResult_t> proposals(const Problem& problem, const Key& key,
                                                           int most) const;
    /// With the fewest and the most rows that share the choice, A and C in scratch memory; or as it
    /// is, with C there where it must be kept: with the most rows, a transposed A, or too little
    /// memory for more. Empty where there is no memory for C.
    std::vector<Product> gemms_to_time(const Product& op);
    /// Of the proposals for all of them, the one with the least time together; writes their C.
    cublasLtMatmulAlgo_t fastest(const std::vector<Product>& gemms, const Key& key);
    /// Notes those that are nearly as fast as the best.
    struct Timed {
        cublasLtMatmulAlgo_t algo;
        float time;
    };
    static void note_good(std::vector<cublasLtMatmulAlgo_t>& good, const std::vector<Timed>& timed,
                          float best);
    bool can_use(const cublasLtMatmulAlgo_t& algo, const Problem& problem) const;
    cublasStatus_t launch(const Problem& problem, const Product& op,
                          const cublasLtMatmulAlgo_t& algo) const;
    /// Of one run, after a first one where it is short or its kernel may not be loaded yet; fewer
    /// runs where it is far above the best so far. Infinite when the algorithm fails.
    float milliseconds(const Problem& problem, const Product& op, const cublasLtMatmulAlgo_t& algo,
                       const Key& family, float best_so_far);
    void read_choices(const std::string& path);
    void append_choice(const std::string& path, const Key& key,
                       const cublasLtMatmulAlgo_t& algo) const;

    cudaStream_t stream_;
    DType dtype_;
    void* workspace_;
    std::size_t workspace_bytes_;
    GrowingMemory timing_;
    cublasLtHandle_t handle_ = nullptr;
    cudaEvent_t begin_ = nullptr;
    cudaEvent_t end_ = nullptr;
    std::string algorithm_file_;
    std::string shared_file_;
    std::string tag_;  ///< library, GPU and type, first word of a line of the files
    std::map<Key, cublasLtMatmulAlgo_t> chosen_;
    std::map<Key, std::vector<cublasLtMatmulAlgo_t>> good_;  ///< by family
    std::set<Key> used_;                                     ///< buckets
    std::set<std::pair<Key, AlgoKey>> loaded_;               ///< have run in timings, by family
    std::function<void()> before_stall_;
    std::map<Key, std::unique_ptr<Problem>> problems_;
};

}  // namespace loratrain
