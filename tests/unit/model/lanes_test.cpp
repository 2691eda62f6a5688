#include "support/thread_lanes.h"
#include "unit/model/small_stage.h"

namespace loratrain::test {
namespace {

/// What one lane has after a global batch, and after the optimizer step behind it.
struct LaneResult {
    std::vector<double> losses;                       ///< of the adapters
    std::vector<double> squares;                      ///< of their gradients, over all lanes
    std::vector<std::vector<NamedTensor>> gradients;  ///< the lane's own
    std::vector<std::vector<NamedTensor>> parameters;
    std::size_t memory = 0;
};

/// A model whose heads, MLP and vocabulary up to four lanes can share.
ModelSpec shared_model() {
    ModelSpec model = small_model();
    model.vocab_size = 77;
    model.dense().size = 64;
    return model;
}

std::vector<AdapterJob> adapters_of_all_kinds() {
    std::vector<AdapterJob> adapters{small_adapter("half", 4, 0.5), small_adapter("none", 3),
                                     small_vera("vera", 6, 0.2)};
    adapters[1].targets = {true, false, true, true, false, true, true};
    adapters[1].targets_head = true;
    adapters[1].targets_embedding = true;
    adapters.push_back(small_dora("dora", 2));
    adapters.push_back(small_dora("dropping", 3, 0.3));
    return adapters;
}

/// The microbatch of a WholeStage on one rank and on the lanes of a stage, threads here.
class Lanes {
  public:
    Lanes(const SmallCase& test_case, std::int32_t count)
        : whole_(test_case), case_(test_case), count_(count) {
        case_.job.parallel.deployment = {{count, 1, 1}};
        case_.cluster.ranks = count;
        case_.make_plan_again();
        case_.plan.replicas[0].recompute = whole_.plan.replicas[0].recompute;
        case_.plan.replicas[0].pad_columns = whole_.plan.replicas[0].pad_columns;
        case_.plan.replicas[0].joined = whole_.plan.replicas[0].joined;
        for (MemoryPlan& memory : case_.plan.memory) {
            memory = stage_memory(case_.job, only_replica(case_.plan), 0);
        }
        results_.resize(static_cast<std::size_t>(count));
        const std::int32_t sharers = lanes_per_key_value_head(case_.plan.model, count);
        run_lanes(count, sharers, [&](const StageLanes& lanes) {
            results_[static_cast<std::size_t>(lanes.index())] = run(lanes);
        });
    }

    void expect_as_whole(double tolerance) {
        whole_.forward(0);
        const std::vector<double> losses = download(*whole_.backend, whole_.stage->sums().loss);
        whole_.backward();
        for (std::size_t a = 0; a < adapters(); ++a) {
            const auto adapter = static_cast<AdapterId>(a);
            for (const LaneResult& lane : results_) {
                EXPECT_EQ(lane.losses[a], results_[0].losses[a]);
                EXPECT_EQ(lane.squares[a], results_[0].squares[a]);
            }
            EXPECT_NEAR(results_[0].losses[a], losses[a], tolerance * losses[a]);
            const std::vector<NamedTensor> gradients = whole_.gradients(a);
            const double squares = std::pow(norm(flat(gradients)), 2);
            EXPECT_NEAR(results_[0].squares[a], squares, 2 * tolerance * squares);
            expect_joined(adapter, &LaneResult::gradients, gradients, tolerance);
            whole_.stage->finish_batch(adapter, false);
            const auto place = static_cast<std::int32_t>(a);
            const StageSums& sums = whole_.stage->sums();
            whole_.backend->move_doubles(
                {sums.total, sums.partial, {&place, 1}, {&place, 1}, false});
            whole_.stage->step(adapter, 1e-2);
            // The first step divides a gradient by its own size, so that of a tiny one is noise.
            expect_joined(adapter, &LaneResult::parameters, whole_.parameters(a), 20 * tolerance);
        }
    }

    void expect_memory_as_planned() const {
        const WorkspaceLayout layout =
            workspace_layout(only_replica(case_.plan), case_.plan.replicas[0].stages[0]);
        ASSERT_EQ(case_.plan.memory.size(), results_.size());
        for (std::size_t lane = 0; lane < results_.size(); ++lane) {
            EXPECT_EQ(results_[lane].memory,
                      case_.plan.memory[lane].total() - layout.messages - layout.links);
        }
    }

  private:
    std::size_t adapters() const { return case_.job.adapters.size(); }

    std::vector<double> download(Backend& backend, const double* sums) const {
        std::vector<double> values(adapters());
        backend.download(values.data(), sums, values.size() * sizeof(double));
        return values;
    }

    LaneResult run(const StageLanes& lanes) const {
        const auto backend = make_backend("cpu", {1, 0});
        Stage stage(case_.job, only_replica(case_.plan), 0, *case_.weights, *backend, objective_of,
                    lanes);
        LaneResult result;
        result.memory = backend->memory().current;
        for (std::size_t a = 0; a < adapters(); ++a) {
            stage.bank().upload_cut(static_cast<AdapterId>(a), AdapterBank::Part::parameters,
                                    whole_.parameters(a));
        }
        const PackedBatch& packed = whole_.packed;
        stage.forward(
            0, whole_.microbatch,
            {packed.token_ids, packed.targets, packed.positions, packed.sample_ids, packed.offsets},
            whole_.terms);
        result.losses = download(*backend, stage.sums().loss);
        stage.backward(0, {}, {});
        for (std::size_t a = 0; a < adapters(); ++a) {
            const auto adapter = static_cast<AdapterId>(a);
            stage.finish_batch(adapter, false);
            result.gradients.push_back(
                stage.bank().download(adapter, AdapterBank::Part::gradients));
        }
        result.squares = download(*backend, stage.sums().partial);
        backend->upload(stage.sums().total, result.squares.data(), adapters() * sizeof(double));
        for (std::size_t a = 0; a < adapters(); ++a) {
            const auto adapter = static_cast<AdapterId>(a);
            stage.step(adapter, 1e-2);
            result.parameters.push_back(
                stage.bank().download(adapter, AdapterBank::Part::parameters));
        }
        return result;
    }

    /// Where lanes have the same values they have the same bits, and put together they are `want`.
    void expect_joined(AdapterId adapter,
                       std::vector<std::vector<NamedTensor>> LaneResult::*tensors,
                       const std::vector<NamedTensor>& want, double tolerance) const {
        std::vector<NamedTensor> joined = want;
        for (NamedTensor& tensor : joined) tensor.values.assign(tensor.values.size(), NAN);
        for (std::int32_t lane = 0; lane < count_; ++lane) {
            const AdapterLayout layout(case_.job.adapter(adapter), case_.plan.model,
                                       all_state_layers(case_.plan.model), {lane, count_});
            const auto placed = layout.tensors(AdapterBank::Part::parameters);
            const auto& own = (results_[static_cast<std::size_t>(lane)].*tensors)[index(adapter)];
            ASSERT_EQ(own.size(), want.size());
            for (std::size_t i = 0; i < want.size(); ++i) {
                EXPECT_EQ(own[i].name, want[i].name);
                EXPECT_EQ(own[i].shape, placed[i].shape);
                const std::vector<float> before = cut_out(placed[i].cut, joined[i].values);
                if (!before.empty() && !std::isnan(before.front())) {
                    EXPECT_EQ(before, own[i].values) << own[i].name;
                }
                paste(placed[i].cut, own[i].values, joined[i].values);
            }
        }
        for (std::size_t i = 0; i < want.size(); ++i) {
            EXPECT_LE(distance(joined[i].values, want[i].values), tolerance) << want[i].name;
        }
    }

    WholeStage whole_;
    SmallCase case_;
    std::int32_t count_;
    std::vector<LaneResult> results_;
};

constexpr double tolerance = 5e-6;

TEST(Lanes, ComputeWhatOneRankDoes) {
    for (const std::int32_t count : {2, 4}) {
        SCOPED_TRACE(count);
        Lanes lanes({shared_model(), adapters_of_all_kinds()}, count);
        lanes.expect_as_whole(tolerance);
        lanes.expect_memory_as_planned();
    }
}

TEST(Lanes, OneKeyValueHeadOnAllLanes) {
    ModelSpec model = shared_model();
    model.attention().kv_heads = 1;
    model.tie_word_embeddings = true;
    for (const std::int32_t count : {2, 4}) {
        SCOPED_TRACE(count);
        Lanes lanes({model, adapters_of_all_kinds()}, count);
        lanes.expect_as_whole(tolerance);
        lanes.expect_memory_as_planned();
    }
}

TEST(Lanes, QueryAndKeyNormsAndBiases) {
    ModelSpec model = shared_model();
    model.attention().qk_norm = true;
    model.attention().qkv_bias = model.attention().o_bias = model.dense().bias = true;
    for (const std::int32_t count : {2, 4}) {
        SCOPED_TRACE(count);
        Lanes lanes({model, adapters_of_all_kinds()}, count);
        lanes.expect_as_whole(tolerance);
        lanes.expect_memory_as_planned();
    }
}

TEST(Lanes, NormsOverAllHeads) {
    ModelSpec model = shared_model();
    model.attention().qk_norm = model.attention().qk_norm_whole = true;
    for (const std::int64_t kv_heads : {std::int64_t{1}, model.attention().kv_heads}) {
        model.attention().kv_heads = kv_heads;
        for (const std::int32_t count : {2, 4}) {
            SCOPED_TRACE(cat(count, " lanes, ", kv_heads, " key-value heads"));
            Lanes lanes({model, adapters_of_all_kinds()}, count);
            lanes.expect_as_whole(tolerance);
            lanes.expect_memory_as_planned();
        }
    }
}

TEST(Lanes, SoftCapsOfLogitsAndScores) {
    ModelSpec model = shared_model();
    model.logits_soft_cap = 0.5;
    model.attention().soft_cap = 2.0;
    for (const std::int32_t count : {2, 4}) {
        SCOPED_TRACE(count);
        Lanes lanes({model, adapters_of_all_kinds()}, count);
        lanes.expect_as_whole(tolerance);
        lanes.expect_memory_as_planned();
    }
}

TEST(Lanes, GatedDeltaNets) {
    std::vector<AdapterJob> adapters = adapters_of_all_kinds();
    adapters[1].targets = all_linears();
    for (const DeltaLinears linears : {DeltaLinears::by_kind, DeltaLinears::by_key_head}) {
        Lanes lanes({with_delta_nets(shared_model(), linears), adapters}, 2);
        lanes.expect_as_whole(tolerance);
        lanes.expect_memory_as_planned();
    }
}

TEST(Lanes, FusedLinears) {
    ModelSpec model = shared_model();
    model.attention().fused_qkv = model.dense().fused_gate_up = true;
    model.attention().qkv_bias = model.dense().bias = true;
    std::vector<AdapterJob> adapters = adapters_of_all_kinds();
    adapters[1].targets = all_linears();
    Lanes lanes({model, adapters}, 2);
    lanes.expect_as_whole(tolerance);
    lanes.expect_memory_as_planned();
}

TEST(Lanes, Experts) {
    ModelSpec model = shared_model();
    std::vector<LayerSpec> layers(3, model.layer(0));
    layers[1].mlp = layers[2].mlp =
        ExpertSpec{.count = 5, .per_token = 2, .size = 12, .normalised = true};
    model.set_layers(layers);
    std::vector<AdapterJob> adapters{small_adapter("all", 4), small_adapter("some", 3),
                                     small_dora("dora", 2, 0.3)};
    adapters[1].targets = {false, true, false, false, false, false, true};
    adapters[2].targets = {true, true, true, true};
    for (const std::int64_t shared_size : {0, 20}) {
        for (const bool gated : {false, true}) {
            for (const std::size_t l : {1, 2}) {
                auto& experts = std::get<ExpertSpec>(layers[l].mlp);
                experts.shared_size = shared_size;
                experts.shared_gate = gated && shared_size > 0;
            }
            model.set_layers(layers);
            for (const std::int32_t count : {2, 4}) {
                SCOPED_TRACE(cat(count, " lanes, shared expert of ", shared_size, " ", gated));
                Lanes lanes({model, adapters}, count);
                lanes.expect_as_whole(tolerance);
                lanes.expect_memory_as_planned();
            }
        }
    }
}

TEST(Lanes, SinksAndBiasedExperts) {
    ModelSpec model = shared_model();
    model.attention().sinks = true;
    model.attention().qkv_bias = model.attention().o_bias = true;
    ExpertSpec experts{.count = 5, .per_token = 2, .size = 12, .normalised = true};
    experts.activation = Activation::clamped_swiglu;
    experts.names = ExpertNames::gpt_oss;
    experts.router_bias = experts.bias = true;
    std::vector<LayerSpec> layers(3, model.layer(0));
    for (LayerSpec& layer : layers) layer.mlp = experts;
    model.set_layers(layers);
    std::vector<AdapterJob> adapters{small_adapter("all", 4), small_dora("dora", 2, 0.3)};
    for (AdapterJob& adapter : adapters) adapter.targets = {true, true, true, true};
    for (const std::int32_t count : {2, 4}) {
        SCOPED_TRACE(count);
        Lanes lanes({model, adapters}, count);
        lanes.expect_as_whole(tolerance);
        lanes.expect_memory_as_planned();
    }
}

/// Each lane has some experts, with all of their LoRA.
TEST(Lanes, WholeExperts) {
    ModelSpec model = shared_model();
    std::vector<LayerSpec> layers(3, model.layer(0));
    ExpertSpec experts{.count = 8, .per_token = 2, .size = 11, .normalised = true};
    experts.cut = ExpertCut::whole;
    std::vector<AdapterJob> adapters{small_adapter("all", 4), small_adapter("some", 3),
                                     small_dora("dora", 2, 0.3)};
    adapters[1].targets = {false, true, false, false, false, false, true};
    adapters[2].targets = {true, true, true, true};
    for (const bool more : {false, true}) {
        if (more) {
            experts.shared_size = 20;
            experts.shared_gate = true;
            experts.normalised = false;
            experts.count = 7;  // of the last lane fewer
        }
        layers[1].mlp = layers[2].mlp = experts;
        model.set_layers(layers);
        for (const std::int32_t count : {2, 4}) {
            SCOPED_TRACE(cat(count, " lanes, more: ", more));
            Lanes lanes({model, adapters}, count);
            lanes.expect_as_whole(tolerance);
            lanes.expect_memory_as_planned();
        }
    }
}

/// Lanes cannot share columns of these.
TEST(Lanes, WholeExpertsWithBiases) {
    ModelSpec model = shared_model();
    std::vector<LayerSpec> layers(3, model.layer(0));
    // Of four lanes the last has none.
    ExpertSpec experts{.count = 5, .per_token = 2, .size = 11, .normalised = true};
    experts.activation = Activation::clamped_swiglu;
    experts.router_bias = experts.bias = true;
    layers[1].mlp = layers[2].mlp = experts;
    model.set_layers(layers);
    EXPECT_FALSE(can_shard(model, 2));
    experts.cut = ExpertCut::whole;
    layers[1].mlp = layers[2].mlp = experts;
    model.set_layers(layers);
    std::vector<AdapterJob> adapters{small_adapter("all", 4), small_dora("dora", 2, 0.3)};
    for (AdapterJob& adapter : adapters) adapter.targets = {true, true, true, true};
    for (const std::int32_t count : {2, 4}) {
        SCOPED_TRACE(count);
        Lanes lanes({model, adapters}, count);
        lanes.expect_as_whole(tolerance);
        lanes.expect_memory_as_planned();
    }
}

/// Columns would be cut between weights that share a scale.
TEST(Lanes, WholeQuantizedExperts) {
    for (const WeightFormat format : {WeightFormat::nf4, WeightFormat::int8, WeightFormat::e4m3}) {
        for (const Precision precision : {Precision::fp32, Precision::bf16}) {
            ModelSpec model = quantizable_model(3);
            std::vector<LayerSpec> layers(3, model.layer(0));
            ExpertSpec experts{.count = 5, .per_token = 2, .size = 192, .normalised = true};
            experts.cut = ExpertCut::whole;
            layers[0].mlp = layers[2].mlp = experts;
            model.set_layers(layers);
            model.quantization = {format, SourceType::bf16};
            Lanes lanes({model, {small_adapter("all", 4)}, 1, precision}, 2);
            lanes.expect_as_whole(tolerance);
            lanes.expect_memory_as_planned();
        }
    }
}

TEST(Lanes, BySegmentAndRecomputed) {
    SmallCase test_case(shared_model(), adapters_of_all_kinds());
    test_case.plan.replicas[0].pad_columns = 0;
    test_case.plan.replicas[0].recompute = Recompute::layer;
    Lanes(test_case, 4).expect_as_whole(tolerance);
}

TEST(Lanes, JoinedProducts) {
    SmallCase test_case(shared_model(), adapters_of_all_kinds());
    test_case.plan.replicas[0].joined = {true, false, true, false};
    for (const std::int32_t count : {2, 4}) {
        SCOPED_TRACE(count);
        Lanes lanes(test_case, count);
        lanes.expect_as_whole(tolerance);
        lanes.expect_memory_as_planned();
    }
}

/// Neighbours in the vocabulary, which one lane has, and tokens far apart; some at its end.
TEST(Lanes, RowsOfTokens) {
    ModelSpec model = shared_model();
    std::vector<AdapterJob> adapters{small_adapter("rows", 4), small_adapter("plain", 3, 0.2),
                                     small_dora("dora", 2)};
    adapters[0].trainable_token_indices = {5, 70, 6, 40, 76, 7, 20, 21};
    for (std::int32_t i = 0; i < 50; ++i) {
        adapters[2].trainable_token_indices.push_back(i * 5 % 77);
    }
    for (AdapterJob& adapter : adapters) adapter.form = form_of(adapter);
    for (const bool tied : {false, true}) {
        model.tie_word_embeddings = tied;
        for (const std::int32_t count : {2, 4}) {
            SCOPED_TRACE(cat(count, " lanes, tied ", tied));
            Lanes lanes({model, adapters}, count);
            lanes.expect_as_whole(tolerance);
            lanes.expect_memory_as_planned();
        }
    }
}

TEST(Lanes, StagedBf16) {
    Lanes lanes({shared_model(), adapters_of_all_kinds(), 1, Precision::bf16}, 2);
    lanes.expect_as_whole(tolerance);
    lanes.expect_memory_as_planned();
}

}  // namespace
}  // namespace loratrain::test
