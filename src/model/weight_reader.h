#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "io/weights/base_weights.h"
#include "model/weight_view.h"
#include "plan/tensor_shard.h"

namespace loratrain {

/// Reads parts of frozen tensors into the backend's memory, or the host's, block by block of at
/// most 16 MiB, or of a row. Rows are read whole, of which the part's columns are kept.

/// The part of a tensor that a matrix gets.
struct TensorPart {
    MatrixShape whole;
    Slices rows;
    std::int64_t first_col = 0;
};

class WeightReader {
  public:
    /// The arguments outlive it.
    WeightReader(const WeightSource& source, Backend& backend)
        : source_(source), backend_(backend) {}

    /// Into the backend's memory, converted to the target's type.
    void load_rows(const std::string& name, const TensorPart& part, const TensorView& target);
    /// Likewise of a linear, in the target's format: its codes and scales, or load_rows().
    void load_linear(const std::string& name, const TensorPart& part, const WeightView& target);
    /// Whole rows of a linear straight into host memory, as the file has them.
    void read_linear(const std::string& name, const TensorPart& part, const WeightView& target);
    /// Gives back the memory that loading needed; what is read after it takes it anew.
    void release();

  private:
    /// Bytes of a row of codes or scales: of the whole, before those that are kept, and these.
    struct CodeCut {
        std::size_t whole = 0;
        std::size_t first = 0;
        std::size_t kept = 0;
    };
    /// `rows` are moved together in place.
    void upload_cut(void* target, char* rows, std::int64_t count, const CodeCut& cut);

    /// At least so many bytes of host_; what is read next takes their place.
    char* host_block(std::size_t bytes);

    const WeightSource& source_;
    Backend& backend_;
    std::vector<char> host_;  ///< kept: new pages for each tensor take as long as reading them
    Buffer block_;
};

}  // namespace loratrain
