#include "adapter/tensor_cut.h"
#include "base/error.h"
#include "io/adapters/adapter_file.h"
#include "support/files.h"
#include "unit/model/small_stage.h"

namespace loratrain::test {
namespace {

constexpr AdapterId lone{0};

/// One lane of several, which never sums.
class QuietGroup final : public RankGroup {
  public:
    QuietGroup(std::int32_t index, std::int32_t size) : index_(index), size_(size) {}
    std::int32_t index() const override { return index_; }
    std::int32_t size() const override { return size_; }
    void all_reduce(const TensorView& /*values*/) override {}
    void all_gather(const void* /*own*/, std::size_t /*bytes*/, void* /*all*/) override {}

  private:
    std::int32_t index_;
    std::int32_t size_;
};

ModelSpec shared_model() {
    ModelSpec model = small_model();
    model.vocab_size = 77;
    model.dense().size = 64;
    return model;
}

TEST(TensorCut, RowsColumnsAndBack) {
    const std::vector<float> whole{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    const TensorCut rows{1, 4, 3, Slice{1, 2}};     // of [4, 3]
    const TensorCut columns{3, 4, 1, Slice{2, 2}};  // of [3, 4]
    Slices apart(Slice{0, 1});
    apart.add({3, 1});
    const TensorCut rows_apart{1, 4, 3, apart};
    const TensorCut columns_apart{3, 4, 1, apart};
    EXPECT_EQ(cut_out(rows, whole), (std::vector<float>{3, 4, 5, 6, 7, 8}));
    EXPECT_EQ(cut_out(columns, whole), (std::vector<float>{2, 3, 6, 7, 10, 11}));
    EXPECT_EQ(cut_out(rows_apart, whole), (std::vector<float>{0, 1, 2, 9, 10, 11}));
    EXPECT_EQ(cut_out(columns_apart, whole), (std::vector<float>{0, 3, 4, 7, 8, 11}));
    EXPECT_EQ(cut_out(whole_tensor(12), whole), whole);
    EXPECT_TRUE(whole_tensor(12).is_whole());
    for (const TensorCut& cut : {rows, columns, rows_apart, columns_apart}) {
        EXPECT_FALSE(cut.is_whole());
        std::vector<float> back(12, -1.0F);
        paste(cut, cut_out(cut, whole), back);
        for (std::size_t i = 0; i < back.size(); ++i) {
            EXPECT_TRUE(back[i] == -1.0F || back[i] == whole[i]);
        }
        // Any elements of it, as threads take them.
        std::vector<float> part;
        for (std::int64_t begin = 0; begin < cut.count(); begin += 2) {
            const std::int64_t end = std::min(begin + 2, cut.count());
            cut.for_each_run(begin, end, [&](const TensorCut::Run& run) {
                EXPECT_EQ(run.in_part, std::ssize(part));
                for (std::int64_t i = 0; i < run.count; ++i) {
                    part.push_back(whole[static_cast<std::size_t>(run.in_whole + i)]);
                }
            });
        }
        EXPECT_EQ(part, cut_out(cut, whole));
        EXPECT_EQ(std::count(back.begin(), back.end(), -1.0F), 12 - cut.count());
        EXPECT_THROW(cut_out(cut, std::vector<float>(11)), Error);
        EXPECT_THROW(paste(cut, std::vector<float>(3), back), Error);
    }
}

/// What the lanes of a stage start with is what one rank starts with, cut.
void expect_cuts_of_the_whole(SmallCase test_case, std::int32_t count) {
    const auto backend = make_backend("cpu", {1, 0});
    const AdapterBank whole(test_case.job, only_replica(test_case.plan),
                            test_case.plan.replicas[0].stages[0], *backend);
    const auto want = whole.download(lone, AdapterBank::Part::parameters);
    test_case.job.parallel.deployment = {{count, 1, 1}};
    test_case.cluster.ranks = count;
    test_case.make_plan_again();
    const StagePlan& stage = test_case.plan.replicas[0].stages[0];
    for (std::int32_t lane = 0; lane < count; ++lane) {
        QuietGroup group(lane, count);
        const std::int32_t sharers = lanes_per_key_value_head(test_case.plan.model, count);
        QuietGroup part(lane % sharers, sharers);
        AdapterBank bank(test_case.job, only_replica(test_case.plan), stage, *backend,
                         {&group, &part});
        const AdapterLayout layout(test_case.job.adapters[0], test_case.plan.model, {0, 3},
                                   {lane, count});
        const auto placed = layout.tensors(AdapterBank::Part::parameters);
        const auto expect_cut = [&] {
            const auto got = bank.download(lone, AdapterBank::Part::parameters);
            ASSERT_EQ(got.size(), want.size());
            for (std::size_t i = 0; i < got.size(); ++i) {
                EXPECT_EQ(got[i].values, cut_out(placed[i].cut, want[i].values)) << got[i].name;
                EXPECT_EQ(got[i].shape, placed[i].shape);
            }
        };
        expect_cut();
        auto other = want;
        for (NamedTensor& tensor : other) tensor.values.assign(tensor.values.size(), 7.0F);
        bank.upload_cut(lone, AdapterBank::Part::parameters, other);
        EXPECT_EQ(norm(flat(bank.download(lone, AdapterBank::Part::parameters))),
                  7.0 * std::sqrt(static_cast<double>(bank.parameters(lone))));
        bank.upload_cut(lone, AdapterBank::Part::parameters, want);
        expect_cut();
        EXPECT_EQ(bank.slot(lone, 1, Linear::o).dropout_column, lane * 32 / count);
        EXPECT_EQ(bank.slot(lone, 1, Linear::down).dropout_column, lane * 64 / count);
        EXPECT_EQ(bank.slot(lone, 1, Linear::q).dropout_column, 0);
        EXPECT_EQ(bank.slot(lone, 1, Linear::q).dropout_key,
                  whole.slot(lone, 1, Linear::q).dropout_key);
    }
}

TEST(LaneBank, StartsWithItsPartOfTheSameNumbers) {
    for (const std::int32_t count : {2, 4}) {
        expect_cuts_of_the_whole({shared_model(), {small_adapter("a", 4, 0.1)}}, count);
    }
}

TEST(LaneBank, StartsWithItsPartOfAFile) {
    const TempDir folder;
    SmallCase test_case(shared_model(), {small_adapter("a", 4, 0.1)});
    const auto backend = make_backend("cpu", {1, 0});
    AdapterBank bank(test_case.job, only_replica(test_case.plan),
                     test_case.plan.replicas[0].stages[0], *backend);
    fill_factors(test_case.job, bank);
    write_adapter(folder.path(), test_case.job.adapters[0], test_case.plan.model, "base",
                  bank.download(lone, AdapterBank::Part::parameters));
    test_case.job.adapters[0].init_from = folder.path();
    for (const std::int32_t count : {2, 4}) expect_cuts_of_the_whole(test_case, count);
}

TEST(LaneBank, RefusesAnotherNumberOfLanesThanPlanned) {
    const SmallCase test_case(shared_model(), {small_adapter("a", 4)});
    const auto backend = make_backend("cpu", {1, 0});
    QuietGroup group(0, 2);
    EXPECT_THROW(AdapterBank(test_case.job, only_replica(test_case.plan),
                             test_case.plan.replicas[0].stages[0], *backend, {&group, &group}),
                 Error);
}

}  // namespace
}  // namespace loratrain::test
