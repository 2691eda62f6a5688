#include "grouped_run.cuh"

namespace loratrain::kernels {

cudaError_t expert_code_product_hopper(cudaStream_t stream, const ExpertProduct& p) {
    using namespace grouped;
    HopperProduct product{};
    product.p = p;
    const Fp8Codes& weights = p.codes.weights;
    cudaError_t error =
        make_map(product.weights,
                 {weights.codes, p.experts, weights.rows / p.experts, weights.cols, weights.ld, 1},
                 gate_columns);
    if (const Fp8Codes& rows = p.codes.rows; error == cudaSuccess && p.a_rows == nullptr) {
        error = make_map(product.rows, {rows.codes, 1, p.rows, rows.cols, rows.ld, 1}, staged_rows);
    }
    if (error == cudaSuccess) error = make_added_maps(product);
    if (error != cudaSuccess) return error;
    return with_finish(p, [&](auto finish) {
        using Finish = decltype(finish);
        if constexpr (Finish::finish == ExpertFinish::store && Finish::biased) {
            return launch<Finish, false, false, true>(stream, product);
        } else if constexpr (Finish::finish == ExpertFinish::store) {
            return p.backward ? launch<Finish, false, true, true>(stream, product)
                              : launch<Finish, false, false, true>(stream, product);
        } else {
            constexpr bool backward = Finish::finish == ExpertFinish::gate_backward;
            return launch<Finish, !backward, backward, true>(stream, product);
        }
    });
}

}  // namespace loratrain::kernels
