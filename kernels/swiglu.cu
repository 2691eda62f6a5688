#include "activations.h"

#include "gate.cuh"
#include "quantize.cuh"

namespace loratrain::kernels {

namespace {

template <class T, class Function, int N>
struct ForwardBody {
    const T* gate;
    const T* up;
    T* h;
    std::int64_t gate_ld, up_ld, h_ld;
    __device__ void operator()(std::int64_t row, std::int64_t col) const {
        float g[N];
        float u[N];
        load<N>(gate + row * gate_ld + col, g);
        load<N>(up + row * up_ld + col, u);
        product<T, Function, N>(g, u);
        store<N>(h + row * h_ld + col, g);
    }
};

template <class T, class Function, int N>
struct BackwardBody {
    const T* gate;
    const T* up;
    const T* dh;
    T* dgate;
    T* dup;
    T* h;
    std::int64_t gate_ld, up_ld, dh_ld, dgate_ld, dup_ld, h_ld;
    __device__ void operator()(std::int64_t row, std::int64_t col) const {
        float g[N];
        float u[N];
        float d[N];
        load<N>(gate + row * gate_ld + col, g);
        load<N>(up + row * up_ld + col, u);
        load<N>(dh + row * dh_ld + col, d);
        gradients<T, Function, N>(g, u, d);
        store<N>(dgate + row * dgate_ld + col, g);
        store<N>(dup + row * dup_ld + col, d);
        if (h != nullptr) store<N>(h + row * h_ld + col, u);
    }
};

template <class T>
__device__ __forceinline__ T* row_of(const Matrix& x, std::int64_t row) {
    return static_cast<T*>(x.data) + row * x.ld;
}

/// A row per block, held for its codes; of silu.
template <class T, int threads, int passes>
__global__ void __launch_bounds__(threads)
    forward_with_codes_kernel(Matrix gate, Matrix up, Matrix h, Fp8Codes codes) {
    __shared__ std::uint32_t scratch[threads / 32];
    using Row = HeldRow<T, threads, passes>;
    const std::int64_t row = blockIdx.x;
    Row held;
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) {
        const std::int64_t col = Row::column(pass);
        if (col >= h.cols) break;
        float g[wide];
        float u[wide];
        load<wide>(row_of<const T>(gate, row) + col, g);
        load<wide>(row_of<const T>(up, row) + col, u);
        product<T, Silu, wide>(g, u);
        held.take(pass, g);
        held.give(pass, row_of<T>(h, row) + col);
    }
    held.write_codes(h.cols, nullptr, codes, row, scratch);
}

/// A row per block, its dgate and its dup held for their codes; of silu.
template <class T, int threads, int passes>
__global__ void __launch_bounds__(threads, 1024 / threads)
    backward_with_codes_kernel(SwiGluBackwardParams p) {
    __shared__ std::uint32_t scratch[threads / 32];
    using Row = HeldRow<T, threads, passes>;
    const std::int64_t row = blockIdx.x;
    const std::int64_t cols = p.gate.cols;
    Row dgate;
    Row dup;
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) {
        const std::int64_t col = Row::column(pass);
        if (col >= cols) break;
        float g[wide];
        float u[wide];
        float d[wide];
        load<wide>(row_of<const T>(p.gate, row) + col, g);
        load<wide>(row_of<const T>(p.up, row) + col, u);
        load<wide>(row_of<const T>(p.dh, row) + col, d);
        gradients<T, Silu, wide>(g, u, d);
        dgate.take(pass, g);
        dup.take(pass, d);
        dgate.give(pass, row_of<T>(p.dgate, row) + col);
        dup.give(pass, row_of<T>(p.dup, row) + col);
        if (p.h.data != nullptr) store<wide>(row_of<T>(p.h, row) + col, u);
    }
    const float* of_up = p.column_scales == nullptr ? nullptr : p.column_scales + cols;
    const std::uint32_t bits = max(dgate.largest(cols, p.column_scales), dup.largest(cols, of_up));
    const RowCoding coding = row_coding(block_max(bits, scratch));
    std::uint8_t* codes = p.codes.codes + row * p.codes.ld;
    dgate.store_row(cols, p.column_scales, codes, coding.inverse);
    dup.store_row(cols, of_up, codes + cols, coding.inverse);
    if (threadIdx.x == 0) p.codes.scales[row] = coding.scale;
}

/// False where no kernel makes codes beside h.
bool launch_with_codes(cudaStream_t stream, const Matrix& gate, const Matrix& up, const Matrix& h,
                       const Fp8Codes& codes) {
    constexpr std::int64_t pass = block_threads * wide;
    const auto rows = static_cast<unsigned>(h.rows);
    if (h.type != Element::bf16 || rows == 0 || !all_wide({&gate, &up, &h}) ||
        !takes_wide_codes(codes, nullptr)) {
        return false;
    }
    if (h.cols <= 4 * pass) {
        forward_with_codes_kernel<Bf16, block_threads, 4>
            <<<rows, block_threads, 0, stream>>>(gate, up, h, codes);
    } else if (h.cols <= 8 * pass) {
        forward_with_codes_kernel<Bf16, 2 * block_threads, 4>
            <<<rows, 2 * block_threads, 0, stream>>>(gate, up, h, codes);
    } else {
        return false;
    }
    return true;
}

/// False where no kernel makes codes beside the gradients.
bool launch_with_codes(cudaStream_t stream, const SwiGluBackwardParams& p) {
    constexpr std::int64_t pass = block_threads * wide;
    const auto rows = static_cast<unsigned>(p.gate.rows);
    const Matrix& h = p.h.data == nullptr ? p.dh : p.h;
    if (p.gate.type != Element::bf16 || rows == 0 ||
        !all_wide({&p.gate, &p.up, &p.dh, &p.dgate, &p.dup, &h}) ||
        !takes_wide_codes(p.codes, p.column_scales)) {
        return false;
    }
    if (p.gate.cols <= 4 * pass) {
        backward_with_codes_kernel<Bf16, block_threads, 4><<<rows, block_threads, 0, stream>>>(p);
    } else if (p.gate.cols <= 8 * pass) {
        backward_with_codes_kernel<Bf16, 2 * block_threads, 4>
            <<<rows, 2 * block_threads, 0, stream>>>(p);
    } else {
        return false;
    }
    return true;
}

template <class T, class Function, int N>
cudaError_t launch_backward(cudaStream_t stream, const SwiGluBackwardParams& p) {
    return launch_elements<N>(
        stream, p.gate.rows, p.gate.cols,
        BackwardBody<T, Function, N>{pointer<const T>(p.gate), pointer<const T>(p.up),
                                     pointer<const T>(p.dh), pointer<T>(p.dgate), pointer<T>(p.dup),
                                     pointer<T>(p.h), p.gate.ld, p.up.ld, p.dh.ld, p.dgate.ld,
                                     p.dup.ld, p.h.ld});
}

template <class T, class Function, int N>
cudaError_t launch_forward(cudaStream_t stream, const Matrix& gate, const Matrix& up,
                           const Matrix& h) {
    return launch_elements<N>(
        stream, gate.rows, gate.cols,
        ForwardBody<T, Function, N>{pointer<const T>(gate), pointer<const T>(up), pointer<T>(h),
                                    gate.ld, up.ld, h.ld});
}

}  // namespace

cudaError_t swiglu(cudaStream_t stream, const Matrix& gate, const Matrix& up, const Matrix& h,
                   const Fp8Codes& codes, Gate function) {
    const bool with_codes = codes.codes != nullptr;
    if (with_codes && function == Gate::silu && launch_with_codes(stream, gate, up, h, codes)) {
        return cudaGetLastError();
    }
    const cudaError_t error = with_type(h.type, [&](auto element) {
        return with_any_function(function, [&](auto of) {
            using T = decltype(element);
            using Function = decltype(of);
            return all_wide({&gate, &up, &h})
                       ? launch_forward<T, Function, wide>(stream, gate, up, h)
                       : launch_forward<T, Function, 1>(stream, gate, up, h);
        });
    });
    return error != cudaSuccess || !with_codes ? error : quantize_rows(stream, h, nullptr, codes);
}

cudaError_t swiglu_backward(cudaStream_t stream, const SwiGluBackwardParams& p) {
    const bool with_codes = p.codes.codes != nullptr;
    if (with_codes && p.function == Gate::silu && launch_with_codes(stream, p)) {
        return cudaGetLastError();
    }
    const Matrix& h = p.h.data == nullptr ? p.dh : p.h;
    const cudaError_t error = with_type(p.gate.type, [&](auto element) {
        return with_any_function(p.function, [&](auto of) {
            using T = decltype(element);
            using Function = decltype(of);
            return all_wide({&p.gate, &p.up, &p.dh, &p.dgate, &p.dup, &h})
                       ? launch_backward<T, Function, wide>(stream, p)
                       : launch_backward<T, Function, 1>(stream, p);
        });
    });
    if (error != cudaSuccess || !with_codes) return error;
    Matrix both = p.dgate;
    both.cols *= 2;
    return quantize_rows(stream, both, p.column_scales, p.codes);
}

}  // namespace loratrain::kernels
