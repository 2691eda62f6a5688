#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "io/adapters/adapter_config.h"
#include "io/adapters/adapter_file.h"
#include "io/capped_problems.h"
#include "io/weights/base_weights.h"

namespace loratrain {

/// What an adapter adds to each weight of its base: scaling B A.

/// scaling B A of one module.
struct Product {
    std::int64_t rank = 0;
    std::vector<float> a;  ///< [rank, in]
    std::vector<float> b;  ///< [out, rank], times scaling
};

/// Adds rows [first, first + rows.rows) of the product; `rows` are fp32.
void add_product(const Product& product, std::int64_t first, const TensorView& rows);

/// The products of a PEFT directory, read as a whole. Throws InputError for all that cannot be
/// merged (merge_adapter.h).
class AdapterProducts {
  public:
    AdapterProducts(const std::string& dir, const WeightSource& base);

    /// Null where the weight has none.
    const Product* of(const std::string& weight) const;
    std::int64_t count() const { return std::ssize(products_); }

  private:
    Problems check_config() const;
    void read(const AdapterJob& job);
    void read(const AdapterJob& job, std::int64_t layer, Linear linear, std::int32_t expert);
    bool fits(const std::string& name, const std::vector<std::int64_t>& wanted);
    std::vector<float> read_finite(const std::string& name);
    void check_own_weights();
    void check_other_tensors();
    std::string where(const std::string& name) const { return cat(file_.path(), ":", name); }
    void add(const std::string& name, const std::string& what, const std::string& hint = "") {
        faults_.add(where(name), what, hint);
    }

    AdapterConfig config_;
    SafetensorsFile file_;
    const WeightSource& base_;
    const ModelSpec& model_;
    CappedProblems faults_;
    std::set<std::string> known_;
    std::map<std::string, Product> products_;
};

}  // namespace loratrain
