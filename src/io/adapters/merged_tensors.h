#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "config/merged_form.h"
#include "io/adapters/adapter_products.h"
#include "io/adapters/merged_rows.h"
#include "io/adapters/surviving_change.h"
#include "io/raw_file.h"
#include "io/weights/base_weights.h"

namespace loratrain {

/// The tensors of a merged folder, and how each is read, merged and written.

/// A tensor to be written. It owns nothing that it points to.
struct Piece {
    std::string name;  ///< in base.h5
    std::vector<std::int64_t> shape;
    DType dtype = DType::f32;
    const Product* product = nullptr;
    std::optional<float> constant{};  ///< a scalar that base.h5 has not
    /// Of all experts of a layer: their matrices [out, in], which base.h5 has in place of it.
    std::vector<Piece> parts{};
    /// Gates and ups take turns in its last dimension, the outputs (packed_experts.h).
    bool in_turn = false;
    const RowForm* form = nullptr;  ///< null: numbers of `dtype`, and no sums
    ChangeSums* sums = nullptr;     ///< of a piece with a form and a product
};

/// All of them, for a base and the products of an adapter, both of which outlive it.
class MergedTensors {
  public:
    MergedTensors(const WeightSource& base, const AdapterProducts& products,
                  std::optional<MergedForm> form);
    MergedTensors(const MergedTensors&) = delete;
    MergedTensors& operator=(const MergedTensors&) = delete;

    const std::vector<Piece>& pieces() const { return pieces_; }
    /// What write() writes of a piece, in this order.
    std::vector<FileTensor> in_files(const Piece& piece) const;
    void write(const Piece& piece, OutputFile& file) const;
    /// Of the pieces that have been written; empty without a form.
    const ChangesOfModules& changes() const { return changes_; }

  private:
    void add_pieces(const AdapterProducts& products);
    void choose_forms(MergedForm form);
    void give_form(Piece& piece, const RowForm& form);

    const WeightSource& base_;
    std::vector<Piece> pieces_;
    std::vector<std::unique_ptr<const RowForm>> forms_;
    ChangesOfModules changes_;
};

}  // namespace loratrain
