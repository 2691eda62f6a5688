#include "plan/memory/offload.h"

#include <cstring>
#include <utility>

#include "backend/cpu/cpu_backend.h"
#include "unit/model/shared_stages.h"
#include "unit/model/small_stage.h"
#include "unit/model/stage_chain.h"

namespace loratrain::test {
namespace {

constexpr std::int32_t stage_layers = 5;

/// Copies that are made as late as can be, in their order: when one of their place is waited for.
/// Buffers are spoilt until what they wait for has come.
class LateCopies final : public HostCopies {
  public:
    explicit LateCopies(std::unique_ptr<HostCopies> inner) : inner_(std::move(inner)) {}
    ~LateCopies() override { run_first(due_.size()); }
    LateCopies(const LateCopies&) = delete;
    LateCopies& operator=(const LateCopies&) = delete;

    void pin(void* data, std::size_t bytes) override { inner_->pin(data, bytes); }
    void save(std::span<const HostCopy> copies) override { inner_->save(copies); }
    void load(std::int32_t place, std::span<const HostCopy> copies,
              StreamClock* /*clock*/) override {
        run_of(place);  // what is stored from the buffer goes before
        for (const HostCopy& copy : copies) std::memset(copy.device, 0xff, copy.row_bytes);  // NaN
        add(place, copies, true);
    }
    void store(std::int32_t place, std::span<const HostCopy> copies,
               StreamClock* /*clock*/) override {
        for (const HostCopy& copy : copies) std::memset(copy.host, 0xff, copy.row_bytes);
        add(place, copies, false);
    }
    void await(std::int32_t place) override { run_of(place); }
    std::unique_ptr<StreamClock> make_clock() override { return inner_->make_clock(); }

  private:
    struct Due {
        std::int32_t place = 0;
        std::vector<HostCopy> copies;
        bool to_device = false;
    };
    void add(std::int32_t place, std::span<const HostCopy> copies, bool to_device) {
        due_.push_back({place, {copies.begin(), copies.end()}, to_device});
    }
    void run_of(std::int32_t place) {
        std::size_t count = 0;
        for (std::size_t i = 0; i < due_.size(); ++i) {
            if (due_[i].place == place) count = i + 1;
        }
        run_first(count);
    }
    void run_first(std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            if (due_[i].to_device) {
                inner_->load(due_[i].place, due_[i].copies);
            } else {
                inner_->store(due_[i].place, due_[i].copies);
            }
        }
        due_.erase(due_.begin(), due_.begin() + static_cast<std::ptrdiff_t>(count));
    }

    std::unique_ptr<HostCopies> inner_;
    std::vector<Due> due_;
};

class LateBackend final : public CpuBackend {
  public:
    LateBackend() : CpuBackend(1) {}
    std::unique_ptr<HostCopies> make_host_copies(std::int32_t places) override {
        return std::make_unique<LateCopies>(CpuBackend::make_host_copies(places));
    }
};

struct Offloaded {
    std::int32_t kept = 0;
    std::int32_t offloaded = 0;
    std::int32_t in_flight = 1;
};

using Gradients = std::vector<std::vector<float>>;

Gradients every_gradient(const WholeStage& whole) {
    Gradients result;
    for (std::size_t a = 0; a < whole.job.adapters.size(); ++a) {
        for (const NamedTensor& tensor : whole.gradients(a)) result.push_back(tensor.values);
    }
    return result;
}

/// Samples of so many tokens for the microbatch's adapters.
void set_tokens(WholeStage& whole, std::int32_t tokens) {
    for (Segment& segment : whole.microbatch.segments) {
        segment.samples.front().tokens = tokens;
        ++segment.step;
    }
    whole.pack();
}

void evaluate(WholeStage& whole, std::int32_t slot) {
    whole.terms.evaluation = whole.microbatch.evaluation = true;
    whole.forward_in_slot(slot);
    whole.terms.evaluation = whole.microbatch.evaluation = false;
}

/// Microbatches of several sizes, one of them of one token an adapter, with evaluations between;
/// with two in flight backward comes after the forward of the next one too.
Gradients train_offloading(SmallCase test_case, Recompute recompute, const Offloaded& of,
                           bool late = false) {
    ReplicaPlan& replica = test_case.plan.replicas[0];
    replica.recompute = recompute;
    replica.stages[0].kept_layers = of.kept;
    replica.stages[0].offloaded_layers = of.offloaded;
    replica.max_in_flight = 2;
    if (recompute == Recompute::layer) replica.max_in_flight = of.in_flight;
    WholeStage whole(test_case);
    if (late) {
        whole.stage.reset();
        whole.backend = std::make_unique<LateBackend>();
        whole.stage = test_case.stage(*whole.backend);
        fill_factors(whole.job, whole.stage->bank());
    }
    for (const std::int32_t tokens : {12, 5, 12}) {
        set_tokens(whole, tokens);
        whole.forward_in_slot(0);
        whole.stage->backward(0, {}, {});
        set_tokens(whole, 7);
        evaluate(whole, 0);
    }
    const std::int32_t other = of.in_flight - 1;
    for (const std::int32_t tokens : {12, 1, 3}) {
        const auto backward_of_other = [&] { whole.stage->backward(other, {}, {}); };
        set_tokens(whole, tokens + 1);
        whole.forward_in_slot(other);
        if (other == 0) backward_of_other();
        set_tokens(whole, tokens);
        whole.forward_in_slot(0);
        if (other != 0 && tokens != 1) backward_of_other();
        whole.stage->backward(0, {}, {});
        if (other != 0 && tokens == 1) backward_of_other();
    }
    return every_gradient(whole);
}

void expect_bits_of_kept(const SmallCase& test_case,
                         const std::vector<Offloaded>& cases = {{0, 1, 1},
                                                                {0, 2, 2},
                                                                {0, 3, 1},
                                                                {0, 5, 1},
                                                                {0, 9, 2},
                                                                {1, 2, 1},
                                                                {1, 3, 2},
                                                                {2, 3, 1},
                                                                {3, 1, 2},
                                                                {4, 1, 1},
                                                                {5, 2, 2}}) {
    Gradients kept[2];
    for (const std::int32_t in_flight : {1, 2}) {
        kept[in_flight - 1] = train_offloading(test_case, Recompute::none, {0, 0, in_flight});
    }
    for (const Offloaded& of : cases) {
        EXPECT_EQ(train_offloading(test_case, Recompute::layer, of), kept[of.in_flight - 1])
            << of.kept << " kept, " << of.offloaded << " offloaded, " << of.in_flight
            << " in flight";
        if (test_case.job.model.precision == Precision::fp32) {
            EXPECT_EQ(train_offloading(test_case, Recompute::layer, of, true),
                      kept[of.in_flight - 1])
                << "copied late";
        }
    }
    for (const auto& gradient : kept[0]) {
        EXPECT_TRUE(std::any_of(gradient.begin(), gradient.end(), [](float g) { return g != 0; }));
    }
}

std::vector<AdapterJob> offload_adapters() {
    std::vector<AdapterJob> adapters{small_adapter("half", 4, 0.5), small_adapter("some", 3)};
    adapters[1].targets = {true, false, true, false, false, true, false};
    adapters.push_back(small_dora("dora", 2, 0.3));
    adapters.push_back(small_vera("vera", 3, 0.3));
    return adapters;
}

TEST(Offload, EqualsKeptActivationsToTheBit) {
    expect_bits_of_kept({small_model(stage_layers), offload_adapters()});
    expect_bits_of_kept({small_model(stage_layers), offload_adapters(), 1, Precision::bf16});
}

TEST(Offload, NormsBiasesAndSegments) {
    ModelSpec model = small_model(stage_layers);
    model.attention().qk_norm = true;
    model.attention().qkv_bias = model.attention().o_bias = model.dense().bias = true;
    model.norms().placement = NormPlacement::both;
    SmallCase test_case(model, offload_adapters());
    expect_bits_of_kept(test_case, {{0, 3, 1}, {1, 4, 2}});
    test_case.plan.replicas[0].pad_columns = 0;
    expect_bits_of_kept(test_case, {{0, 3, 1}, {1, 4, 2}});
}

TEST(Offload, ExpertSpec) {
    ModelSpec model = small_model(stage_layers);
    model.descriptions.front().mlp = ExpertSpec{5, 2, 12, true};
    std::vector<AdapterJob> adapters{small_adapter("a", 5), small_adapter("b", 3)};
    adapters[1].targets = {true, false, false, false, false, false, true};
    expect_bits_of_kept({model, adapters}, {{0, 3, 1}, {0, 5, 2}, {1, 2, 2}, {2, 3, 1}});
}

/// Of five layers the last two stay in the buffers.
TEST(Offload, CopiesAreRecordedInOrder) {
    SmallCase test_case(small_model(stage_layers), {small_adapter("a", 4)});
    test_case.plan.replicas[0].recompute = Recompute::layer;
    test_case.plan.replicas[0].stages[0].offloaded_layers = stage_layers;
    WholeStage whole(test_case);
    ActivationOffload* offload = whole.stage->activation_offload();
    ASSERT_NE(offload, nullptr);
    EXPECT_TRUE(offload->take_recorded().empty());
    offload->start_recording();
    whole.forward(0);
    whole.backward();
    evaluate(whole, 0);
    std::vector<TransferRecord::Transfer> transfers = offload->take_recorded();
    EXPECT_TRUE(transfers.empty());  // which might still be under way
    for (const auto& later : offload->take_recorded()) transfers.push_back(later);
    std::vector<std::pair<std::int32_t, bool>> copies;
    double before = 0.0;
    for (const TransferRecord::Transfer& transfer : transfers) {
        copies.emplace_back(transfer.layer, transfer.to_host);
        EXPECT_LE(before, transfer.start);
        EXPECT_LT(transfer.start, transfer.end);
        before = transfer.end;
    }
    EXPECT_EQ(copies, (std::vector<std::pair<std::int32_t, bool>>{
                          {0, true}, {1, true}, {2, true}, {2, false}, {1, false}, {0, false}}));
    test_case.plan.replicas[0].stages[0].offloaded_layers = 0;
    EXPECT_EQ(WholeStage(test_case).stage->activation_offload(), nullptr);
}

TEST(Offload, OneLayer) {
    expect_bits_of_kept({small_model(1), offload_adapters()}, {{0, 1, 1}, {0, 1, 2}, {0, 3, 1}});
}

/// Stages that share a layer, some of whose microbatches have no rows in it.
Gradients of_shared_stages(SmallCase test_case, Recompute recompute, std::int32_t offloaded,
                           std::int32_t in_flight) {
    test_case.plan.replicas[0].recompute = recompute;
    test_case.plan.replicas[0].max_in_flight = in_flight;
    for (StagePlan& stage : test_case.plan.replicas[0].stages) stage.offloaded_layers = offloaded;
    StageChain chain(test_case);
    test_case.plan.replicas[0].stages = cut_layers(stage_layers, {});
    WholeStage batch(test_case);
    const std::vector<Segment> all = batch.microbatch.segments;
    const std::vector<std::vector<Segment>> microbatches{all, {all[0]}, {all[1]}, all};
    return chain.gradients_of(batch, microbatches);
}

TEST(Offload, SharedLayers) {
    for (const auto& cuts : {std::vector<Cut>{{2, up_to(1)}}, {{3, from(1)}}}) {
        SmallCase test_case(small_model(stage_layers),
                            {small_adapter("a", 5), small_adapter("b", 3)});
        test_case.plan.replicas[0].stages = cut_layers(stage_layers, cuts);
        const Gradients kept = of_shared_stages(test_case, Recompute::none, 0, 3);
        for (const std::int32_t offloaded : {1, 2, 3, 4}) {
            EXPECT_EQ(of_shared_stages(test_case, Recompute::layer, offloaded, 3), kept)
                << offloaded;
        }
    }
}

}  // namespace
}  // namespace loratrain::test
