#include "elementwise.h"
#include "launch.cuh"

namespace loratrain::kernels {

namespace {

template <class To, class From, int N>
struct GatherBody {
    To* y;
    const From* table;
    const std::int32_t* ids;
    float scale;
    std::int64_t y_ld, table_ld;
    __device__ void operator()(std::int64_t row, std::int64_t col) const {
        float v[N] = {};
        if (const std::int32_t id = ids[row]; id >= 0) load<N>(table + id * table_ld + col, v);
#pragma unroll
        for (int i = 0; i < N; ++i) v[i] *= scale;
        store<N>(y + row * y_ld + col, v);
    }
};

template <class T, int N>
struct ScatterBody {
    T* y;
    const T* x;
    const std::int32_t* ids;
    std::int64_t y_ld, x_ld;
    __device__ void operator()(std::int64_t row, std::int64_t col) const {
        float v[N];
        load<N>(x + row * x_ld + col, v);
        store<N>(y + ids[row] * y_ld + col, v);
    }
};

template <class To, class From, int N>
cudaError_t launch_gather(cudaStream_t stream, const Matrix& y, const Matrix& table,
                          const std::int32_t* ids, float scale) {
    return launch_elements<N>(stream, y.rows, y.cols,
                              GatherBody<To, From, N>{pointer<To>(y), pointer<const From>(table),
                                                      ids, scale, y.ld, table.ld});
}

template <class T, int N>
cudaError_t launch_scatter(cudaStream_t stream, const Matrix& y, const Matrix& x,
                           const std::int32_t* ids) {
    return launch_elements<N>(
        stream, x.rows, x.cols,
        ScatterBody<T, N>{pointer<T>(y), pointer<const T>(x), ids, y.ld, x.ld});
}

}  // namespace

cudaError_t gather_rows(cudaStream_t stream, const Matrix& y, const Matrix& table,
                        const std::int32_t* ids, float scale) {
    return with_type(y.type, [&](auto to) {
        return with_type(table.type, [&](auto from) {
            using To = decltype(to);
            using From = decltype(from);
            return all_wide({&y, &table})
                       ? launch_gather<To, From, wide>(stream, y, table, ids, scale)
                       : launch_gather<To, From, 1>(stream, y, table, ids, scale);
        });
    });
}

cudaError_t scatter_rows(cudaStream_t stream, const Matrix& y, const Matrix& x,
                         const std::int32_t* ids) {
    if (y.rows == 0 || y.cols == 0) return cudaSuccess;
    const std::size_t size = y.type == Element::f32 ? 4 : 2;
    const cudaError_t status = cudaMemset2DAsync(y.data, static_cast<std::size_t>(y.ld) * size, 0,
                                                 static_cast<std::size_t>(y.cols) * size,
                                                 static_cast<std::size_t>(y.rows), stream);
    if (status != cudaSuccess) return status;
    return with_type(y.type, [&](auto element) {
        using T = decltype(element);
        return all_wide({&y, &x}) ? launch_scatter<T, wide>(stream, y, x, ids)
                                  : launch_scatter<T, 1>(stream, y, x, ids);
    });
}

}  // namespace loratrain::kernels
