#include "backend/cuda/gemm_cublaslt.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <limits>

#include "backend/cuda/check.h"
#include "backend/cuda/cublaslt_library.h"
#include "base/arithmetic.h"
#include "base/gemm_shape.h"
#include "base/system.h"

namespace loratrain {

namespace {

constexpr int most_proposals = 24;
constexpr int later_proposals = 4;       // of a product that was timed before with other sizes
constexpr std::size_t most_good = 6;     // of those timings, tried again
constexpr std::size_t most_kept = 6;     // of a class
constexpr float worth_keeping = 1.3F;    // times the best
constexpr float nearly_as_good = 1.07F;  // as the best
constexpr int timed_runs = 3;
constexpr float hopeless = 1.15F;  // a first time so far above the best is not repeated
constexpr float long_run = 0.5F;   // milliseconds; times of such runs hardly differ
constexpr int long_runs = 2;
constexpr std::int64_t vector_elements = 8;  // of the widest loads, in bf16
// Terms of a sum in fp32 that the library may add one after another; more are added in such pieces.
// Over a vocabulary of 49,152, whose probabilities a running sum no longer takes in, one sum had
// gradients off by 1.5e-4.
constexpr std::int64_t longest_sum = 1024;

cudaDataType_t cuda_type(DType dtype) {
    return dtype == DType::f32 ? CUDA_R_32F : CUDA_R_16BF;
}

/// The largest power of two, up to tensor_alignment, that divides a number.
std::int64_t alignment_of(std::uint64_t number) {
    const std::uint64_t bits = number | tensor_alignment;
    return static_cast<std::int64_t>(bits & (~bits + 1));
}

std::int64_t alignment_of(const TensorView& view) {
    return alignment_of(reinterpret_cast<std::uintptr_t>(view.data));
}

/// k of a Gemm.
std::int64_t depth_of(const Gemm& op) {
    return op.transpose_a ? op.a.rows : op.a.cols;
}

/// What these terms of the sums add to C.
Gemm piece_of(Gemm op, std::int64_t begin, std::int64_t count) {
    op.a = op.transpose_a ? op.a.row_range(begin, count) : op.a.col_range(begin, count);
    op.b = op.transpose_b ? op.b.col_range(begin, count) : op.b.row_range(begin, count);
    if (begin > 0) {
        op.beta = 1.0F;
        op.d = {};
    }
    return op;
}

/// D of C = A B + beta D, which a product that overwrites has not.
bool adds_another(const Gemm& op) {
    return op.beta != 0.0F && op.d.data != nullptr;
}

/// The column-major view of row-major memory of `rows` rows.
cublasLtMatrixLayout_t layout_of(const TensorView& view, cudaDataType type) {
    cublasLtMatrixLayout_t layout = nullptr;
    CUBLAS_CHECK(cublas_lt().MatrixLayoutCreate(
        &layout, type, static_cast<std::uint64_t>(view.cols), static_cast<std::uint64_t>(view.rows),
        std::max<std::int64_t>(view.ld, view.cols)));
    return layout;
}

template <class T>
void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, T value) {
    CUBLAS_CHECK(cublas_lt().MatmulDescSetAttribute(desc, attribute, &value, sizeof(value)));
}

template <class T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
         T value) {
    CUBLAS_CHECK(
        cublas_lt().MatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)));
}

/// Products with other kinds of sums share no choice of algorithm.
std::int64_t accumulation_of(const Gemm& op, bool coded, bool fast) {
    const bool widened = op.c.dtype != op.a.dtype;
    return (op.beta == 0.0F ? 0 : 1) + (coded ? 2 : 0) + (fast ? 4 : 0) + (widened ? 8 : 0);
}

/// The rows of codes as a view of bytes; its dtype says nothing.
TensorView byte_view(const Fp8Rows& rows) {
    return {rows.codes, DType::bf16, rows.rows, rows.cols, rows.ld};
}

void set_scales(cublasLtMatmulDesc_t desc, const float* of_a, const float* of_b) {
    set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(of_a));
    set(desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(of_b));
}

/// One scale per row of A and of B.
void set_outer_scales(cublasLtMatmulDesc_t desc) {
#if CUBLAS_VERSION >= 120900
    const auto mode = static_cast<std::int32_t>(CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
    set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode);
    set(desc, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode);
#else
    static_cast<void>(desc);
    throw Error("model.precision: fp8 needs cuBLAS 12.9 or later; use bf16, or a newer CUDA");
#endif
}

cublasLtMatmulAlgo_t algorithm_of(const GemmCandidate& candidate) {
    cublasLtMatmulAlgo_t algo{};
    std::copy(candidate.algorithm.begin(), candidate.algorithm.end(), std::begin(algo.data));
    return algo;
}

GemmCandidate candidate_of(const cublasLtMatmulAlgo_t& algo) {
    GemmCandidate candidate;
    static_assert(std::extent_v<decltype(algo.data)> ==
                  std::tuple_size_v<decltype(candidate.algorithm)>);
    std::copy(std::begin(algo.data), std::end(algo.data), candidate.algorithm.begin());
    return candidate;
}

void add_new(GemmCandidates& candidates, const GemmCandidate& candidate) {
    const bool known = std::any_of(
        candidates.begin(), candidates.end(),
        [&candidate](const GemmCandidate& c) { return c.algorithm == candidate.algorithm; });
    if (!known) candidates.push_back(candidate);
}

std::int64_t thousandths(float number) {
    return std::isfinite(number) ? std::llround(1e3 * static_cast<double>(number)) : 0;
}

/// Row stride of a matrix with `columns` columns whose rows are aligned as with a row stride of
/// `like`.
std::int64_t stride_like(std::int64_t like, std::int64_t columns) {
    const std::int64_t alignment =
        std::min(alignment_of(static_cast<std::uint64_t>(like)), vector_elements);
    const std::int64_t stride = round_up(columns, vector_elements);
    return alignment == vector_elements ? stride : stride + alignment;
}

std::string without_spaces(std::string text) {
    std::replace(text.begin(), text.end(), ' ', '_');
    return text;
}

}  // namespace

/// Cᵀ = op(B)ᵀ op(A)ᵀ + Dᵀ in column-major terms: the library's A is B, its B is A, its D is C.
struct GemmCublasLt::Problem {
    Problem() = default;
    Problem(const Problem&) = delete;
    Problem& operator=(const Problem&) = delete;
    ~Problem() {
        if (d != nullptr) cublas_lt().MatrixLayoutDestroy(d);
        if (c != nullptr) cublas_lt().MatrixLayoutDestroy(c);
        if (b != nullptr) cublas_lt().MatrixLayoutDestroy(b);
        if (a != nullptr) cublas_lt().MatrixLayoutDestroy(a);
        if (desc != nullptr) cublas_lt().MatmulDescDestroy(desc);
    }

    cublasLtMatmulDesc_t desc = nullptr;
    cublasLtMatrixLayout_t a = nullptr;
    cublasLtMatrixLayout_t b = nullptr;
    cublasLtMatrixLayout_t c = nullptr;
    cublasLtMatrixLayout_t d = nullptr;  ///< the library's C
    cublasLtMatmulAlgo_t algo{};
};

GemmCublasLt::GemmCublasLt(cudaStream_t stream, DType dtype, const std::string& device,
                           const Buffer& workspace, MemoryUse* use,
                           const std::string& algorithm_file)
    : stream_(stream),
      dtype_(dtype),
      workspace_(workspace.data()),
      workspace_bytes_(workspace.bytes()),
      timing_(use),
      choices_(without_spaces(cat(library(), "/", device, "/", to_string(dtype))), algorithm_file,
               environment("LORATRAIN_ALGO_CACHE")) {
    CUBLAS_CHECK(cublas_lt().Create(&handle_));
    CUDA_CHECK(cudaEventCreate(&begin_));
    CUDA_CHECK(cudaEventCreate(&end_));
}

GemmCublasLt::~GemmCublasLt() {
    problems_.clear();
    if (end_ != nullptr) cudaEventDestroy(end_);
    if (begin_ != nullptr) cudaEventDestroy(begin_);
    if (handle_ != nullptr) cublas_lt().Destroy(handle_);
}

std::string GemmCublasLt::library() {
    return cublas_lt_text(cublas_lt().GetVersion());
}

std::size_t GemmCublasLt::Product::a_bytes() const {
    const std::size_t element = is_coded() ? 1 : of.a.element_size();
    return aligned(static_cast<std::size_t>(of.a.rows * of.a.ld) * element);
}

std::size_t GemmCublasLt::Product::c_bytes() const {
    return aligned(static_cast<std::size_t>(of.c.rows * of.c.ld) * of.c.element_size());
}

GemmCublasLt::Key GemmCublasLt::key_of(const Product& product) {
    const Gemm& op = product.of;
    return {op.c.rows,
            op.c.cols,
            op.transpose_a ? op.a.rows : op.a.cols,
            op.a.ld,
            op.b.ld,
            op.c.ld,
            adds_another(op) ? op.d.ld : 0,
            op.transpose_a ? 1 : 0,
            op.transpose_b ? 1 : 0,
            accumulation_of(op, product.is_coded(), product.fast),
            alignment_of(op.a),
            alignment_of(op.b),
            std::min(alignment_of(op.c), alignment_of(op.added()))};
}

GemmCublasLt::Key GemmCublasLt::class_of(Key key) {
    key[0] = rows_alike(key[0]).largest;
    for (const std::size_t size : {1U, 2U}) key[size] = columns_alike(key[size]).largest;
    for (std::size_t stride = 3; stride < 7; ++stride) {
        key[stride] = std::min<std::int64_t>(alignment_of(static_cast<std::uint64_t>(key[stride])),
                                             vector_elements);
    }
    return key;
}

std::unique_ptr<GemmCublasLt::Problem> GemmCublasLt::make_problem(const Product& product) {
    const Gemm& op = product.of;
    auto problem = std::make_unique<Problem>();
    CUBLAS_CHECK(cublas_lt().MatmulDescCreate(&problem->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    set(problem->desc, CUBLASLT_MATMUL_DESC_TRANSA, op.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(problem->desc, CUBLASLT_MATMUL_DESC_TRANSB, op.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (product.is_coded()) {
        set(problem->desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM,
            static_cast<std::int8_t>(product.fast ? 1 : 0));
        set_outer_scales(problem->desc);
        set_scales(problem->desc, product.b_scales, product.a_scales);
    }
    problem->a = layout_of(op.b, product.is_coded() ? CUDA_R_8F_E4M3 : cuda_type(op.b.dtype));
    problem->b = layout_of(op.a, product.is_coded() ? CUDA_R_8F_E4M3 : cuda_type(op.a.dtype));
    problem->c = layout_of(op.c, cuda_type(op.c.dtype));
    problem->d = layout_of(adds_another(op) ? op.d : op.c, cuda_type(op.c.dtype));
    return problem;
}

std::vector<cublasLtMatmulHeuristicResult_t> GemmCublasLt::proposals(const Problem& problem,
                                                                     const Key& key,
                                                                     int most) const {
    cublasLtMatmulPreference_t preference = nullptr;
    CUBLAS_CHECK(cublas_lt().MatmulPreferenceCreate(&preference));
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes_);
    set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        static_cast<std::uint32_t>(key[11]));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        static_cast<std::uint32_t>(key[10]));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        static_cast<std::uint32_t>(key[12]));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
        static_cast<std::uint32_t>(key[12]));
    std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(most));
    int count = 0;
    const cublasStatus_t status =
        cublas_lt().MatmulAlgoGetHeuristic(handle_, problem.desc, problem.a, problem.b, problem.d,
                                           problem.c, preference, most, found.data(), &count);
    cublas_lt().MatmulPreferenceDestroy(preference);
    if (status != CUBLAS_STATUS_SUCCESS || count == 0) {
        throw Error(cat("no cuBLASLt algorithm (", cublas_name(status), ") for ",
                        (key[9] & 2) != 0 ? std::string("fp8") : to_string(dtype_), " gemm ",
                        key[0], " x ", key[1], " x ", key[2], ", row strides ", key[3], ", ",
                        key[4], ", ", key[5]));
    }
    found.resize(static_cast<std::size_t>(count));
    return found;
}

void GemmCublasLt::reserve_timing(std::size_t bytes) {
    timing_.try_reserve(bytes);
}

cublasStatus_t GemmCublasLt::launch(const Problem& problem, const Product& product,
                                    const cublasLtMatmulAlgo_t& algo) const {
    const Gemm& op = product.of;
    if (product.is_coded()) set_scales(problem.desc, product.b_scales, product.a_scales);
    return cublas_lt().Matmul(handle_, problem.desc, &op.alpha, op.b.data, problem.a, op.a.data,
                              problem.b, &op.beta, adds_another(op) ? op.d.data : op.c.data,
                              problem.d, op.c.data, problem.c, &algo, workspace_, workspace_bytes_,
                              stream_);
}

float GemmCublasLt::milliseconds(const Problem& problem, const Product& op,
                                 const cublasLtMatmulAlgo_t& algo, Key of_class,
                                 float best_so_far) {
    constexpr float failed = std::numeric_limits<float>::infinity();
    const bool is_long = std::isfinite(best_so_far) && best_so_far > long_run;
    of_class[0] = of_class[2] = 0;  // its kernel is the same for all rows and terms
    const bool is_new = loaded_.insert({of_class, std::to_array(algo.data)}).second;
    if ((is_new || !is_long) && launch(problem, op, algo) != CUBLAS_STATUS_SUCCESS) return failed;
    const int runs = is_long ? long_runs : timed_runs;
    const float limit = (is_long ? nearly_as_good : hopeless) * best_so_far;
    float best = failed;
    for (int i = 0; i < runs && (i == 0 || best < limit); ++i) {
        CUDA_CHECK(cudaEventRecord(begin_, stream_));
        if (launch(problem, op, algo) != CUBLAS_STATUS_SUCCESS) return failed;
        CUDA_CHECK(cudaEventRecord(end_, stream_));
        CUDA_CHECK(cudaEventSynchronize(end_));
        float time = 0.0F;
        CUDA_CHECK(cudaEventElapsedTime(&time, begin_, end_));
        best = std::min(best, time);
    }
    return best;
}

std::optional<GemmCublasLt::Product> GemmCublasLt::gemm_to_time(const Product& op) {
    const std::int64_t rows = rows_alike(op.of.c.rows).largest;
    const bool as_it_is = op.of.transpose_a || op.of.c.rows == rows;
    const bool overwrites = op.of.beta == 0.0F || adds_another(op.of);
    if (as_it_is && overwrites) return op;
    Product largest = op;
    largest.of.d = {};
    if (!as_it_is) largest.of.a.rows = largest.of.c.rows = rows;
    const std::size_t a_bytes = as_it_is ? 0 : largest.a_bytes();
    // Behind A so many bytes that its scales can be read from there.
    const std::size_t scale_bytes =
        as_it_is || !op.is_coded() ? 0 : aligned(static_cast<std::size_t>(rows) * sizeof(float));
    auto* memory =
        static_cast<char*>(timing_.try_reserve(a_bytes + scale_bytes + largest.c_bytes()));
    if (memory == nullptr) return overwrites ? std::optional(op) : std::nullopt;
    if (!as_it_is) largest.of.a.data = memory;
    if (scale_bytes > 0) largest.a_scales = reinterpret_cast<const float*>(memory + a_bytes);
    largest.of.c.data = memory + a_bytes + scale_bytes;
    return largest;
}

GemmCandidates GemmCublasLt::fastest(const Product& gemm, const Key& key) {
    const Key of_class = class_of(key);
    const std::unique_ptr<Problem> problem = make_problem(gemm);
    GemmCandidates candidates =
        worth_trying(choices_.relatives(of_class), nearly_as_good, most_good);
    const int most = candidates.empty() ? most_proposals : later_proposals;
    // Most of a class have fewer rows than what is timed: what is proposed for these counts too.
    const std::unique_ptr<Problem> smaller = make_problem(smallest_of(gemm));
    for (const Problem* of : {problem.get(), smaller.get()}) {
        for (const auto& proposal : proposals(*of, key, most)) {
            add_new(candidates, candidate_of(proposal.algo));
        }
    }
    float best = std::numeric_limits<float>::infinity();
    GemmCandidates timed;
    for (GemmCandidate& candidate : candidates) {
        const auto waves = milliwaves(candidate, *problem);
        if (!waves) continue;
        const float time = milliseconds(*problem, gemm, algorithm_of(candidate), of_class, best);
        if (!std::isfinite(time)) continue;
        best = std::min(best, time);
        candidate.nanoseconds =
            std::max<std::int64_t>(1, std::llround(1e6 * static_cast<double>(time)));
        candidate.milliwaves = *waves;
        timed.push_back(candidate);
    }
    std::stable_sort(timed.begin(), timed.end(),
                     [](const auto& a, const auto& b) { return a.nanoseconds < b.nanoseconds; });
    std::erase_if(timed, [&](const GemmCandidate& c) {
        return static_cast<double>(c.nanoseconds) > 1e6 * static_cast<double>(worth_keeping * best);
    });
    if (timed.size() > most_kept) timed.resize(most_kept);
    return timed;
}

GemmCublasLt::Product GemmCublasLt::smallest_of(Product gemm) {
    if (gemm.of.transpose_a) return gemm;
    gemm.of.a.rows = gemm.of.c.rows = rows_alike(gemm.of.c.rows).smallest;
    if (adds_another(gemm.of)) gemm.of.d.rows = gemm.of.c.rows;
    return gemm;
}

GemmCublasLt::Product GemmCublasLt::largest_of(const Key& key, Product gemm) {
    Gemm& op = gemm.of;
    const Key sizes = class_of(key);
    const auto resize = [](TensorView& view, std::int64_t rows, std::int64_t cols) {
        view.ld = stride_like(view.ld, cols);
        view.rows = rows;
        view.cols = cols;
    };
    const auto [m, n, k] = std::array{sizes[0], sizes[1], sizes[2]};
    resize(op.a, op.transpose_a ? k : m, op.transpose_a ? m : k);
    resize(op.b, op.transpose_b ? n : k, op.transpose_b ? k : n);
    resize(op.c, m, n);
    if (adds_another(op)) resize(op.d, m, n);
    return gemm;
}

GemmCandidates GemmCublasLt::proposed(const Product& gemm, const Key& key) const {
    GemmCandidates candidates;
    const std::unique_ptr<Problem> problem = make_problem(gemm);
    for (const auto& proposal : proposals(*problem, key, static_cast<int>(most_kept))) {
        candidates.push_back(candidate_of(proposal.algo));
    }
    return candidates;
}

std::optional<std::int64_t> GemmCublasLt::milliwaves(const GemmCandidate& candidate,
                                                     const Problem& problem) const {
    cublasLtMatmulHeuristicResult_t check{};
    const cublasLtMatmulAlgo_t algo = algorithm_of(candidate);
    const cublasStatus_t status = cublas_lt().MatmulAlgoCheck(
        handle_, problem.desc, problem.a, problem.b, problem.d, problem.c, &algo, &check);
    if (status != CUBLAS_STATUS_SUCCESS || check.workspaceSize > workspace_bytes_) return {};
    return thousandths(check.wavesCount);
}

GemmCandidates GemmCublasLt::candidates_for(const Product& op, const Key& key) {
    if (dtype_ == DType::f32) return proposed(largest_of(key, op), key);
    CUDA_CHECK(cudaStreamSynchronize(stream_));
    const auto start = std::chrono::steady_clock::now();
    const std::optional<Product> timed = gemm_to_time(op);
    GemmCandidates candidates;
    if (timed) candidates = fastest(*timed, key);
    if (candidates.empty()) candidates = proposed(op, key);
    ++first_uses_.gemms;
    first_uses_.gemm_seconds += seconds_since(start);
    return candidates;
}

cublasLtMatmulAlgo_t GemmCublasLt::choose(const Problem& problem, const Product& op,
                                          const Key& key) {
    const Key of_class = class_of(key);
    const bool is_new = met_.insert(of_class).second;
    if (is_new && before_stall_) before_stall_();
    const GemmCandidates* candidates = choices_.find(of_class);
    if (candidates == nullptr) {
        candidates = &choices_.agree(of_class, candidates_for(op, key));
        // A proposal that cannot be launched leaves an error, which the check behind the next
        // kernel would take for its own.
        static_cast<void>(cudaGetLastError());
    }
    const std::optional<std::size_t> picked =
        pick_candidate(*candidates, [&](const GemmCandidate& c) { return milliwaves(c, problem); });
    const cublasLtMatmulAlgo_t algo = picked ? algorithm_of((*candidates)[*picked])
                                             : proposals(problem, key, most_proposals).front().algo;
    const bool is_first = used_.insert({of_class, std::to_array(algo.data)}).second;
    if (is_first && !is_new && before_stall_) before_stall_();
    return algo;
}

void GemmCublasLt::run(const Gemm& op) {
    const std::int64_t depth = depth_of(op);
    if (dtype_ != DType::f32 || depth <= longest_sum) {
        run_whole({op});
        return;
    }
    for (std::int64_t begin = 0; begin < depth; begin += longest_sum) {
        run_whole({piece_of(op, begin, std::min(longest_sum, depth - begin))});
    }
}

void GemmCublasLt::run(const GemmFp8& op) {
    Product product;
    product.of.a = byte_view(op.a);
    product.of.b = byte_view(op.b);
    product.of.c = op.c;
    product.of.transpose_b = true;
    product.of.beta = op.beta;
    product.of.d = op.d;
    product.a_scales = op.a.scales;
    product.b_scales = op.b.scales;
    product.fast = op.fast;
    run_whole(product);
}

void GemmCublasLt::run_whole(const Product& op) {
    const Key key = key_of(op);
    std::unique_ptr<Problem>& problem = problems_[key];
    if (problem == nullptr) {
        std::unique_ptr<Problem> made = make_problem(op);
        made->algo = choose(*made, op, key);
        problem = std::move(made);
    }
    CUBLAS_CHECK(launch(*problem, op, problem->algo));
}

}  // namespace loratrain
