#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "reference/expert_lora.h"
#include "support/device_data.h"
#include "support/expert_routes.h"

namespace loratrain {

/// Adapters with LoRA on a linear of experts, on the host and in a backend's memory.
class ExpertAdapters {
  public:
    ExpertAdapters(Backend& backend, const RouterCase& of, std::int64_t cols, bool of_b)
        : backend_(backend), of_(of), cols_(cols), of_b_(of_b) {}

    /// Rank `rank` in columns from `column` on, for rows [begin, end); rank 0: not on the linear.
    void add(std::int64_t begin, std::int64_t end, std::int64_t rank, std::int64_t column,
             double scale) {
        reference::ExpertFactors adapter{{}, begin, end, rank, column, scale, of_b_};
        adapter.values = reference::random_matrix(
            of_.experts * (of_b_ ? cols_ : rank), of_b_ ? rank : cols_,
            20 + factors.size() + (of_b_ ? 40 : 0), backend_.compute_dtype());
        const auto& values = adapter.values.values;
        values_.push_back(std::make_unique<DeviceVector<float>>(
            backend_, std::vector<float>(values.begin(), values.end())));
        gradients.push_back(std::make_unique<DeviceVector<float>>(
            backend_, std::vector<float>(values.size(), 0.5F)));
        add_slot(std::move(adapter));
    }

    ExpertLora op(const TensorView& wide, const TensorView& narrow, const ExpertRoutes& routes,
                  bool gathered = false) const {
        return {wide, narrow, slots_, {segments_, {}}, routes, of_b_, gathered};
    }

    void reset_gradients() const {
        for (std::size_t i = 0; i < gradients.size(); ++i) {
            const std::vector<float> start(factors[i].values.values.size(), 0.5F);
            backend_.upload(gradients[i]->data(), start.data(), start.size() * sizeof(float));
        }
    }

    std::vector<reference::ExpertFactors> factors;
    std::vector<std::unique_ptr<DeviceVector<float>>> gradients;

  private:
    void add_slot(reference::ExpertFactors adapter) {
        LoraSlot slot;
        (of_b_ ? slot.b : slot.a) = values_.back()->data();
        (of_b_ ? slot.grad_b : slot.grad_a) = gradients.back()->data();
        slot.rank = static_cast<std::int32_t>(adapter.rank);
        slot.scale = static_cast<float>(adapter.scale);
        slot.column = static_cast<std::int32_t>(adapter.column);
        slots_.push_back(slot);
        segments_.push_back(
            {static_cast<std::int32_t>(segments_.size()), adapter.begin, adapter.end, 0});
        factors.push_back(std::move(adapter));
    }

    Backend& backend_;
    RouterCase of_;
    std::int64_t cols_;
    bool of_b_;
    std::vector<std::unique_ptr<DeviceVector<float>>> values_;
    std::vector<LoraSlot> slots_;
    std::vector<LoraSegment> segments_;
};

}  // namespace loratrain
