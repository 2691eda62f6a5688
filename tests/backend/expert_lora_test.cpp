#include "reference/expert_lora.h"

#include "support/backend_case.h"
#include "support/expert_routes.h"

namespace loratrain {
namespace {

using reference::ExpertFactors;
using reference::HostMatrix;

constexpr std::int64_t columns_of_s = 24;

/// Adapters of rank 3 and 9 and one that is not on the linear, with rows between them that nobody
/// has and a segment of one row.
class ExpertLoraTest : public BackendTest {
  protected:
    void make(const RouterCase& of, std::int64_t cols, bool of_b) {
        const HostMatrix logits = logits_of(of, dtype());
        const DeviceMatrix device(backend(), logits);
        routes_ = std::make_unique<DeviceRoutes>(backend(), of);
        backend().route({device.view(), routes_->routes, of.normalised});
        expected_ = std::make_unique<reference::Routes>(logits, of.per_token, of.normalised);
        adapters_.clear();
        segments_.clear();
        const std::int64_t t = of.tokens;
        add({{}, 0, t / 3, 3, 0, 1.5}, of, cols, of_b);
        add({{}, t / 3, t / 3 + t / 7, 0, 3, 1.0}, of, cols, of_b);
        add({{}, t - t / 4 - 1, t - 1, 9, 5, 0.25}, of, cols, of_b);
        add({{}, t - 1, t, 4, 16, 2.0}, of, cols, of_b);
        to_device();
    }

    void add(ExpertFactors adapter, const RouterCase& of, std::int64_t cols, bool of_b) {
        adapter.of_b = of_b;
        const std::int64_t rank = adapter.rank;
        adapter.values =
            reference::random_matrix(of.experts * (of_b ? cols : rank), of_b ? rank : cols,
                                     20 + adapters_.size(), DType::f32);
        segments_.push_back(
            {static_cast<std::int32_t>(adapters_.size()), adapter.begin, adapter.end, 0});
        adapters_.push_back(std::move(adapter));
    }

    void to_device() {
        values_.clear();
        gradients_.clear();
        slots_.clear();
        for (const ExpertFactors& adapter : adapters_) {
            const auto& values = adapter.values.values;
            values_.emplace_back(backend(), std::vector<float>(values.begin(), values.end()));
            gradients_.emplace_back(backend(), std::vector<float>(values.size(), 0.5F));
            LoraSlot slot;
            (adapter.of_b ? slot.b : slot.a) = values_.back().data();
            (adapter.of_b ? slot.grad_b : slot.grad_a) = gradients_.back().data();
            slot.rank = static_cast<std::int32_t>(adapter.rank);
            slot.scale = static_cast<float>(adapter.scale);
            slot.column = static_cast<std::int32_t>(adapter.column);
            slots_.push_back(slot);
        }
    }

    ExpertLora op(const DeviceMatrix& wide, const DeviceMatrix& narrow) const {
        return {wide.view(),     narrow.view(),   slots_,
                {segments_, {}}, routes_->routes, adapters_.front().of_b};
    }

    template <class Check>
    void for_each_case(const Check& check) {
        for (const RouterCase& of : router_cases) {
            for (const bool of_b : {false, true}) {
                const std::int64_t cols = of.experts > 100 ? 10 : 71;
                SCOPED_TRACE(testing::Message() << of.experts << " experts, of_b " << of_b);
                make(of, cols, of_b);
                check(of.tokens * of.per_token, cols);
            }
        }
    }

    std::unique_ptr<DeviceRoutes> routes_;
    std::unique_ptr<reference::Routes> expected_;
    std::vector<ExpertFactors> adapters_;
    std::vector<LoraSegment> segments_;
    std::vector<DeviceVector<float>> values_;
    std::vector<DeviceVector<float>> gradients_;
    std::vector<LoraSlot> slots_;
};

TEST_P(ExpertLoraTest, NarrowsAsLoops) {
    for_each_case([&](std::int64_t rows, std::int64_t cols) {
        const HostMatrix wide = random(rows, cols, 6);
        const DeviceMatrix device_wide(backend(), wide, 8);
        const DeviceMatrix narrow(backend(), HostMatrix(rows, columns_of_s, 7.0), 8);
        backend().narrow_experts(op(device_wide, narrow));
        expect_close(narrow, reference::narrow_experts(*expected_, adapters_, wide, columns_of_s),
                     "narrow_experts");
    });
}

TEST_P(ExpertLoraTest, WidensAsLoops) {
    for_each_case([&](std::int64_t rows, std::int64_t cols) {
        const HostMatrix wide = random(rows, cols, 6);
        const HostMatrix narrow = random(rows, columns_of_s, 7);
        const DeviceMatrix device_wide(backend(), wide, 8);
        const DeviceMatrix device_narrow(backend(), narrow, 8);
        backend().widen_experts(op(device_wide, device_narrow));
        expect_close(device_wide, reference::widen_experts(*expected_, adapters_, narrow, wide),
                     "widen_experts");
    });
}

TEST_P(ExpertLoraTest, AddsGradientsAsLoopsAndRepeatsToTheBit) {
    for_each_case([&](std::int64_t rows, std::int64_t cols) {
        const HostMatrix wide = random(rows, cols, 6);
        const HostMatrix narrow = random(rows, columns_of_s, 7);
        const DeviceMatrix device_wide(backend(), wide, 8);
        const DeviceMatrix device_narrow(backend(), narrow, 8);
        backend().add_expert_grads(op(device_wide, device_narrow));
        std::vector<ExpertFactors> gradients = adapters_;
        for (ExpertFactors& of : gradients) {
            std::fill(of.values.values.begin(), of.values.values.end(), 0.5);
        }
        reference::add_expert_grads(*expected_, gradients, narrow, wide);
        std::vector<std::vector<float>> first;
        for (std::size_t a = 0; a < gradients.size(); ++a) {
            first.push_back(gradients_[a].download());
            const auto& want = gradients[a].values.values;
            ASSERT_EQ(first.back().size(), want.size());
            for (std::size_t i = 0; i < want.size(); ++i) {
                ASSERT_NEAR(first.back()[i], want[i], 1e-5 * (1.0 + std::abs(want[i]))) << a;
            }
        }
        to_device();
        backend().add_expert_grads(op(device_wide, device_narrow));
        for (std::size_t a = 0; a < gradients.size(); ++a) {
            EXPECT_EQ(gradients_[a].download(), first[a]);
        }
    });
}

TEST_P(ExpertLoraTest, RefusesWhatDoesNotFit) {
    make({4, 4, 2, true}, 6, false);
    const DeviceMatrix wide(backend(), HostMatrix(8, 6));
    const DeviceMatrix narrow(backend(), HostMatrix(7, columns_of_s));
    EXPECT_THROW(backend().narrow_experts(op(wide, narrow)), std::exception);
    const DeviceMatrix slim(backend(), HostMatrix(8, 10));
    EXPECT_THROW(backend().widen_experts(op(wide, slim)), std::exception);
}

LORATRAIN_FOR_EACH_BACKEND(ExpertLoraTest);

}  // namespace
}  // namespace loratrain
