#include "backend/cuda/gemm_cublaslt.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <numeric>
#include <sstream>

#include "backend/cuda/check.h"
#include "base/alignment.h"
#include "base/gemm_shape.h"

namespace loratrain {

namespace {

constexpr int most_proposals = 24;
constexpr int later_proposals = 4;       // of a product that was timed before with other sizes
constexpr std::size_t most_good = 6;     // kept of those timings
constexpr float nearly_as_good = 1.07F;  // as the best
constexpr int timed_runs = 3;
constexpr float hopeless = 1.15F;  // a first time so far above the best is not repeated
constexpr float long_run = 0.5F;   // milliseconds; times of such runs hardly differ
constexpr int long_runs = 2;
constexpr float hopeful = 0.85F;             // of a GEMM's least time, what another may take of it
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
    CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&layout, type, static_cast<std::uint64_t>(view.cols),
                                            static_cast<std::uint64_t>(view.rows),
                                            std::max<std::int64_t>(view.ld, view.cols)));
    return layout;
}

template <class T>
void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, T value) {
    CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof(value)));
}

template <class T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
         T value) {
    CUBLAS_CHECK(
        cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)));
}

/// Products with other kinds of sums share no choice of algorithm.
std::int64_t accumulation_of(const Gemm& op, bool coded, bool fast) {
    return (op.beta == 0.0F ? 0 : 1) + (coded ? 2 : 0) + (fast ? 4 : 0);
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
    throw Error("fp8 products need cuBLAS 12.9 or later");
#endif
}

bool is_same(const cublasLtMatmulAlgo_t& a, const cublasLtMatmulAlgo_t& b) {
    return std::equal(std::begin(a.data), std::end(a.data), std::begin(b.data));
}

float sum(const std::vector<float>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0F);
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
        if (d != nullptr) cublasLtMatrixLayoutDestroy(d);
        if (c != nullptr) cublasLtMatrixLayoutDestroy(c);
        if (b != nullptr) cublasLtMatrixLayoutDestroy(b);
        if (a != nullptr) cublasLtMatrixLayoutDestroy(a);
        if (desc != nullptr) cublasLtMatmulDescDestroy(desc);
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
      algorithm_file_(algorithm_file) {
    CUBLAS_CHECK(cublasLtCreate(&handle_));
    CUDA_CHECK(cudaEventCreate(&begin_));
    CUDA_CHECK(cudaEventCreate(&end_));
    tag_ = without_spaces(cat(library(), "/", device, "/", to_string(dtype)));
    const char* path = std::getenv("LORATRAIN_ALGO_CACHE");
    if (path != nullptr) shared_file_ = path;
    read_choices(algorithm_file_);
    const auto own = chosen_;
    read_choices(shared_file_);
    for (const auto& [key, algo] : chosen_) {
        if (!own.contains(key)) append_choice(algorithm_file_, key, algo);
    }
}

GemmCublasLt::~GemmCublasLt() {
    problems_.clear();
    if (end_ != nullptr) cudaEventDestroy(end_);
    if (begin_ != nullptr) cudaEventDestroy(begin_);
    if (handle_ != nullptr) cublasLtDestroy(handle_);
}

std::string GemmCublasLt::library() {
    const std::size_t version = cublasLtGetVersion();
    return cat("cuBLASLt ", version / 10000, ".", version / 100 % 100, ".", version % 100);
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

GemmCublasLt::Key GemmCublasLt::bucket_of(Key key) {
    for (std::size_t size = 0; size < 3; ++size) key[size] = sizes_alike(key[size]).largest;
    for (std::size_t stride = 3; stride < 7; ++stride) {
        key[stride] = std::min<std::int64_t>(alignment_of(static_cast<std::uint64_t>(key[stride])),
                                             vector_elements);
    }
    return key;
}

std::unique_ptr<GemmCublasLt::Problem> GemmCublasLt::make_problem(const Product& product) {
    const Gemm& op = product.of;
    auto problem = std::make_unique<Problem>();
    CUBLAS_CHECK(cublasLtMatmulDescCreate(&problem->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
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
    CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&preference));
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
        cublasLtMatmulAlgoGetHeuristic(handle_, problem.desc, problem.a, problem.b, problem.d,
                                       problem.c, preference, most, found.data(), &count);
    cublasLtMatmulPreferenceDestroy(preference);
    if (status != CUBLAS_STATUS_SUCCESS || count == 0) {
        throw Error(cat("no cuBLASLt algorithm (", cublas_name(status), ") for ",
                        key[9] > 1 ? std::string("fp8") : to_string(dtype_), " gemm ", key[0],
                        " x ", key[1], " x ", key[2], ", row strides ", key[3], ", ", key[4], ", ",
                        key[5]));
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
    return cublasLtMatmul(handle_, problem.desc, &op.alpha, op.b.data, problem.a, op.a.data,
                          problem.b, &op.beta, adds_another(op) ? op.d.data : op.c.data, problem.d,
                          op.c.data, problem.c, &algo, workspace_, workspace_bytes_, stream_);
}

float GemmCublasLt::milliseconds(const Problem& problem, const Product& op,
                                 const cublasLtMatmulAlgo_t& algo, const Key& family,
                                 float best_so_far) {
    constexpr float failed = std::numeric_limits<float>::infinity();
    const bool is_long = std::isfinite(best_so_far) && best_so_far > long_run;
    const bool is_new = loaded_.insert({family, std::to_array(algo.data)}).second;
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

std::vector<GemmCublasLt::Product> GemmCublasLt::gemms_to_time(const Product& op) {
    const SizesAlike rows = sizes_alike(op.of.c.rows);
    const bool alone = op.of.transpose_a || op.of.c.rows == rows.largest;
    const bool overwrites = op.of.beta == 0.0F || adds_another(op.of);
    if (alone && overwrites) return {op};
    Product largest = op;
    largest.of.d = {};
    if (!alone) largest.of.a.rows = largest.of.c.rows = rows.largest;
    const std::size_t a_bytes = alone ? 0 : largest.a_bytes();
    // Behind A so many bytes that its scales can be read from there.
    const std::size_t scale_bytes =
        alone || !op.is_coded() ? 0
                                : aligned(static_cast<std::size_t>(rows.largest) * sizeof(float));
    auto* memory =
        static_cast<char*>(timing_.try_reserve(a_bytes + scale_bytes + largest.c_bytes()));
    if (memory == nullptr) return overwrites ? std::vector<Product>{op} : std::vector<Product>{};
    if (!alone) largest.of.a.data = memory;
    if (scale_bytes > 0) {
        largest.a_scales = reinterpret_cast<const float*>(memory + a_bytes);
    }
    largest.of.c.data = memory + a_bytes + scale_bytes;
    if (alone) return {largest};
    Product smallest = largest;
    smallest.of.a.rows = smallest.of.c.rows = rows.smallest;
    return {smallest, largest};
}

GemmCublasLt::Key GemmCublasLt::family_of(Key bucket) {
    bucket[0] = 0;
    bucket[2] = 0;
    return bucket;
}

void GemmCublasLt::note_good(std::vector<cublasLtMatmulAlgo_t>& good,
                             const std::vector<Timed>& timed, float best) {
    for (const auto& [algo, time] : timed) {
        const bool known = std::any_of(good.begin(), good.end(), [&algo = algo](const auto& other) {
            return is_same(other, algo);
        });
        if (!known && time <= nearly_as_good * best) good.insert(good.begin(), algo);
    }
    if (good.size() > most_good) good.resize(most_good);
}

cublasLtMatmulAlgo_t GemmCublasLt::fastest(const std::vector<Product>& gemms, const Key& key) {
    const Key family = family_of(bucket_of(key));
    std::vector<cublasLtMatmulAlgo_t>& good = good_[family];
    std::vector<std::unique_ptr<Problem>> problems;
    std::vector<cublasLtMatmulAlgo_t> candidates = good;
    for (const Product& gemm : gemms) {
        problems.push_back(make_problem(gemm));
        for (const auto& proposal :
             proposals(*problems.back(), key, good.empty() ? most_proposals : later_proposals)) {
            const bool known =
                std::any_of(candidates.begin(), candidates.end(),
                            [&](const auto& c) { return is_same(c, proposal.algo); });
            if (!known) candidates.push_back(proposal.algo);
        }
    }
    std::size_t best = 0;
    std::vector<float> best_times(gemms.size(), std::numeric_limits<float>::infinity());
    std::vector<float> hoped_times(gemms.size(), 0.0F);
    std::vector<Timed> timed;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
        std::vector<float> times;
        const float limit = nearly_as_good * sum(best_times);
        for (std::size_t g = 0; g < gemms.size(); ++g) {
            if (g > 0 && !(sum(times) + hoped_times[g] < limit)) break;
            times.push_back(
                milliseconds(*problems[g], gemms[g], candidates[i], family, best_times[g]));
            const float hoped = hopeful * times[g];
            hoped_times[g] = i == 0 ? hoped : std::min(hoped_times[g], hoped);
        }
        if (times.size() < gemms.size()) continue;
        timed.push_back({candidates[i], sum(times)});
        if (!(sum(times) < sum(best_times))) continue;
        best_times = times;
        best = i;
    }
    note_good(good, timed, sum(best_times));
    return candidates[best];
}

bool GemmCublasLt::can_use(const cublasLtMatmulAlgo_t& algo, const Problem& problem) const {
    cublasLtMatmulHeuristicResult_t check{};
    const cublasStatus_t status = cublasLtMatmulAlgoCheck(
        handle_, problem.desc, problem.a, problem.b, problem.d, problem.c, &algo, &check);
    return status == CUBLAS_STATUS_SUCCESS && check.workspaceSize <= workspace_bytes_;
}

cublasLtMatmulAlgo_t GemmCublasLt::choose(const Problem& problem, const Product& op,
                                          const Key& key) {
    const Key bucket = bucket_of(key);
    if (used_.insert(bucket).second && before_stall_) before_stall_();
    auto known = chosen_.find(bucket);
    if (known == chosen_.end()) {
        std::vector<Product> timed;
        if (dtype_ != DType::f32) timed = gemms_to_time(op);
        const cublasLtMatmulAlgo_t algo = timed.empty()
                                              ? proposals(problem, key, most_proposals).front().algo
                                              : fastest(timed, key);
        known = chosen_.emplace(bucket, algo).first;
        append_choice(algorithm_file_, bucket, algo);
        append_choice(shared_file_, bucket, algo);
    }
    if (can_use(known->second, problem)) return known->second;
    if (before_stall_) before_stall_();
    return proposals(problem, key, most_proposals).front().algo;
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

void GemmCublasLt::read_choices(const std::string& path) {
    if (path.empty()) return;
    std::ifstream file(path);
    std::string line;
    while (std::getline(file, line)) {
        std::istringstream words(line);
        std::string tag;
        Key key{};
        cublasLtMatmulAlgo_t algo{};
        words >> tag;
        for (std::int64_t& number : key) words >> number;
        for (std::uint64_t& part : algo.data) words >> part;
        if (!words || tag != tag_ || !chosen_.emplace(key, algo).second) continue;
        note_good(good_[family_of(key)], {{algo, 0.0F}}, 0.0F);
    }
}

void GemmCublasLt::append_choice(const std::string& path, const Key& key,
                                 const cublasLtMatmulAlgo_t& algo) const {
    if (path.empty()) return;
    std::ostringstream line;
    line << tag_;
    for (const std::int64_t number : key) line << ' ' << number;
    for (const std::uint64_t part : algo.data) line << ' ' << part;
    line << '\n';
    std::ofstream(path, std::ios::app) << line.str();
}

}  // namespace loratrain
