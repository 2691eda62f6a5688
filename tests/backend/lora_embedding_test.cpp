#include "support/backend_case.h"
#include "support/device_data.h"
#include "support/packed_samples.h"

namespace loratrain {
namespace {

using reference::HostMatrix;

/// Three slots, the second of no rank, on rows of which some are of no segment, and ids that come
/// often, once and, negative, as those of another lane.
class LoraEmbeddingTest : public BackendTest {
  protected:
    static constexpr std::int64_t columns = 50;
    static constexpr std::int32_t width = 48;
    static constexpr std::int32_t padding = 7;

    struct Setting {
        explicit Setting(Backend& backend, std::int32_t first_rank = 9)
            : samples(backend, {130, 40, 31}),
              ids(backend, some_ids()),
              first(reference::random_matrix(first_rank, columns, 1)),
              third(reference::random_matrix(5, columns, 2)),
              first_a(device_floats(backend, first)),
              third_a(device_floats(backend, third)),
              first_gradient(backend, std::vector<float>(first.values.size(), 0.5F)),
              third_gradient(backend, std::vector<float>(third.values.size(), 0.5F)) {
            slots[0].a = first_a.data();
            slots[0].grad_a = first_gradient.data();
            slots[0].rank = first_rank;
            slots[0].scale = 0.75F;
            slots[1].column = 8;
            slots[2].a = third_a.data();
            slots[2].grad_a = third_gradient.data();
            slots[2].rank = 5;
            slots[2].scale = 2.0F;
            slots[2].column = first_rank;
        }

        static std::vector<std::int32_t> some_ids() {
            std::vector<std::int32_t> ids;
            for (std::int32_t row = 0; row < 201; ++row) {
                ids.push_back(row % 5 == 0 ? 3 : row % 11 == 0 ? -1 : row * row % columns);
            }
            return ids;
        }

        LoraIds op(const TensorView& s, std::span<const LoraSegment> rows) const {
            LoraIds result;
            result.ids = ids.data();
            result.columns = columns;
            result.target = {slots, s};
            result.rows = {rows, samples.rows()};
            result.still = padding;
            return result;
        }

        PackedSamples samples;
        DeviceVector<std::int32_t> ids;
        HostMatrix first, third;
        DeviceVector<float> first_a, third_a, first_gradient, third_gradient;
        std::array<LoraSlot, 3> slots;
    };

    static std::vector<LoraSegment> segments() {
        return {{0, 0, 130, 1}, {1, 130, 140, 1}, {2, 150, 201, 1}};
    }
    static const HostMatrix* factor(const Setting& of, std::int32_t slot) {
        return slot == 0 ? &of.first : slot == 2 ? &of.third : nullptr;
    }
};

TEST_P(LoraEmbeddingTest, GatherTakesColumnsByToken) {
    const Setting setting(backend());
    const DeviceMatrix s(backend(), HostMatrix(201, width, 9.0), 3);
    const std::vector<LoraSegment> rows = segments();
    backend().lora_gather_a(setting.op(s.view(), rows));
    HostMatrix expected(201, width, 9.0);
    const std::vector<std::int32_t> ids = Setting::some_ids();
    for (const LoraSegment& segment : rows) {
        const LoraSlot& slot = setting.slots[static_cast<std::size_t>(segment.slot)];
        for (std::int64_t row = segment.begin; row < segment.end; ++row) {
            for (std::int64_t col = 0; col < width; ++col) {
                const std::int64_t i = col - slot.column;
                const std::int32_t id = ids[static_cast<std::size_t>(row)];
                const bool own = id >= 0 && i >= 0 && i < slot.rank;
                expected(row, col) =
                    own ? slot.scale * (*factor(setting, segment.slot))(i, id) : 0.0;
            }
        }
    }
    expect_close(s, expected, "S");
}

TEST_P(LoraEmbeddingTest, ScatterAddsRowsByToken) {
    for (const std::int32_t rank : {9, 40, 33}) {
        const Setting setting(backend(), rank);
        const HostMatrix values = random(201, rank + 5, 3);
        const DeviceMatrix ds(backend(), values, 3);
        const std::vector<LoraSegment> rows = segments();
        backend().lora_scatter_a(setting.op(ds.view(), rows));
        HostMatrix first(rank, columns, 0.5);
        HostMatrix third(5, columns, 0.5);
        const std::vector<std::int32_t> ids = Setting::some_ids();
        for (const LoraSegment& segment : rows) {
            const LoraSlot& slot = setting.slots[static_cast<std::size_t>(segment.slot)];
            HostMatrix& gradient = segment.slot == 0 ? first : third;
            for (std::int64_t row = segment.begin; row < segment.end && slot.rank > 0; ++row) {
                const std::int32_t id = ids[static_cast<std::size_t>(row)];
                if (id < 0 || id == padding) continue;
                for (std::int32_t i = 0; i < slot.rank; ++i) {
                    gradient(i, id) += values(row, slot.column + i);
                }
            }
        }
        expect_close(setting.first_gradient, first, DType::f32, "first");
        expect_close(setting.third_gradient, third, DType::f32, "third");
    }
}

/// One call or several: the same bits, as rows are added one by one.
TEST_P(LoraEmbeddingTest, CutsChangeNoBit) {
    const HostMatrix values = random(201, 14, 3);
    const DeviceMatrix ds(backend(), values);
    const Setting whole(backend());
    const Setting cut(backend());
    const std::vector<LoraSegment> rows{{0, 0, 201, 1}};
    const std::vector<LoraSegment> parts{{0, 0, 17, 1}, {0, 17, 140, 1}};
    const std::vector<LoraSegment> rest{{0, 140, 201, 1}};
    backend().lora_scatter_a(whole.op(ds.view(), rows));
    backend().lora_scatter_a(cut.op(ds.view(), parts));
    backend().lora_scatter_a(cut.op(ds.view(), rest));
    EXPECT_EQ(cut.first_gradient.download(), whole.first_gradient.download());
}

LORATRAIN_FOR_EACH_BACKEND(LoraEmbeddingTest);

}  // namespace
}  // namespace loratrain
