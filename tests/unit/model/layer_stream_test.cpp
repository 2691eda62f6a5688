#include "model/layer_stream.h"

#include <array>
#include <cstring>
#include <utility>

#include "backend/cpu/cpu_backend.h"
#include "support/sanitized.h"
#include "unit/model/small_stage.h"

namespace loratrain::test {
namespace {

/// When a copy to a buffer happens, between the calls that it must lie between: as early as can be,
/// or as late, with the buffer's contents spoilt until then.
enum class When : std::uint8_t { early, late };

class SpoiltCopies final : public HostCopies {
  public:
    SpoiltCopies(std::unique_ptr<HostCopies> inner, std::int32_t places, When when)
        : inner_(std::move(inner)), due_(static_cast<std::size_t>(places)), when_(when) {}

    void pin(void* data, std::size_t bytes) override { inner_->pin(data, bytes); }
    void save(std::span<const HostCopy> copies) override { inner_->save(copies); }
    void load(std::int32_t place, std::span<const HostCopy> copies, StreamClock* clock) override {
        if (clock != nullptr) clock->mark();
        if (clock != nullptr) clock->mark();
        for (const HostCopy& copy : copies) {
            for (std::size_t row = 0; row < copy.rows; ++row) {
                std::memset(static_cast<char*>(copy.device) + row * copy.pitch, 0xff,
                            copy.row_bytes);  // NaN
            }
        }
        auto& due = due_[static_cast<std::size_t>(place)];
        due.assign(copies.begin(), copies.end());
        if (when_ == When::early) await(place);
    }
    void store(std::int32_t place, std::span<const HostCopy> copies, StreamClock* clock) override {
        inner_->store(place, copies, clock);
    }
    void await(std::int32_t place) override {
        auto& due = due_[static_cast<std::size_t>(place)];
        if (!due.empty()) inner_->load(place, due);
        due.clear();
    }
    std::unique_ptr<StreamClock> make_clock() override { return inner_->make_clock(); }

  private:
    std::unique_ptr<HostCopies> inner_;
    std::vector<std::vector<HostCopy>> due_;
    When when_;
};

class SpoilingBackend final : public CpuBackend {
  public:
    explicit SpoilingBackend(When when) : CpuBackend(1), when_(when) {}
    std::unique_ptr<HostCopies> make_host_copies(std::int32_t places) override {
        return std::make_unique<SpoiltCopies>(CpuBackend::make_host_copies(places), places, when_);
    }

  private:
    When when_;
};

std::vector<AdapterJob> all_forms() {
    std::vector<AdapterJob> adapters{small_adapter("half", 4, 0.5), small_adapter("none", 3)};
    adapters[1].targets = {true, false, true, false, false, true, false};
    adapters.push_back(small_dora("dora", 2, 0.3));
    adapters.push_back(small_vera("vera", 3));
    return adapters;
}

/// Losses and gradients of passes in several orders: what each expects to follow is true, false or
/// left to the stage.
std::vector<std::vector<float>> train_streamed(const SmallCase& test_case, When when) {
    WholeStage whole(test_case);
    whole.stage.reset();
    whole.backend = std::make_unique<SpoilingBackend>(when);
    whole.stage = test_case.stage(*whole.backend);
    fill_factors(whole.job, whole.stage->bank());
    std::vector<std::vector<float>> seen;
    const auto forward = [&](bool evaluation) {
        whole.terms.evaluation = evaluation;
        seen.push_back({static_cast<float>(whole.forward(0))});
    };
    forward(false);
    whole.backward();
    forward(true);
    forward(true);
    forward(false);
    whole.stage->expect(Stage::Pass::backward);
    whole.backward();
    forward(false);
    forward(false);
    whole.backward();
    for (std::size_t a = 0; a < whole.job.adapters.size(); ++a) {
        seen.push_back(flat(whole.gradients(a)));
        const auto adapter = static_cast<AdapterId>(a);
        whole.stage->finish_batch(adapter, false);
        whole.stage->set_total(adapter, 1.0);
        whole.stage->step(adapter, 1e-2);
    }
    forward(false);  // with new factors in the pads
    whole.backward();
    for (std::size_t a = 0; a < whole.job.adapters.size(); ++a) {
        seen.push_back(flat(whole.gradients(a)));
    }
    return seen;
}

void expect_streamed_bits(SmallCase test_case) {
    for (const Recompute recompute : {Recompute::none, Recompute::layer}) {
        ReplicaPlan& replica = test_case.plan.replicas[0];
        replica.recompute = recompute;
        StagePlan& stage = replica.stages[0];
        stage.resident_layers = all_layers;
        const auto resident = train_streamed(test_case, When::early);
        for (const std::int32_t layers : {0, 1, 3, stage.layer_count - 1}) {
            stage.resident_layers = layers;
            for (const When when : {When::early, When::late}) {
                EXPECT_EQ(train_streamed(test_case, when), resident)
                    << layers << " resident layers";
            }
        }
    }
}

TEST(LayerStream, EqualsResidentLayersToTheBit) {
    expect_streamed_bits({small_model(6), all_forms()});
}

TEST(LayerStream, Segments) {
    SmallCase test_case(small_model(5), all_forms());
    test_case.plan.replicas[0].pad_columns = 0;
    expect_streamed_bits(std::move(test_case));
}

TEST(LayerStream, StagedBf16AndQuantised) {
    LORATRAIN_SKIP_UNDER_SANITIZERS();
    expect_streamed_bits({small_model(5), all_forms(), 1, Precision::bf16});
    ModelSpec model = quantizable_model(5);
    for (const WeightFormat format : {WeightFormat::nf4, WeightFormat::int8}) {
        model.quantization = {format, SourceType::bf16};
        expect_streamed_bits({model, all_forms()});
    }
}

TEST(LayerStream, Fp8Linears) {
    SmallCase test_case(small_model(5), {small_adapter("a", 4), small_adapter("b", 3)});
    test_case.plan.fp8_linears = test_case.plan.fp8_one_order = true;
    expect_streamed_bits(std::move(test_case));
}

TEST(LayerStream, BiasesAndQueryNorms) {
    ModelSpec model = small_model(5);
    model.attention().qk_norm = true;
    model.attention().qkv_bias = model.attention().o_bias = model.dense().bias = true;
    expect_streamed_bits({model, all_forms()});
}

TEST(LayerStream, RecordsTransfersInOrderOnceTheyCannotBeWaitedFor) {
    SmallCase test_case(small_model(6), {small_adapter("a", 4)});
    test_case.plan.replicas[0].stages[0].resident_layers = 1;
    WholeStage whole(test_case);
    LayerStream* stream = whole.stage->layer_stream();
    ASSERT_NE(stream, nullptr);
    whole.forward(0);
    EXPECT_TRUE(stream->take_recorded().empty());
    stream->start_recording();
    whole.backward();  // of layers 5 to 1 three are there
    EXPECT_TRUE(stream->take_recorded().empty());
    whole.forward(0);
    std::vector<TransferRecord::Transfer> transfers = stream->take_recorded();
    ASSERT_EQ(transfers.size(), 2U);
    for (const auto& later : stream->take_recorded()) transfers.push_back(later);
    std::vector<std::int32_t> layers;
    double before = 0.0;
    for (const TransferRecord::Transfer& transfer : transfers) {
        layers.push_back(transfer.layer);
        EXPECT_LE(before, transfer.start);
        EXPECT_LE(transfer.start, transfer.end);
        before = transfer.end;
    }
    EXPECT_EQ(layers, (std::vector<std::int32_t>{2, 1, 4, 5}));
}

TEST(LayerStream, LayersLieEvenly) {
    StagePlan stage;
    stage.layer_count = 10;
    for (std::int32_t resident = 0; resident <= 12; ++resident) {
        stage.resident_layers = resident;
        std::int32_t streamed = 0;
        for (std::int32_t l = 0; l < 10; ++l) {
            streamed += is_streamed(stage, l) ? 1 : 0;
            // As many of the first l + 1 as that share of all, rounded down.
            EXPECT_EQ(streamed, (l + 1) * streamed_layers(stage) / 10);
        }
        EXPECT_EQ(streamed, std::max(0, 10 - resident));
    }
}

}  // namespace
}  // namespace loratrain::test
