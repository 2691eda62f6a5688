#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/buffer.h"
#include "backend/readback.h"
#include "backend/side_stream.h"
#include "backend/stream_clock.h"
#include "base/activation.h"
#include "base/quantized.h"
#include "base/random_matrix.h"
#include "base/shard_statistics.h"
#include "base/tensor_view.h"

namespace loratrain {

/// Engine that runs the operators: CPU (cpu/) or CUDA (cuda/), the same op names file by file.
///
/// Contract of every op: arguments are views, nothing is owned and nothing is allocated in steady
/// state; ops run in call order on the backend's one stream (the CPU backend runs them at once);
/// pointers marked [host] are host memory read during the call, all others are backend memory.
/// Shapes use the alphabet of base/tensor_view.h; compute type is `compute_dtype()` (fp32 on the
/// CPU), factors, gradients, moments and sums are fp32 or fp64 as their types say. Results do not
/// depend on the number of threads; zero rows, segments or columns are legal and do nothing.

/// C = alpha op(A) op(B) + beta D, row-major; op(X) = Xᵀ where transpose_x.
/// A: [m, k], B: [k, n] after op; C, D: [m, n]. dtypes: all compute_dtype(). beta = 0 overwrites,
/// also NaN.
struct Gemm {
    TensorView a;
    TensorView b;
    TensorView c;
    bool transpose_a = false;
    bool transpose_b = false;
    float alpha = 1.0F;
    float beta = 0.0F;
    TensorView d = {};  ///< c where it has no data; else c or apart from it
    const TensorView& added() const { return d.data == nullptr ? c : d; }
};

/// Rows of e4m3 codes (base/e4m3.h) [rows, cols] with a scale each: element = code * scale[row].
/// Not owned.
struct Fp8Rows {
    std::uint8_t* codes = nullptr;
    float* scales = nullptr;  ///< [rows]
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t ld = 0;

    /// Rows [first, first + count).
    Fp8Rows row_range(std::int64_t first, std::int64_t count) const {
        return {codes + first * ld, scales + first, count, cols, ld};
    }
};

/// Row t of `to` gets the codes and the scale (row_coding) of column_scales x_t: each row for
/// itself, so that no row depends on its neighbours. A row that is not finite gets scale NaN. The
/// same bits on every backend. x: [T, K], compute_dtype() or fp32.
struct QuantizeRows {
    TensorView x;
    const float* column_scales = nullptr;  ///< [K], null = 1
    Fp8Rows to;
};

/// Codes that an op makes of what it writes, to the bit as quantize_rows does of it; none where
/// to.codes is null.
struct RowCodes {
    Fp8Rows to;
    const float* column_scales = nullptr;
    bool are_wanted() const { return to.codes != nullptr; }
};

/// C = A Bᵀ + beta C with sums in fp32, scaled after summing:
///   C_ij = a.scales_i b.scales_j sum_k a_ik b_jk + beta D_ij.
/// A: [m, k], B: [n, k]; C, D: [m, n] compute_dtype(). beta = 0 overwrites, also NaN. On CUDA:
/// bf16, compute capability 9.0 or more; n, k and row strides are multiples of 16, all addresses
/// too. `fast`: sums may be kept in the tensor cores' own, less exact accumulators.
struct GemmFp8 {
    Fp8Rows a;
    Fp8Rows b;
    TensorView c;
    float beta = 0.0F;
    bool fast = false;
    TensorView d = {};  ///< as Gemm's
    const TensorView& added() const { return d.data == nullptr ? c : d; }
};

/// Samples packed one after another into the T rows of a microbatch.
struct PackedRows {
    std::int64_t tokens = 0;
    std::int64_t samples = 0;
    const std::int32_t* offsets = nullptr;       ///< [samples + 1], first row of each sample
    const std::int32_t* host_offsets = nullptr;  ///< the same [host]
    const std::int32_t* positions = nullptr;     ///< [T], position of each row in its sample
    const std::int32_t* sample_ids = nullptr;    ///< [T], index of the sample in its dataset
};

/// One adapter's factors on one linear, as a microbatch needs them. rank 0 = not targeted.
/// A: [rank, K], B: [N, rank], row-major fp32 masters, gradients of the same shapes (accumulated).
struct LoraSlot {
    const float* a = nullptr;
    const float* b = nullptr;
    float* grad_a = nullptr;
    float* grad_b = nullptr;
    std::int32_t rank = 0;
    float scale = 1.0F;             ///< lora_alpha / r (or / sqrt(r))
    std::int32_t column = 0;        ///< first column of this slot in S and dS
    std::uint32_t dropout = 0;      ///< threshold of base/rng.h; 0 = no dropout
    std::uint64_t dropout_key = 0;  ///< tensor_key(seed, adapter, module path)
    /// The linear's input column that X's first one is, a multiple of 8, the same of all slots:
    /// masks are the whole input's.
    std::int32_t dropout_column = 0;
    /// DoRA's, null without it: m [N], its gradient, and |W + scale B A|² of the rows of W.
    const float* magnitude = nullptr;
    float* grad_magnitude = nullptr;
    float* squares = nullptr;
    /// Of a difference (TensorRole::start_a), else null: A0 [rank, K] and B0 transposed [rank, N].
    /// No operator looks at them by these names.
    const float* start_a = nullptr;
    const float* start_b = nullptr;
};

/// Rows [begin, end) of a microbatch belong to slot `slot`; segments are disjoint and ascending.
struct LoraSegment {
    std::int32_t slot = 0;
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::uint32_t step = 0;  ///< optimizer step, enters the dropout counter
};

/// The segments and rows of a microbatch, shared by its LoRA ops. [host]
struct LoraRows {
    std::span<const LoraSegment> segments;
    PackedRows rows;
};

/// One of several linears that read the same X (q,k,v or gate,up). [host]
/// S, dS: [T, R], compute_dtype().
struct LoraTarget {
    std::span<const LoraSlot> slots;
    TensorView s;
};

/// S[t, column .. column + rank) = scale * drop(x_t) Aᵀ for the slot that owns row t; every other
/// column of S is set to 0. drop is per target (independent masks, as PEFT). X: [T, K].
/// `again`, where it has data, gets the first target's S too.
struct LoraShrink {
    TensorView x;
    std::span<const LoraTarget> targets;
    LoraRows rows;
    TensorView again = {};
};

/// Y += S Bᵀ per segment (segmented path). Y: [T, N].
struct LoraExpand {
    LoraTarget target;
    TensorView y;
    LoraRows rows;
};

/// From one pass over dY: dS[t, own columns] = scale * dy_t B, other columns 0;
/// grad_b += dYᵀ S per segment. dY: [T, N], S and dS: [T, R] (S already carries the scale).
struct LoraBackward {
    TensorView dy;
    LoraTarget target;  ///< .s = S of the forward pass
    TensorView ds;
    LoraRows rows;
};

/// grad_a += dSᵀ drop(X) per segment and target. X: [T, K]; each target's .s is its dS.
struct LoraGradA {
    TensorView x;
    std::span<const LoraTarget> targets;
    LoraRows rows;
};

/// dX = (or += with accumulate) sum over targets of drop'(dS A) per segment, where drop' applies
/// the forward mask of that target and its 1/(1-p). dX: [T, K]; rows outside every segment are set
/// to 0 (or left).
struct LoraExpandBackward {
    TensorView dx;
    std::span<const LoraTarget> targets;  ///< .s = dS
    LoraRows rows;
    bool accumulate = false;
};

/// Of LoRA on an embedding: A [rank, K] by columns, where row t has column ids[t].
/// target.s: S [T, R] or dS [T, R].
struct LoraIds {
    const std::int32_t* ids = nullptr;  ///< [T]; negative: none, as of another lane's columns
    std::int64_t columns = 0;           ///< K
    LoraTarget target;
    LoraRows rows;
    std::int32_t still = -1;  ///< an id whose column gets no gradient; negative: none
};

/// Pads of the augmented matrix: b_pad [N, R] gets B of each slot in its columns, a_pad [R, K] gets
/// A of each slot in its rows, the rest 0. b_pad and a_pad: compute_dtype(). Source: mLoRA
/// BatchLoRA, design decision 4. Factors that are not finite in that type are written as 0
/// (isolation: 0 x NaN = NaN).
struct LoraPack {
    std::span<const LoraSlot> slots;  ///< [host]
    TensorView b_pad;
    TensorView a_pad;
};

/// squares[j] = sum over k of (w[j, k] + scale * (B A)[j, k])². w: [N, K]; squares: [N].
struct DoraNorms {
    TensorView w;
    LoraSlot slot;
    float* squares = nullptr;
};

/// target = (or += with accumulate) (magnitude / sqrt(squares) - less_one) ∘ source, column by
/// column. Views of one shape [n, N]; without accumulate they may be the same.
struct DoraScale {
    TensorView target;
    TensorView source;
    const float* magnitude = nullptr;  ///< [N]
    const float* squares = nullptr;    ///< [N]
    bool less_one = false;
    bool accumulate = false;
};

/// gradient[j] += sum over t of dy[t, j] v[t, j] / sqrt(squares[j]). dy, v: [n, N]. With magnitudes
/// v is what DoraScale has made of it, and they divide in place of the norms; one that is 0 gets no
/// gradient then.
struct DoraGradMagnitude {
    TensorView dy;
    TensorView v;
    const float* squares = nullptr;
    float* gradient = nullptr;
    const float* magnitude = nullptr;
};

/// product = diag(scale_b) b diag(scale_d), all [N, rank] row-major: the B of LoRA's ops for VeRA.
struct VeraProduct {
    const float* b = nullptr;
    const float* scale_d = nullptr;  ///< [rank]
    const float* scale_b = nullptr;  ///< [N]
    float* product = nullptr;
    std::int64_t out = 0;  ///< N
    std::int32_t rank = 0;
};

/// What the gradient G [N, rank] of that product says of the scales; it is 0 afterwards:
///   grad_d[i] += sum over j of G[j, i] b[j, i] scale_b[j],
///   grad_b[j] += sum over i of G[j, i] b[j, i] scale_d[i].
struct VeraGradients {
    VeraProduct of;  ///< without product
    float* gradient = nullptr;
    float* grad_d = nullptr;
    float* grad_b = nullptr;
};

/// y = (or += with accumulate) drop(x) with the masks of LoraShrink, for rows of one segment. Views
/// of one shape [n, K]; without accumulate they may be the same.
struct DropRows {
    TensorView y;
    TensorView x;
    LoraSlot slot;
    const std::int32_t* positions = nullptr;   ///< [n], as PackedRows
    const std::int32_t* sample_ids = nullptr;  ///< [n]
    std::uint32_t step = 0;
    bool accumulate = false;
};

/// x[t, c] += amplitude u: u of the 15 random bits of base/rng.h dropout_bits, at the row's sample
/// and position, even in steps of 2^-14 in (-1, 1). x: rows of one sample, all of its columns.
/// NEFTune (Jain et al. 2023, Algorithm 1): amplitude = alpha / sqrt(rows of the sample * columns).
struct AddNoise {
    TensorView x;
    const std::int32_t* positions = nullptr;   ///< [n], as PackedRows
    const std::int32_t* sample_ids = nullptr;  ///< [n]
    std::uint64_t key = 0;
    std::uint32_t step = 0;
    float amplitude = 0.0F;
};

/// The views of these ops must agree in shape.
void check_shapes(const DoraScale& op);
void check_shapes(const DoraGradMagnitude& op);
void check_shapes(const DropRows& op);

/// y[t, :] = x_t / sqrt(mean(x_t²) + eps) * (w + weight_offset), separately in each of `groups`
/// equal column groups of width cols / groups (groups > 1: the q/k norm of qwen3), and added_t on
/// top where that has data (without codes). w: [cols / groups]. y may alias x or added.
struct RmsNorm {
    TensorView x;
    const void* weight = nullptr;  ///< compute_dtype()
    float eps = 1e-6F;
    std::int64_t groups = 1;
    TensorView y;
    RowCodes codes = {};  ///< of y
    float weight_offset = 0.0F;
    TensorView added = {};
};

/// dx (+)= gradient of RmsNorm with respect to x; no weight gradient (frozen). dx may alias dy when
/// accumulate is false. y, where it has data, gets RmsNorm's y again (without `added`), to the bit;
/// it aliases none.
struct RmsNormBackward {
    TensorView x;
    const void* weight = nullptr;
    float eps = 1e-6F;
    std::int64_t groups = 1;
    TensorView dy;
    TensorView dx;
    bool accumulate = false;
    TensorView y = {};
    float weight_offset = 0.0F;
};

/// Of an MLP without a gate (Huang and Schlag 2024, "Deriving Activation Functions Using
/// Integration"; Apertus), with e = -1e-6:
///   h = positive x² + x / 2 where x > 0, else negative (exp(min(x, e)) - 1 - x) + x / 2
struct Xielu {
    TensorView x;
    float positive = 0.0F;
    float negative = 0.0F;
    TensorView h;
    RowCodes codes = {};  ///< of h
};

/// dx = dh times the slope; dx may alias x. h is made again where it has data, and may alias dh.
struct XieluBackward {
    TensorView x;
    float positive = 0.0F;
    float negative = 0.0F;
    TensorView dh;
    TensorView dx;
    TensorView h = {};
    RowCodes codes = {};  ///< of dx
};

/// Rotates halves in place (HF rotate_half): of each head the first D columns, rotary_dim or all,
///   (x_j, x_{j+D/2}) <- l (x_j c - x_{j+D/2} s, x_{j+D/2} c + x_j s), angle = position *
///   inv_freq_j
/// for j < D/2 and l = length; interleaved: of the pairs (x_2j, x_{2j+1}) instead (GLM-4).
/// backward: the transpose. The heads of the first scaled_columns are multiplied as well, by
/// 1 + scale_beta ln(1 + floor(position / scale_period)), both ways (queries of Ministral 3), where
/// all of a head is rotated. x: [T, heads * head_dim]; inv_freq: [D/2] fp32.
struct Rope {
    TensorView x;
    std::int64_t head_dim = 0;
    const float* inv_freq = nullptr;
    const std::int32_t* positions = nullptr;  ///< [T]
    bool backward = false;
    std::int64_t scaled_columns = 0;
    float scale_beta = 0.0F;
    float scale_period = 1.0F;
    std::int64_t rotary_dim = 0;  ///< 0: head_dim
    bool interleaved = false;
    float length = 1.0F;

    std::int64_t rotated() const { return rotary_dim == 0 ? head_dim : rotary_dim; }
    bool has_sizes_that_fit() const {
        return head_dim > 0 && rotated() > 0 && rotated() % 2 == 0 && rotated() <= head_dim &&
               x.cols % head_dim == 0 && scaled_columns % head_dim == 0 &&
               scaled_columns <= x.cols && (scaled_columns == 0 || rotated() == head_dim);
    }
};

/// Causal attention inside each sample, grouped queries: head h reads key-value head h / (Q/G).
/// With a window query i sees key j if 0 <= i - j < window (as HF's sliding_window), else if j <=
/// i. With a soft cap c scaled scores s become c tanh(s / c) (Gemma 2). q: [T, Q*D], k, v: [T,
/// G*D], o: [T, Q*D]; lse: [T, Q] fp32 = log sum exp of the scores.
struct Attention {
    TensorView q;
    TensorView k;
    TensorView v;
    TensorView o;
    float* lse = nullptr;
    std::int64_t head_dim = 0;
    float scale = 1.0F;  ///< of the scores: ModelSpec::attention_scale()
    PackedRows rows;
    std::int64_t window = 0;  ///< 0: none
    float soft_cap = 0.0F;    ///< 0: none
};

/// Attention of the next token of each of T samples, whose tokens before it are in a cache: row t
/// puts its k and v into row first[t] + positions[t] of `keys` and `values`, then its query sees
/// the rows from first[t] to there, as Attention says. of.rows: T samples of one row, with their
/// positions; lse is not written. Samples have disjoint rows of the cache.
struct CachedAttention {
    Attention of;
    TensorView keys;  ///< [rows of the cache, G*D], as values
    TensorView values;
    const std::int32_t* first = nullptr;  ///< [T]
};

/// Gradients of Attention (recomputes the probabilities from lse). dq, dk, dv are overwritten.
struct AttentionBackward {
    Attention forward;
    TensorView d_o;
    TensorView dq;
    TensorView dk;
    TensorView dv;
};

/// h = f(gate) * up, f = activation. All [T, F].
struct SwiGlu {
    TensorView gate;
    TensorView up;
    TensorView h;
    RowCodes codes = {};  ///< of h
    Activation activation = Activation::silu;
};

/// To which k of E experts each of T rows goes, and the T k rows in the order of experts: of one
/// expert after another, in each as they come. Backend memory but for host_offsets.
struct ExpertRoutes {
    std::int64_t tokens = 0;
    std::int64_t experts = 0;
    std::int64_t per_token = 0;
    float* probabilities = nullptr;        ///< [T, E]
    float* weights = nullptr;              ///< [T, k]
    std::int32_t* chosen = nullptr;        ///< [T, k], ascending
    std::int32_t* places = nullptr;        ///< [T, k], where the row is in the order of experts
    std::int32_t* rows = nullptr;          ///< [T k], which row each of these is
    std::int32_t* offsets = nullptr;       ///< [E + 1], first row of each expert
    std::int32_t* host_offsets = nullptr;  ///< the same [host]
    std::int64_t copies() const { return tokens * per_token; }
    /// Of an expert, its rows in that order.
    std::int64_t first(std::int64_t expert) const { return host_offsets[expert]; }
    std::int64_t count(std::int64_t expert) const { return first(expert + 1) - first(expert); }
};

/// Makes the routes: probabilities p = softmax of the logits in fp32, the k largest of a row (the
/// first of equals), weights = p of these, with `normalised` divided by their sum, rounded to
/// compute_dtype(). logits: [T, E]. On CUDA the host waits for host_offsets.
struct Route {
    TensorView logits;
    ExpertRoutes to;
    bool normalised = false;
};

/// y_t = added_t + sum over the k experts of row t, in their order, of w x_place, with w = 1 unless
/// `weighted`. x: [T k, H]; y, added: [T, H], may be the same.
struct CombineExperts {
    TensorView y;
    TensorView x;
    TensorView added;
    ExpertRoutes routes;
    bool weighted = false;
};

/// Of y = sum w_j down(product_j), where `inner` has the gradient of y times down, row by row:
///   d_weights[t, j] = inner_place . product_place, and inner_place *= w
/// inner, product: [T k, F]; d_weights: [T, k].
struct WeighExperts {
    TensorView inner;
    TensorView product;
    float* d_weights = nullptr;
    ExpertRoutes routes;
};

/// x_place *= w of each of the T k rows. x: [T k, N].
struct WeighRows {
    TensorView x;
    ExpertRoutes routes;
};

/// LoRA in experts, on rows in their order: those of expert e and of a row in a segment have the
/// factor M_e of the segment's slot, of its A [rank, N], or with of_b of its B [N, rank]
/// transposed. Slots have the first expert's A and B and their gradients; those of expert e lie e
/// times as many values behind. No dropout. Columns c of a row of narrow: column .. column + rank.
/// - narrow_experts: narrow[p, c] = scale * wide_p M_eᵀ, all other columns 0
/// - widen_experts: wide_p += narrow[p, c] M_e
/// - add_expert_grads: gradient of M_e += sum of narrow[p, c]ᵀ wide_p
/// So S, S Bᵀ, dS, dS A and gradients as in LoraShrink, LoraExpand, LoraBackward, LoraGradA.
/// wide: [T k, N]; narrow: [T k, R]; rows.segments count rows of T. Without host synchronisation,
/// sums in one order.
struct ExpertLora {
    TensorView wide;
    TensorView narrow;
    std::span<const LoraSlot> slots;  ///< [host]
    LoraRows rows;
    ExpertRoutes routes;
    bool of_b = false;
};

/// d_logits [T, E] = gradient of Route's weights with respect to its logits.
struct RouteBackward {
    TensorView d_logits;
    const float* d_weights = nullptr;
    ExpertRoutes routes;
    bool normalised = false;
};

/// The views of these ops must agree in shape.
void check_shapes(const Route& op);
void check_shapes(const CombineExperts& op);
void check_shapes(const WeighExperts& op);
void check_shapes(const WeighRows& op);
void check_shapes(const ExpertLora& op);
void check_shapes(const RouteBackward& op);

/// `right` are the columns behind `left` in the same rows.
inline bool are_side_by_side(const TensorView& left, const TensorView& right) {
    return left.offset(0, left.cols) == right.data && left.ld == right.ld &&
           left.rows == right.rows;
}

/// dgate, dup from dh; h is recomputed into `h` when h.data is set (it may alias dh). dgate may
/// alias gate, dup may alias up.
struct SwiGluBackward {
    TensorView gate;
    TensorView up;
    TensorView dh;
    TensorView dgate;
    TensorView dup;
    TensorView h;
    RowCodes codes = {};  ///< of dgate and dup, which lie side by side then: [T, 2 F]
    Activation activation = Activation::silu;
};

/// How the loss of a row departs from cross-entropy: with L = log sum exp(logits), t the target's
/// logit, m the mean of the logits, e = label_smoothing and p = exp(t - L)
///   loss = w (L - (1 - e) t - e m) + z_loss L²,  w = p with dft, not differentiated, else 1
///   d loss / d logits_j = (w + 2 z_loss L) softmax_j - w ((1 - e) onehot_j + e / V)
/// e: LabelSmoother of transformers (Szegedy et al. 2016); dft: Wu et al. 2025, Eq. 9, as TRL;
/// z_loss: Chowdhery et al. 2022 (PaLM), section 5.
struct TokenLoss {
    float label_smoothing = 0.0F;
    float z_loss = 0.0F;
    bool dft = false;
    bool is_plain() const { return label_smoothing == 0.0F && z_loss == 0.0F && !dft; }
    friend bool operator==(const TokenLoss&, const TokenLoss&) = default;
};

/// Per row i: loss = log sum exp(logits_i) - logits_i[target_i]; then logits_i <- scale_i *
/// (softmax(logits_i) - onehot(target_i)) in place when `gradient`; or both as `form` says.
/// loss_sums[bin_i] += loss (fp64) and wrong_counts[bin_i] += 1 where the largest logit is not the
/// target's (first index wins ties), both in row order. Source: chunked cross-entropy,
/// reference/performance.md section 7.
struct CrossEntropy {
    TensorView logits;                      ///< [n, V]
    const std::int32_t* targets = nullptr;  ///< [n], in [0, V)
    const float* scales = nullptr;          ///< [n]
    const std::int32_t* bins = nullptr;     ///< [n]
    double* loss_sums = nullptr;            ///< [number of bins]
    double* wrong_counts = nullptr;         ///< [number of bins]
    bool gradient = true;
    const float* weights = nullptr;  ///< [n] of the losses in loss_sums; null: 1 each
    TokenLoss form = {};
    /// Logits are c tanh(x / c) (SoftCap); the gradient is that of x then. 0: they are not.
    float soft_cap = 0.0F;
};

/// x <- cap tanh(x / cap), in place.
struct SoftCap {
    TensorView x;
    float cap = 1.0F;
};

/// CrossEntropy of a stage whose lanes have some columns of the logits each. Every lane first makes
/// the statistics of its columns (shard_statistics), then, with those of all lanes, the rest
/// (sharded_cross_entropy): the numbers of CrossEntropy but for rounding, losses and counts with
/// equal bits on all lanes.
struct ShardedCrossEntropy {
    CrossEntropy of;  ///< logits: [n, own columns]; targets: among the columns of all lanes
    std::int64_t first_column = 0;  ///< of the own ones; lanes have columns in their order
    std::int64_t columns = 0;       ///< of all lanes
    std::int32_t lane = 0;
    std::int32_t lanes = 1;
    ShardStatistics* statistics = nullptr;  ///< [lanes, n]
};

/// AdamW as torch, on the flat parameters of one adapter on this stage (Loshchilov & Hutter):
///   norm = sqrt(*grad_sumsq); not finite: nothing changes but *skipped_steps += 1. Else
///   g = grad * min(1, max_grad_norm / (norm + 1e-6))   (max_grad_norm 0: g = grad)
///   t = ++*applied_steps; p -= lr * weight_decay * p; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g²
///   p -= lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
/// grad is set to 0 in either case. A step of parameters with different rates is one op for each
/// rate; the first `counts`, the others take the step's number from it.
struct AdamW {
    float* parameters = nullptr;
    float* gradients = nullptr;
    float* first_moments = nullptr;
    float* second_moments = nullptr;
    std::int64_t count = 0;
    double learning_rate = 0.0;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0.0;
    double max_grad_norm = 0.0;
    const double* grad_sumsq = nullptr;  ///< over all stages
    std::int64_t* applied_steps = nullptr;
    std::int64_t* skipped_steps = nullptr;
    bool counts = true;
};

/// AdamW whose moments are kept as 8-bit codes of base/dynamic_map.h, in blocks of 256 parameters
/// from the first on with a scale each: moments are read from codes, the step is made with the new
/// ones in fp32, and these become codes again (nearest; where two are, the lower) with scale = the
/// largest magnitude of the block. Moments of `step` are not used. Codes and scales of 0 stand for
/// moments of 0. Source: Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization";
/// bitsandbytes, AdamW8bit.
struct AdamW8bit {
    AdamW step;
    std::uint8_t* first_codes = nullptr;   ///< [count], signed map
    std::uint8_t* second_codes = nullptr;  ///< [count], unsigned map
    float* first_scales = nullptr;         ///< [blocks]
    float* second_scales = nullptr;        ///< [blocks]
};

/// target[target_index[i]] = (or += with add) source[source_index[i]]; index lists are [host].
struct MoveDoubles {
    double* target = nullptr;
    const double* source = nullptr;
    std::span<const std::int32_t> target_index;
    std::span<const std::int32_t> source_index;
    bool add = false;
};

/// values[i, j] = (2 u - 1) bound, u = uniform_float(key, first + i stride + j) of base/rng.h:
/// equal bits on every backend.
struct DrawUniform {
    float* values = nullptr;  ///< [rows, cols], one after another
    std::int64_t rows = 1;
    std::int64_t cols = 0;
    std::int64_t first = 0;
    std::int64_t stride = 0;
    std::uint64_t key = 0;
    float bound = 1.0F;
};

struct MemoryUse {
    std::size_t current = 0;  ///< bytes allocated now
    std::size_t peak = 0;
};

/// Scratch that operators need, in bytes, at most (plan/memory/engine_memory.h).
struct ScratchSizes {
    std::size_t operators = 0;
    std::size_t gemm_timing = 0;
    std::size_t attention_rows = 0;  ///< of own kernels
    std::size_t attention_tiles = 0;
    std::size_t cudnn_workspace = 0;
    std::size_t cudnn_tables = 0;
};

/// What shapes of a kind took that were new to a backend, while its stream stood still.
struct FirstUses {
    std::int64_t gemms = 0;  ///< whose algorithms were timed
    double gemm_seconds = 0.0;
    std::int64_t graphs = 0;  ///< of attention
    double graph_seconds = 0.0;
};

class HostCopies;

class Backend {
  public:
    virtual ~Backend() = default;

    virtual std::string description() const = 0;  ///< "cpu, 2 threads, oneDNN 2.6.3"
    virtual DType compute_dtype() const = 0;

    /// The stream that ops are queued on (a cudaStream_t), for communicators of device memory; null
    /// where ops run at once.
    virtual void* native_stream() const { return nullptr; }

    /// Throws Error naming `what` and the bytes when memory is short. Contents are zeroed.
    virtual Buffer allocate(std::size_t bytes, const char* what) = 0;
    /// Allocates scratch now instead of when an operator first asks for it, so that a run uses from
    /// its start the memory that was planned. Throws as allocate() does.
    virtual void prepare_scratch(const ScratchSizes& /*sizes*/) {}
    /// `call` is called from now on before what may wait for the whole device: the first use of a
    /// library's code, which the driver loads then. An empty function ends that.
    virtual void before_stalls(const std::function<void()>& /*call*/) {}
    virtual FirstUses first_uses() const { return {}; }
    virtual void release(void* data, std::size_t bytes) = 0;
    virtual MemoryUse memory() const = 0;
    virtual void upload(void* target, const void* host_source, std::size_t bytes) = 0;
    virtual void download(void* host_target, const void* source, std::size_t bytes) = 0;
    /// Reads the parts as they are when the stream comes to this call, without waiting for it; no
    /// part at all marks the place. Results become ready in the order of the calls.
    virtual std::unique_ptr<Readback> read_later(std::span<const ReadPart> parts) = 0;
    virtual void zero(void* target, std::size_t bytes) = 0;
    virtual void synchronize() = 0;

    /// Copies between host memory and the backend's beside its stream, for loads to so many places
    /// (backend/host_copies.h); it must not outlive the backend.
    virtual std::unique_ptr<HostCopies> make_host_copies(std::int32_t places) = 0;

    /// A clock of the stream; it must not outlive the backend.
    virtual std::unique_ptr<StreamClock> make_clock() = 0;
    /// Null where ops run at once.
    virtual std::unique_ptr<SideStream> make_side_stream() { return nullptr; }
    /// Names the work queued until pop_range() for a profiler (backend/range.h); `name` must live
    /// as long as the program.
    virtual void push_range(const char* /*name*/, std::int64_t /*number*/) {}
    virtual void pop_range() {}

    /// Copies [rows, cols] between views of any dtypes and strides, converting.
    virtual void copy(const TensorView& target, const TensorView& source) = 0;
    /// y[t, :] += bias. bias: [cols] compute_dtype().
    virtual void add_bias(const TensorView& y, const void* bias) = 0;
    /// y += x, of one shape.
    virtual void add(const TensorView& y, const TensorView& x) = 0;
    /// y[i, :] = scale table[ids[i], :], or zeros where ids[i] is negative; table may be bf16 or
    /// fp32. Also gathers rows of activations.
    virtual void gather_rows(const TensorView& y, const TensorView& table, const std::int32_t* ids,
                             float scale) = 0;
    /// y[ids[i], :] = x[i, :], all other rows of y are set to 0. ids ascend.
    virtual void scatter_rows(const TensorView& y, const TensorView& x,
                              const std::int32_t* ids) = 0;
    /// The matrix of base/random_matrix.h: equal bits on every backend. target: f32 or bf16.
    virtual void fill_random(const TensorView& target, const RandomMatrix& random) = 0;
    virtual void draw_uniform(const DrawUniform& op) = 0;
    /// target = the effective weights of base/quantized.h, rounded to its type: equal bits on every
    /// backend.
    virtual void dequantize(const TensorView& target, const QuantizedMatrix& weights) = 0;
    virtual void gemm(const Gemm& op) = 0;
    virtual void quantize_rows(const QuantizeRows& op) = 0;
    /// to[j, i] = from[i, j]: codes alone.
    virtual void transpose_codes(const Fp8Rows& to, const Fp8Rows& from) = 0;
    virtual void gemm_fp8(const GemmFp8& op) = 0;
    /// Of many linears at once: on CUDA one kernel.
    virtual void lora_pack(std::span<const LoraPack> ops) = 0;
    virtual void lora_shrink(const LoraShrink& op) = 0;
    virtual void lora_expand(const LoraExpand& op) = 0;
    virtual void lora_backward(const LoraBackward& op) = 0;
    /// lora_backward of linears that read the same X, with the same `rows`, at most 3; quicker in
    /// one call where their dY lie side by side.
    virtual void lora_backward_group(std::span<const LoraBackward> ops) {
        for (const LoraBackward& op : ops) lora_backward(op);
    }
    virtual void lora_grad_a(const LoraGradA& op) = 0;
    virtual void lora_expand_backward(const LoraExpandBackward& op) = 0;
    /// S[t, column .. column + rank) = scale * A[:, ids[t]], or 0 where ids[t] is negative, for the
    /// slot that owns row t; other columns of rows in segments are set to 0.
    virtual void lora_gather_a(const LoraIds& op) = 0;
    /// grad_a[:, ids[t]] += dS_t but for `still`, row by row: how rows are cut into calls changes
    /// no bit.
    virtual void lora_scatter_a(const LoraIds& op) = 0;
    virtual void dora_norms(const DoraNorms& op) = 0;
    virtual void dora_scale(const DoraScale& op) = 0;
    virtual void dora_grad_magnitude(const DoraGradMagnitude& op) = 0;
    virtual void vera_product(const VeraProduct& op) = 0;
    virtual void vera_gradients(const VeraGradients& op) = 0;
    virtual void drop_rows(const DropRows& op) = 0;
    virtual void add_noise(const AddNoise& op) = 0;
    virtual void rms_norm(const RmsNorm& op) = 0;
    virtual void rms_norm_backward(const RmsNormBackward& op) = 0;
    virtual void rope(const Rope& op) = 0;
    virtual void attention(const Attention& op) = 0;
    virtual void attention_backward(const AttentionBackward& op) = 0;
    virtual void cached_attention(const CachedAttention& op) = 0;
    virtual void swiglu(const SwiGlu& op) = 0;
    virtual void swiglu_backward(const SwiGluBackward& op) = 0;
    virtual void xielu(const Xielu& op) = 0;
    virtual void xielu_backward(const XieluBackward& op) = 0;
    virtual void route(const Route& op) = 0;
    virtual void combine_experts(const CombineExperts& op) = 0;
    virtual void weigh_experts(const WeighExperts& op) = 0;
    virtual void weigh_rows(const WeighRows& op) = 0;
    virtual void narrow_experts(const ExpertLora& op) = 0;
    virtual void widen_experts(const ExpertLora& op) = 0;
    virtual void add_expert_grads(const ExpertLora& op) = 0;
    virtual void route_backward(const RouteBackward& op) = 0;
    virtual void soft_cap(const SoftCap& op) = 0;
    virtual void cross_entropy(const CrossEntropy& op) = 0;
    /// Writes the own lane's statistics; with `of.gradient` the logits are of no other use then.
    virtual void shard_statistics(const ShardedCrossEntropy& op) = 0;
    /// After shard_statistics of all lanes, whose statistics have been gathered.
    virtual void sharded_cross_entropy(const ShardedCrossEntropy& op) = 0;
    /// *result = sum of squares (fp64) of `count` floats.
    virtual void sum_squares(const float* values, std::int64_t count, double* result) = 0;
    virtual void adamw(const AdamW& op) = 0;
    virtual void adamw_8bit(const AdamW8bit& op) = 0;
    virtual void move_doubles(const MoveDoubles& op) = 0;
};

}  // namespace loratrain
