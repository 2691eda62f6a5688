#pragma once

#include "backend/backend.h"
#include "base/weight_format.h"

namespace loratrain {

/// Views of stored frozen matrices, dense or in codes.

/// Where a GEMM reads the numbers of a matrix.
enum class WeightResidence : std::uint8_t {
    resident,  ///< in the stored matrix itself
    staged,    ///< in scratch, where the codes are widened at each use
};

/// Non-owning view of rows of a stored frozen matrix [rows, cols] (base/weight_format.h). A stored
/// row has `ld` weights: LoRA pads follow the first `cols`.
struct WeightView {
    void* codes = nullptr;
    void* scales = nullptr;  ///< null where the format has none
    WeightFormat format = WeightFormat::f32;
    SourceType source = SourceType::f32;  ///< quantised formats only
    WeightResidence residence = WeightResidence::resident;
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t ld = 0;

    /// Rows [first, first + count).
    WeightView row_range(std::int64_t first, std::int64_t count) const;
    /// The codes as a matrix. Only for formats whose codes are the numbers.
    TensorView dense() const;
    /// The codes with their scales. Only for quantised formats.
    QuantizedMatrix quantized() const;
};

/// View of the first rows and columns, `shape`, of a matrix `stored` that begins at `storage`.
WeightView weight_view(void* storage, WeightFormat format, WeightResidence residence,
                       const MatrixShape& stored, const MatrixShape& shape,
                       SourceType source = SourceType::f32);

/// The matrix that GEMMs read for `weights`, in compute type. It has `shape`; its first rows and
/// columns are the weights, the rest is room for LoRA pads. Resident weights are read in place.
/// Staged weights are widened into `scratch`, whose former contents are lost. No other function
/// turns the codes of such matrices into numbers.
TensorView gemm_matrix(const WeightView& weights, const MatrixShape& shape, void* scratch,
                       Backend& backend);

}  // namespace loratrain
