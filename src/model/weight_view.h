#pragma once

#include "backend/backend.h"
#include "base/weight_format.h"

namespace loratrain {

/// Where the numbers lie that a GEMM multiplies with.
enum class WeightResidence : std::uint8_t {
    resident,  ///< in the stored matrix itself
    staged,    ///< in scratch, into which its codes are widened at each use
};

/// Rows of a frozen matrix [rows, cols] as it is stored (base/weight_format.h), not owned. Stored
/// rows have `ld` weights: behind `cols` of them lie LoRA pads.
struct WeightView {
    void* codes = nullptr;
    void* scales = nullptr;  ///< null where the format has none
    WeightFormat format = WeightFormat::f32;
    SourceType source = SourceType::f32;  ///< of quantised formats
    WeightResidence residence = WeightResidence::resident;
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t ld = 0;

    /// Rows [first, first + count).
    WeightView row_range(std::int64_t first, std::int64_t count) const;
    /// The codes as a matrix; of a format in which they are the numbers.
    TensorView dense() const;
    /// The codes with their scales; of a quantised format.
    QuantizedMatrix quantized() const;
};

/// The first `shape` of a matrix `stored` at `storage`.
WeightView weight_view(void* storage, WeightFormat format, WeightResidence residence,
                       const MatrixShape& stored, const MatrixShape& shape,
                       SourceType source = SourceType::f32);

/// What GEMMs read of `weights`, in compute type: a matrix of `shape` whose first rows and columns
/// are the weights; the rest is room for LoRA pads. Resident weights are read where they are
/// stored, staged ones are widened into `scratch`, whose former contents are lost. Nothing else
/// turns the codes of matrices that are multiplied with into numbers.
TensorView gemm_matrix(const WeightView& weights, const MatrixShape& shape, void* scratch,
                       Backend& backend);

}  // namespace loratrain
