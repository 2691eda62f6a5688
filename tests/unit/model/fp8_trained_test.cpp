#include <numeric>

#include "io/weights/import_hf.h"
#include "plan/schedule/plan_window.h"
#include "support/files.h"
#include "support/sanitized.h"
#include "test_paths.h"
#include "unit/model/outlier_weights.h"
#include "unit/model/small_stage.h"

namespace loratrain::test {
namespace {

/// The first global batch of an adapter on each of two tasks, on the trained base of the quick
/// start; on a CPU, where no job may ask for fp8.
class TrainedStage {
  public:
    TrainedStage(const WeightSource& weights, bool fp8, bool outliers) {
        for (const char* task : {"json", "units"}) add_adapter(task, weights.spec().vocab_size);
        job_.parallel.microbatch_tokens = 4096;
        plan_ = make_plan(job_, weights.spec(), infos_, Cluster{});
        plan_.fp8_linears = fp8;
        backend_ = make_backend("cpu", {1, 0});
        stage_ = std::make_unique<Stage>(job_, only_replica(plan_), 0, weights, *backend_);
        fill_factors(job_, stage_->bank());
        for (std::size_t a = 0; a < job_.adapters.size(); ++a) {
            start_factors(static_cast<AdapterId>(a), outliers);
        }
    }

    void run() {
        Progress progress;
        progress.steps.assign(job_.adapters.size(), 0);
        progress.stopped.assign(job_.adapters.size(), false);
        const Window window = plan_window(job_, plan_, infos_, progress, 1);
        Loader loader(files_, std::vector<DatasetId>{DatasetId{0}, DatasetId{1}}, true);
        loader.start(window);
        for (const Microbatch& microbatch : window.microbatches) {
            LossTerms terms;
            for (const Segment& segment : microbatch.segments) {
                terms.denominators.push_back(
                    window.batches[static_cast<std::size_t>(number(segment.adapter))].denominator);
            }
            const PackedBatch packed = loader.next();
            stage_->forward(0, microbatch,
                            {packed.token_ids, packed.targets, packed.positions, packed.sample_ids,
                             packed.offsets},
                            terms);
            stage_->backward(0, {}, {});
        }
    }

    double loss_sum(std::size_t adapter) const {
        double sum = 0.0;
        backend_->download(&sum, stage_->sums().loss + adapter, sizeof(double));
        return sum;
    }
    std::vector<NamedTensor> gradients(std::size_t adapter) const {
        return stage_->bank().download(static_cast<AdapterId>(adapter),
                                       AdapterBank::Part::gradients);
    }

  private:
    /// As after some steps: an adapter that has not taken the model apart.
    void start_factors(AdapterId adapter, bool outliers) {
        auto tensors = stage_->bank().download(adapter, AdapterBank::Part::parameters);
        for (NamedTensor& tensor : tensors) {
            if (tensor.name.find("lora_B") == std::string::npos) continue;
            for (float& value : tensor.values) value *= 0.05F;
        }
        if (outliers) divide_outlier_columns(tensors, plan_.model.hidden_size);
        stage_->bank().upload(adapter, AdapterBank::Part::parameters, tensors);
    }

    void add_adapter(const std::string& task, std::int64_t vocabulary) {
        DatasetJob dataset;
        dataset.name = task;
        dataset.path =
            std::string(LORATRAIN_SOURCE_DIR) + "/inputs/demo_tasks/" + task + "/eval.jsonl";
        dataset.tokenizer = Tokenizer::bytes;
        dataset.max_seq_len = 80;
        AdapterJob adapter = small_adapter(task, 8);
        adapter.dataset = static_cast<DatasetId>(job_.datasets.size());
        adapter.global_batch_size = 32;
        files_.train.emplace_back(dataset.path, dataset, vocabulary);
        files_.eval.emplace_back();
        infos_.push_back({files_.train.back().infos(), {}});
        job_.datasets.push_back(dataset);
        job_.adapters.push_back(adapter);
    }

    Job job_;
    DatasetFiles files_;
    std::vector<DatasetInfo> infos_;
    Plan plan_;
    std::unique_ptr<Backend> backend_;
    std::unique_ptr<Stage> stage_;
};

struct Bounds {
    double cosine;
    double norm;
};

/// Losses and gradients with fp8 linears beside those with dense ones.
void expect_close(const WeightSource& weights, bool outliers, const Bounds& bounds) {
    TrainedStage dense(weights, false, outliers);
    TrainedStage fp8(weights, true, outliers);
    dense.run();
    fp8.run();
    for (const std::size_t a : {0U, 1U}) {
        EXPECT_NEAR(fp8.loss_sum(a) / dense.loss_sum(a), 1.0, 0.01);
        const std::vector<NamedTensor> expected = dense.gradients(a);
        const std::vector<NamedTensor> got = fp8.gradients(a);
        for (std::size_t t = 0; t < got.size(); ++t) {
            const std::vector<float>& x = got[t].values;
            const std::vector<float>& y = expected[t].values;
            const double dot = std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
            EXPECT_GE(dot / (norm(x) * norm(y)), bounds.cosine) << got[t].name;
            EXPECT_NEAR(norm(x) / norm(y), 1.0, bounds.norm) << got[t].name;
        }
    }
}

/// Bounds of a base of 192 channels: the worst tensors have 0.974 and 0.14, and 0.953 and 0.31
/// where some channels are outliers.
TEST(Fp8Linears, GradientsOnATrainedModelAreCloseToDenseOnes) {
    LORATRAIN_SKIP_UNDER_SANITIZERS();
    const TempDir folder;
    const std::string base = folder.file("base.h5");
    import_hf(std::string(LORATRAIN_SOURCE_DIR) + "/inputs/demo_base", base, {.force = true});
    const auto weights = open_base_weights(base);
    expect_close(*weights, false, {0.96, 0.2});
    expect_close(OutlierWeights(*weights), true, {0.94, 0.4});
}

}  // namespace
}  // namespace loratrain::test
