#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel.h"
#include "backend/cpu/vector_math.h"
#include "base/vector_code.h"

namespace loratrain {

namespace {

/// One value head of one sample.
struct RuleHead {
    const DeltaRule& op;
    std::int64_t head = 0;
    std::int64_t first = 0;  ///< row of the sample
    std::int64_t rows = 0;

    std::int64_t keys() const { return op.key_dim(); }
    std::int64_t values() const { return op.value_dim(); }
    std::int64_t state_size() const { return keys() * values(); }
    std::int64_t key_head() const { return head / (op.value_heads / op.key_heads); }
    /// Of a row of the sample.
    float* key_part(const TensorView& x, std::int64_t t) const {
        return x.f32() + (first + t) * x.ld + key_head() * keys();
    }
    float* value_part(const TensorView& x, std::int64_t t) const {
        return x.f32() + (first + t) * x.ld + head * values();
    }
    float& number(const TensorView& x, std::int64_t t) const {
        return x.f32()[(first + t) * x.ld + head];
    }
    /// The state before row t of the sample, which begins a chunk that is not its first.
    float* kept_state(std::int64_t t) const {
        const std::int64_t matrix = (first + t) / delta_chunk - 1;
        return op.states + (matrix * op.value_heads + head) * state_size();
    }
};

/// 1 / sqrt(x . x + eps).
float inverse_length(const float* x, std::int64_t count) {
    return 1.0F / std::sqrt(dot(x, x, count) + delta_length_eps);
}

LORATRAIN_VECTOR_CODE
void scale_to(const float* x, float factor, std::int64_t count, float* y) {
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j) y[j] = factor * x[j];
}

/// q^ and k^ of a row.
void make_lengths(const RuleHead& at, std::int64_t t, float* q, float* k) {
    const std::int64_t n = at.keys();
    const float* raw_q = at.key_part(at.op.q, t);
    const float* raw_k = at.key_part(at.op.k, t);
    const float scale = 1.0F / std::sqrt(static_cast<float>(n));
    scale_to(raw_q, scale * inverse_length(raw_q, n), n, q);
    scale_to(raw_k, inverse_length(raw_k, n), n, k);
}

/// p = Sᵀ k, of the state before a row.
LORATRAIN_VECTOR_CODE
void predict(const float* state, const float* k, std::int64_t keys, std::int64_t values, float* p) {
    std::fill_n(p, values, 0.0F);
    for (std::int64_t i = 0; i < keys; ++i) {
        const float factor = k[i];
        const float* of = state + i * values;
#pragma omp simd
        for (std::int64_t j = 0; j < values; ++j) p[j] += factor * of[j];
    }
}

/// p -> u = beta (v - decay p).
LORATRAIN_VECTOR_CODE
void correct(const float* v, float beta, float decay, std::int64_t values, float* p) {
#pragma omp simd
    for (std::int64_t j = 0; j < values; ++j) p[j] = beta * (v[j] - decay * p[j]);
}

/// to = decay from + k uᵀ, which may be the same.
LORATRAIN_VECTOR_CODE
void update(const float* from, float decay, const float* k, const float* u, std::int64_t keys,
            std::int64_t values, float* to) {
    for (std::int64_t i = 0; i < keys; ++i) {
        const float factor = k[i];
        const float* before = from + i * values;
        float* after = to + i * values;
#pragma omp simd
        for (std::int64_t j = 0; j < values; ++j) after[j] = decay * before[j] + factor * u[j];
    }
}

/// Arrays for one head: its state, and the others in a thread's scratch.
struct RuleScratch {
    float* state;
    float* q;
    float* k;
    float* u;

    RuleScratch(const RuleHead& at, float* of_state, float* begin)
        : state(of_state), q(begin), k(q + at.keys()), u(k + at.keys()) {}
    static std::int64_t floats(std::int64_t keys, std::int64_t values) { return 2 * keys + values; }
};

/// From the state before the head's first row to the one behind its last.
void run_head(const RuleHead& at, const RuleScratch& s) {
    for (std::int64_t t = 0; t < at.rows; ++t) {
        const float decay = std::exp(at.number(at.op.g, t));
        make_lengths(at, t, s.q, s.k);
        predict(s.state, s.k, at.keys(), at.values(), s.u);
        correct(at.value_part(at.op.v, t), at.number(at.op.beta, t), decay, at.values(), s.u);
        update(s.state, decay, s.k, s.u, at.keys(), at.values(), s.state);
        predict(s.state, s.q, at.keys(), at.values(), at.value_part(at.op.o, t));
    }
}

/// What a chunk's backward reads, in a thread's scratch: of its rows q^, k^, p, u, the states
/// before them and the one behind the last; and the gradient of the state behind a row.
struct ChunkScratch {
    float* states;
    float* q;
    float* k;
    float* p;
    float* u;
    float* d_state;
    float* dq;
    float* dk;
    float* du;
    float* dp;

    ChunkScratch(const RuleHead& at, float* begin) {
        const std::int64_t keys = at.keys();
        const std::int64_t values = at.values();
        const auto take = [&begin](std::int64_t floats) {
            float* taken = begin;
            begin += floats;
            return taken;
        };
        states = take((delta_chunk + 1) * keys * values);
        q = take(delta_chunk * keys);
        k = take(delta_chunk * keys);
        p = take(delta_chunk * values);
        u = take(delta_chunk * values);
        d_state = take(keys * values);
        dq = take(keys);
        dk = take(keys);
        du = take(values);
        dp = take(values);
    }
    static std::int64_t floats(std::int64_t keys, std::int64_t values) {
        return (delta_chunk + 2) * keys * values + 2 * delta_chunk * (keys + values) +
               2 * (keys + values);
    }
};

/// Fills the scratch for rows [begin, end) from the state before them, which is in states[0].
void rerun_chunk(const RuleHead& at, std::int64_t begin, std::int64_t end, const ChunkScratch& s) {
    const std::int64_t keys = at.keys();
    const std::int64_t values = at.values();
    for (std::int64_t t = begin; t < end; ++t) {
        const std::int64_t i = t - begin;
        const float decay = std::exp(at.number(at.op.g, t));
        float* before = s.states + i * at.state_size();
        float* k = s.k + i * keys;
        float* u = s.u + i * values;
        make_lengths(at, t, s.q + i * keys, k);
        predict(before, k, keys, values, s.p + i * values);
        std::copy_n(s.p + i * values, values, u);
        correct(at.value_part(at.op.v, t), at.number(at.op.beta, t), decay, values, u);
        update(before, decay, k, u, keys, values, before + at.state_size());
    }
}

/// d_state += q d_oᵀ; du = d_stateᵀ k; dq = state d_o.
LORATRAIN_VECTOR_CODE
void output_backward(const float* state, const float* q, const float* k, const float* d_o,
                     std::int64_t keys, std::int64_t values, const ChunkScratch& s) {
    float* du = s.du;
    std::fill_n(du, values, 0.0F);
    for (std::int64_t i = 0; i < keys; ++i) {
        const float* of = state + i * values;
        float* d = s.d_state + i * values;
        const float qi = q[i];
        const float ki = k[i];
        float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t j = 0; j < values; ++j) {
            d[j] += qi * d_o[j];
            du[j] += ki * d[j];
            sum += of[j] * d_o[j];
        }
        s.dq[i] = sum;
    }
}

/// dk = d_state u + before dp; d_state -> decay d_state + k dpᵀ. The sum of before times d_state.
LORATRAIN_VECTOR_CODE
float update_backward(const float* before, const float* k, const float* u, float decay,
                      std::int64_t keys, std::int64_t values, const ChunkScratch& s) {
    const float* dp = s.dp;
    float d_decay = 0.0F;
    for (std::int64_t i = 0; i < keys; ++i) {
        const float* of = before + i * values;
        float* d = s.d_state + i * values;
        const float ki = k[i];
        float sum = 0.0F;
        float decayed = 0.0F;
#pragma omp simd reduction(+ : sum, decayed)
        for (std::int64_t j = 0; j < values; ++j) {
            sum += d[j] * u[j] + of[j] * dp[j];
            decayed += d[j] * of[j];
            d[j] = decay * d[j] + ki * dp[j];
        }
        s.dk[i] = sum;
        d_decay += decayed;
    }
    return d_decay;
}

/// Gradient of x from that of y = factor x / length(x); y is x / length(x) with `factor`.
void length_backward(const float* x, const float* dy, float factor, std::int64_t count,
                     bool accumulate, float* dx) {
    const float inverse = inverse_length(x, count);
    const float along = dot(x, dy, count) * inverse * inverse;
    for (std::int64_t i = 0; i < count; ++i) {
        const float gradient = factor * inverse * (dy[i] - x[i] * along);
        dx[i] = accumulate ? dx[i] + gradient : gradient;
    }
}

struct HeadBackward {
    const DeltaRuleBackward& op;
    const RuleHead& at;
    const ChunkScratch& s;
    bool accumulate;  ///< dq and dk have those of the key head's heads before

    void run_row(std::int64_t begin, std::int64_t t) const {
        const std::int64_t keys = at.keys();
        const std::int64_t values = at.values();
        const std::int64_t i = t - begin;
        const float* before = s.states + i * at.state_size();
        const float* k = s.k + i * keys;
        const float* p = s.p + i * values;
        const float* d_o = at.value_part(op.d_o, t);
        const float* v = at.value_part(at.op.v, t);
        float* dv = at.value_part(op.dv, t);
        const float beta = at.number(at.op.beta, t);
        const float decay = std::exp(at.number(at.op.g, t));
        output_backward(before + at.state_size(), s.q + i * keys, k, d_o, keys, values, s);
        float d_beta = 0.0F;
        float d_decay = 0.0F;
        for (std::int64_t j = 0; j < values; ++j) {
            d_beta += s.du[j] * (v[j] - decay * p[j]);
            dv[j] = beta * s.du[j];
            d_decay -= dv[j] * p[j];
            s.dp[j] = -decay * dv[j];
        }
        d_decay += update_backward(before, k, s.u + i * values, decay, keys, values, s);
        at.number(op.d_beta, t) = d_beta;
        at.number(op.d_g, t) = d_decay * decay;
        const float scale = 1.0F / std::sqrt(static_cast<float>(keys));
        length_backward(at.key_part(at.op.q, t), s.dq, scale, keys, accumulate,
                        at.key_part(op.dq, t));
        length_backward(at.key_part(at.op.k, t), s.dk, 1.0F, keys, accumulate,
                        at.key_part(op.dk, t));
    }

    /// From the state behind the sample's last row back to zero before its first.
    void run() const {
        const std::int64_t size = at.state_size();
        const std::int64_t last = (at.rows - 1) / delta_chunk * delta_chunk;
        std::fill_n(s.states, size, 0.0F);
        for (std::int64_t begin = 0; begin < last; begin += delta_chunk) {
            rerun_chunk(at, begin, begin + delta_chunk, s);
            const float* behind = s.states + delta_chunk * size;
            std::copy_n(behind, size, at.kept_state(begin + delta_chunk));
            std::copy_n(behind, size, s.states);
        }
        std::fill_n(s.d_state, size, 0.0F);
        for (std::int64_t begin = last; begin >= 0; begin -= delta_chunk) {
            const std::int64_t end = std::min(at.rows, begin + delta_chunk);
            if (begin > 0) std::copy_n(at.kept_state(begin), size, s.states);
            if (begin == 0) std::fill_n(s.states, size, 0.0F);
            rerun_chunk(at, begin, end, s);
            for (std::int64_t t = end - 1; t >= begin; --t) run_row(begin, t);
        }
    }
};

RuleHead head_of(const DeltaRule& op, std::int64_t sample, std::int64_t head) {
    const std::int64_t first = op.rows.host_offsets[sample];
    return {op, head, first, op.rows.host_offsets[sample + 1] - first};
}

}  // namespace

void CpuBackend::delta_rule(const DeltaRule& op) {
    require_f32({&op.q, &op.k, &op.v, &op.g, &op.beta, &op.o});
    check_shapes(op);
    const std::int64_t size = op.key_dim() * op.value_dim();
    const ThreadScratch scratch =
        reserve_scratch(size + RuleScratch::floats(op.key_dim(), op.value_dim()));
    parallel_for(threads_, op.rows.samples * op.value_heads, [&](std::int64_t i) {
        const RuleHead at = head_of(op, i / op.value_heads, i % op.value_heads);
        float* state = scratch.local();
        std::fill_n(state, size, 0.0F);
        run_head(at, {at, state, state + size});
    });
}

void CpuBackend::cached_delta_rule(const CachedDeltaRule& op) {
    const DeltaRule& of = op.of;
    require_f32({&of.q, &of.k, &of.v, &of.g, &of.beta, &of.o});
    check_shapes(of);
    const std::int64_t size = of.key_dim() * of.value_dim();
    const ThreadScratch scratch =
        reserve_scratch(RuleScratch::floats(of.key_dim(), of.value_dim()));
    parallel_for(threads_, of.rows.samples * of.value_heads, [&](std::int64_t i) {
        const RuleHead at = head_of(of, i / of.value_heads, i % of.value_heads);
        float* state = op.kept + i * size;
        if (at.rows > 0 && of.rows.positions[at.first] == 0) std::fill_n(state, size, 0.0F);
        run_head(at, {at, state, scratch.local()});
    });
}

void CpuBackend::delta_rule_backward(const DeltaRuleBackward& op) {
    const DeltaRule& of = op.forward;
    require_f32({&of.q, &of.k, &of.v, &of.g, &of.beta, &op.d_o, &op.dq, &op.dk, &op.dv, &op.d_g,
                 &op.d_beta});
    check_shapes(op);
    const std::int64_t group = of.value_heads / of.key_heads;
    const ThreadScratch scratch =
        reserve_scratch(ChunkScratch::floats(of.key_dim(), of.value_dim()));
    parallel_for(threads_, of.rows.samples * of.key_heads, [&](std::int64_t i) {
        for (std::int64_t j = 0; j < group; ++j) {
            const RuleHead at = head_of(of, i / of.key_heads, i % of.key_heads * group + j);
            const ChunkScratch s(at, scratch.local());
            if (at.rows > 0) HeadBackward{op, at, s, j > 0}.run();
        }
    });
}

}  // namespace loratrain
