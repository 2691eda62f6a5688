#include "reference/expert_lora.h"

#include "support/backend_case.h"
#include "support/expert_adapters.h"

namespace loratrain {
namespace {

using reference::ExpertFactors;
using reference::HostMatrix;

constexpr std::int64_t columns_of_s = 96;

/// Adapters of several ranks and one that is not on the linear, with rows between them that nobody
/// has and a segment of one row.
class ExpertLoraTest : public BackendTest {
  protected:
    void make(const RouterCase& of, std::int64_t cols, bool of_b) {
        const HostMatrix logits = logits_of(of);
        const DeviceMatrix device(backend(), logits, 0, DType::f32);
        routes_ = std::make_unique<DeviceRoutes>(backend(), of);
        backend().route({device.view(), routes_->routes, of.normalised});
        expected_ = std::make_unique<reference::Routes>(logits, of.per_token, of.normalised);
        adapters_ = std::make_unique<ExpertAdapters>(backend(), of, cols, of_b);
        const std::int64_t t = of.tokens;
        adapters_->add(0, t / 3, 3, 0, 1.5);
        adapters_->add(t / 3, t / 3 + t / 7, 0, 3, 1.0);
        adapters_->add(t / 3 + t / 7, t / 2, 68, 24, 0.125);
        adapters_->add(t - t / 4 - 1, t - 1, 9, 5, 0.25);
        adapters_->add(t - 1, t, 4, 16, 2.0);
    }

    /// Columns that tensor cores take, and others.
    static std::vector<std::int64_t> columns_of(const RouterCase& of) {
        if (of.experts > 100) return {10, 16};
        return {71, 136};
    }

    template <class Check>
    void for_each_case(const Check& check) {
        for (const RouterCase& of : router_cases) {
            for (const std::int64_t cols : columns_of(of)) {
                for (const bool of_b : {false, true}) {
                    SCOPED_TRACE(testing::Message() << of.experts << " experts, " << cols
                                                    << " columns, of_b " << of_b);
                    make(of, cols, of_b);
                    check(of, cols);
                }
            }
        }
    }

    /// check(wide, gathered, its rows in the order of experts), of either way to have wide rows.
    template <class Check>
    void for_each_wide(const RouterCase& of, std::int64_t cols, const Check& check) {
        const HostMatrix wide = random(of.tokens * of.per_token, cols, 6);
        check(DeviceMatrix(backend(), wide, 8), false, wide);
        const HostMatrix x = random(of.tokens, cols, 8);
        check(DeviceMatrix(backend(), x, 8), true, gathered(*expected_, x));
    }

    ExpertLora op(const DeviceMatrix& wide, const DeviceMatrix& narrow,
                  bool is_gathered = false) const {
        return adapters_->op(wide.view(), narrow.view(), routes_->routes, is_gathered);
    }

    ExpertLoras one(const ExpertLora& only) {
        only_ = only;
        return {&only_, 1};
    }

    /// Gradients that were 0.5 before.
    void expect_gradients(const ExpertAdapters& of, const HostMatrix& narrow,
                          const HostMatrix& wide) const {
        std::vector<ExpertFactors> expected = of.factors;
        for (ExpertFactors& factors : expected) {
            std::fill(factors.values.values.begin(), factors.values.values.end(), 0.5);
        }
        reference::add_expert_grads(*expected_, expected, narrow, wide);
        for (std::size_t a = 0; a < expected.size(); ++a) {
            const std::vector<float> found = of.gradients[a]->download();
            const auto& want = expected[a].values.values;
            ASSERT_EQ(found.size(), want.size());
            for (std::size_t i = 0; i < want.size(); ++i) {
                ASSERT_NEAR(found[i], want[i], 1e-5 * (1.0 + std::abs(want[i]))) << a;
            }
        }
    }

    std::unique_ptr<DeviceRoutes> routes_;
    std::unique_ptr<reference::Routes> expected_;
    std::unique_ptr<ExpertAdapters> adapters_;
    ExpertLora only_;
};

TEST_P(ExpertLoraTest, NarrowsAsLoops) {
    for_each_case([&](const RouterCase& of, std::int64_t cols) {
        for_each_wide(
            of, cols, [&](const DeviceMatrix& device, bool is_gathered, const HostMatrix& wide) {
                const DeviceMatrix narrow(backend(), HostMatrix(wide.rows, columns_of_s, 7.0), 8);
                backend().narrow_experts(one(op(device, narrow, is_gathered)));
                const HostMatrix expected =
                    reference::narrow_experts(*expected_, adapters_->factors, wide, columns_of_s);
                expect_close(narrow, expected, "narrow_experts");
                const HostMatrix first = narrow.download();
                backend().narrow_experts(one(op(device, narrow, is_gathered)));
                EXPECT_EQ(narrow.download().values, first.values) << "two runs";
            });
    });
}

TEST_P(ExpertLoraTest, TwoLinearsShareNarrow) {
    for (const bool of_b : {false, true}) {
        const RouterCase of{300, 6, 2, true};
        make(of, 136, of_b);
        // Beside the columns of adapters_, with the same rows.
        ExpertAdapters more(backend(), of, 136, of_b);
        more.add(0, 100, 2, 3, 0.5);
        more.add(100, 142, 0, 92, 1.0);
        more.add(142, 150, 2, 92, 1.0);
        more.add(224, 299, 2, 14, 2.0);
        more.add(299, 300, 4, 20, 1.0);
        const HostMatrix x = random(of.tokens, 136, 6);
        const DeviceMatrix device(backend(), x, 8);
        const DeviceMatrix narrow(backend(), HostMatrix(of.tokens * 2, columns_of_s, 7.0), 8);
        const ExpertLora both[] = {op(device, narrow, true),
                                   more.op(device.view(), narrow.view(), routes_->routes, true)};
        backend().narrow_experts(both);
        std::vector<ExpertFactors> all = adapters_->factors;
        all.insert(all.end(), more.factors.begin(), more.factors.end());
        const HostMatrix wide = gathered(*expected_, x);
        expect_close(narrow, reference::narrow_experts(*expected_, all, wide, columns_of_s),
                     "narrow_experts");
        const HostMatrix numbers = random(of.tokens * 2, columns_of_s, 7);
        const DeviceMatrix device_numbers(backend(), numbers, 8);
        const ExpertLora grads[] = {
            op(device, device_numbers, true),
            more.op(device.view(), device_numbers.view(), routes_->routes, true)};
        backend().add_expert_grads(grads);
        expect_gradients(*adapters_, numbers, wide);
        expect_gradients(more, numbers, wide);
    }
}

TEST_P(ExpertLoraTest, WidensAsLoops) {
    for_each_case([&](const RouterCase& of, std::int64_t cols) {
        const std::int64_t rows = of.tokens * of.per_token;
        const HostMatrix wide = random(rows, cols, 6);
        const HostMatrix narrow = random(rows, columns_of_s, 7);
        const DeviceMatrix device_wide(backend(), wide, 8);
        const DeviceMatrix device_narrow(backend(), narrow, 8);
        backend().widen_experts(op(device_wide, device_narrow));
        const HostMatrix expected =
            reference::widen_experts(*expected_, adapters_->factors, narrow, wide);
        expect_close(device_wide, expected, "widen_experts");
    });
}

TEST_P(ExpertLoraTest, AddsGradientsAsLoopsAndRepeatsToTheBit) {
    for_each_case([&](const RouterCase& of, std::int64_t cols) {
        for_each_wide(of, cols,
                      [&](const DeviceMatrix& device, bool is_gathered, const HostMatrix& wide) {
                          const HostMatrix narrow = random(wide.rows, columns_of_s, 7);
                          const DeviceMatrix device_narrow(backend(), narrow, 8);
                          adapters_->reset_gradients();
                          backend().add_expert_grads(one(op(device, device_narrow, is_gathered)));
                          expect_gradients(*adapters_, narrow, wide);
                          std::vector<std::vector<float>> first;
                          for (const auto& gradient : adapters_->gradients)
                              first.push_back(gradient->download());
                          adapters_->reset_gradients();
                          backend().add_expert_grads(one(op(device, device_narrow, is_gathered)));
                          for (std::size_t a = 0; a < first.size(); ++a) {
                              EXPECT_EQ(adapters_->gradients[a]->download(), first[a]);
                          }
                      });
    });
}

TEST_P(ExpertLoraTest, RefusesWhatDoesNotFit) {
    make({4, 4, 2, true}, 6, false);
    const DeviceMatrix wide(backend(), HostMatrix(8, 6));
    const DeviceMatrix narrow(backend(), HostMatrix(7, columns_of_s));
    EXPECT_THROW(backend().narrow_experts(one(op(wide, narrow))), std::exception);
    const DeviceMatrix slim(backend(), HostMatrix(8, 10));
    EXPECT_THROW(backend().widen_experts(op(wide, slim)), std::exception);
    const DeviceMatrix whole(backend(), HostMatrix(8, columns_of_s));
    EXPECT_THROW(backend().narrow_experts(one(op(wide, whole, true))), std::exception);
}

LORATRAIN_FOR_EACH_BACKEND(ExpertLoraTest);
INSTANTIATE_TEST_SUITE_P(SharedLimits, ExpertLoraTest, testing::ValuesIn(shared_limit_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace loratrain
