#include "elementwise.h"

#include <type_traits>

#include "launch.cuh"

namespace loratrain::kernels {

namespace {

template <class To, class From, int N>
struct CopyBody {
    To* target;
    const From* source;
    std::int64_t target_ld, source_ld;
    __device__ void operator()(std::int64_t row, std::int64_t col) const {
        float v[N];
        load<N>(source + row * source_ld + col, v);
        store<N>(target + row * target_ld + col, v);
    }
};

/// Columns are those of the heads without what lies between them.
template <class T, int N>
struct CopyHeadsBody {
    T* target;
    const T* source;
    std::int64_t target_ld, source_ld;
    std::int32_t width, target_stride, source_stride;
    __device__ void operator()(std::int64_t row, std::int64_t col) const {
        const auto head = static_cast<std::int32_t>(col) / width;
        const std::int64_t place = static_cast<std::int32_t>(col) - head * width;
        float v[N];
        load<N>(source + row * source_ld + std::int64_t{head} * source_stride + place, v);
        store<N>(target + row * target_ld + std::int64_t{head} * target_stride + place, v);
    }
};

template <class T, int N>
struct SumHeadsBody {
    T* target;
    const T* source;
    std::int64_t target_ld, source_ld;
    std::int32_t heads, stride;
    __device__ void operator()(std::int64_t row, std::int64_t col) const {
        float sum[N] = {};
        for (std::int32_t head = 0; head < heads; ++head) {
            float term[N];
            load<N>(source + row * source_ld + std::int64_t{head} * stride + col, term);
#pragma unroll
            for (int i = 0; i < N; ++i) sum[i] += term[i];
        }
        store<N>(target + row * target_ld + col, sum);
    }
};

template <class T, int N>
struct AddBiasBody {
    T* y;
    const T* bias;
    std::int64_t ld;
    __device__ void operator()(std::int64_t row, std::int64_t col) const {
        float sum[N];
        float term[N];
        load<N>(y + row * ld + col, sum);
        load<N>(bias + col, term);
#pragma unroll
        for (int i = 0; i < N; ++i) sum[i] += term[i];
        store<N>(y + row * ld + col, sum);
    }
};

template <class T, int N>
struct AddBody {
    T* y;
    const T* x;
    std::int64_t y_ld, x_ld;
    __device__ void operator()(std::int64_t row, std::int64_t col) const {
        float sum[N];
        float term[N];
        load<N>(y + row * y_ld + col, sum);
        load<N>(x + row * x_ld + col, term);
#pragma unroll
        for (int i = 0; i < N; ++i) sum[i] += term[i];
        store<N>(y + row * y_ld + col, sum);
    }
};

template <class T, int N>
struct SoftCapBody {
    T* x;
    std::int64_t ld;
    float cap, inverse;
    __device__ void operator()(std::int64_t row, std::int64_t col) const {
        float v[N];
        load<N>(x + row * ld + col, v);
#pragma unroll
        for (int i = 0; i < N; ++i) v[i] = cap * hyperbolic_tangent<T>(v[i] * inverse);
        store<N>(x + row * ld + col, v);
    }
};

template <class T, int N>
struct ScaleBody {
    T* y;
    std::int64_t ld;
    float factor;
    __device__ void operator()(std::int64_t row, std::int64_t col) const {
        float v[N];
        load<N>(y + row * ld + col, v);
#pragma unroll
        for (int i = 0; i < N; ++i) v[i] = factor == 0.0F ? 0.0F : v[i] * factor;
        store<N>(y + row * ld + col, v);
    }
};

template <class To, class From, int N>
cudaError_t launch_copy(cudaStream_t stream, const Matrix& target, const Matrix& source) {
    return launch_elements<N>(
        stream, target.rows, target.cols,
        CopyBody<To, From, N>{pointer<To>(target), pointer<const From>(source), target.ld,
                              source.ld});
}

}  // namespace

cudaError_t copy(cudaStream_t stream, const Matrix& target, const Matrix& source) {
    return with_type(target.type, [&](auto to) {
        return with_type(source.type, [&](auto from) {
            using To = decltype(to);
            using From = decltype(from);
            return all_wide({&target, &source})
                       ? launch_copy<To, From, wide>(stream, target, source)
                       : launch_copy<To, From, 1>(stream, target, source);
        });
    });
}

cudaError_t copy_heads(cudaStream_t stream, const CopyHeadsParams& p) {
    return with_type(p.target.type, [&](auto element) {
        using T = decltype(element);
        const auto launch = [&](auto n) {
            return launch_elements<n()>(
                stream, p.target.rows, std::int64_t{p.heads} * p.width,
                CopyHeadsBody<T, n()>{pointer<T>(p.target), pointer<const T>(p.source), p.target.ld,
                                      p.source.ld, p.width, p.target_stride, p.source_stride});
        };
        const bool is_wide = rows_aligned(p.target) && rows_aligned(p.source) &&
                             p.width % wide == 0 && p.target_stride % wide == 0 &&
                             p.source_stride % wide == 0;
        return is_wide ? launch(std::integral_constant<int, wide>{})
                       : launch(std::integral_constant<int, 1>{});
    });
}

cudaError_t sum_heads(cudaStream_t stream, const Matrix& target, const Matrix& source,
                      std::int32_t heads, std::int32_t stride) {
    return with_type(target.type, [&](auto element) {
        using T = decltype(element);
        const auto launch = [&](auto n) {
            return launch_elements<n()>(
                stream, target.rows, target.cols,
                SumHeadsBody<T, n()>{pointer<T>(target), pointer<const T>(source), target.ld,
                                     source.ld, heads, stride});
        };
        const bool is_wide = all_wide({&target}) && rows_aligned(source) && stride % wide == 0;
        return is_wide ? launch(std::integral_constant<int, wide>{})
                       : launch(std::integral_constant<int, 1>{});
    });
}

cudaError_t add_bias(cudaStream_t stream, const Matrix& y, const void* bias) {
    return with_type(y.type, [&](auto element) {
        using T = decltype(element);
        const auto* values = static_cast<const T*>(bias);
        if (all_wide({&y}) && aligned_16(bias)) {
            return launch_elements<wide>(stream, y.rows, y.cols,
                                         AddBiasBody<T, wide>{pointer<T>(y), values, y.ld});
        }
        return launch_elements<1>(stream, y.rows, y.cols,
                                  AddBiasBody<T, 1>{pointer<T>(y), values, y.ld});
    });
}

cudaError_t add(cudaStream_t stream, const Matrix& y, const Matrix& x) {
    return with_type(y.type, [&](auto element) {
        using T = decltype(element);
        if (all_wide({&y, &x})) {
            return launch_elements<wide>(
                stream, y.rows, y.cols,
                AddBody<T, wide>{pointer<T>(y), pointer<const T>(x), y.ld, x.ld});
        }
        return launch_elements<1>(stream, y.rows, y.cols,
                                  AddBody<T, 1>{pointer<T>(y), pointer<const T>(x), y.ld, x.ld});
    });
}

cudaError_t soft_cap(cudaStream_t stream, const Matrix& x, float cap) {
    return with_type(x.type, [&](auto element) {
        using T = decltype(element);
        if (all_wide({&x})) {
            return launch_elements<wide>(
                stream, x.rows, x.cols, SoftCapBody<T, wide>{pointer<T>(x), x.ld, cap, 1.0F / cap});
        }
        return launch_elements<1>(stream, x.rows, x.cols,
                                  SoftCapBody<T, 1>{pointer<T>(x), x.ld, cap, 1.0F / cap});
    });
}

cudaError_t scale(cudaStream_t stream, const Matrix& y, float factor) {
    return with_type(y.type, [&](auto element) {
        using T = decltype(element);
        if (all_wide({&y})) {
            return launch_elements<wide>(stream, y.rows, y.cols,
                                         ScaleBody<T, wide>{pointer<T>(y), y.ld, factor});
        }
        return launch_elements<1>(stream, y.rows, y.cols,
                                  ScaleBody<T, 1>{pointer<T>(y), y.ld, factor});
    });
}

}  // namespace loratrain::kernels
