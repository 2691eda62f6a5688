#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "unit/model/small_stage.h"

namespace loratrain::test {

/// All stages of a plan in one process, each on a backend of its own, with the factors of a
/// WholeStage; messages between them are copies.
class StageChain {
  public:
    explicit StageChain(const SmallCase& test_case) : job_(test_case.job), plan_(test_case.plan) {
        for (std::size_t s = 0; s < plan_.replicas[0].stages.size(); ++s) {
            backends_.push_back(make_backend("cpu", {1, 0}));
            stages_.push_back(std::make_unique<Stage>(job_, only_replica(plan_), s,
                                                      *test_case.weights, *backends_.back()));
            fill_factors(job_, stages_.back()->bank());
        }
    }

    std::size_t size() const { return stages_.size(); }
    Stage& stage(std::size_t s) { return *stages_[s]; }
    const Job& job() const { return job_; }

    /// The microbatch of `batch`; only the ends of the chain get its tokens.
    void forward(const WholeStage& batch, std::int32_t slot = 0) {
        const PackedBatch& packed = batch.packed;
        const auto tokens = static_cast<std::int64_t>(packed.positions.size());
        for (std::size_t s = 0; s < size(); ++s) {
            MicrobatchRows rows{{}, {}, packed.positions, packed.sample_ids, packed.offsets};
            if (s == 0 || s + 1 == size()) {
                rows.token_ids = packed.token_ids;
                rows.targets = packed.targets;
            }
            if (s > 0) {
                backends_[s]->copy(
                    {stages_[s]->input(slot, tokens), stages_[s - 1]->output(slot, tokens)});
            }
            stages_[s]->forward(slot, batch.microbatch, rows, batch.terms);
        }
    }

    void backward(std::int64_t tokens, std::int32_t slot = 0) {
        const std::int64_t columns = plan_.model.hidden_size;
        std::vector<float> above(static_cast<std::size_t>(tokens * columns));
        std::vector<float> below(above.size());
        for (std::size_t s = size(); s-- > 0;) {
            const auto message = [&](std::vector<float>& values) {
                return TensorView{values.data(), DType::f32, tokens, columns, columns};
            };
            stages_[s]->backward(slot, message(above), message(below));
            std::swap(above, below);
        }
    }

    /// By adapter, its gradients after microbatches of these segments of `batch` in two slots: the
    /// backward of each comes after the forward of the next.
    std::vector<std::vector<float>> gradients_of(
        WholeStage& batch, const std::vector<std::vector<Segment>>& microbatches) {
        std::int64_t tokens[2] = {};
        for (std::size_t m = 0; m < microbatches.size(); ++m) {
            const auto slot = static_cast<std::int32_t>(m % 2);
            batch.microbatch.segments = microbatches[m];
            batch.pack();
            tokens[slot] = batch.microbatch.tokens();
            forward(batch, slot);
            if (m > 0) backward(tokens[1 - slot], 1 - slot);
        }
        const std::size_t last = (microbatches.size() - 1) % 2;
        backward(tokens[last], static_cast<std::int32_t>(last));
        std::vector<std::vector<float>> result;
        for (std::size_t a = 0; a < job_.adapters.size(); ++a) {
            result.push_back(flat(tensors(a, AdapterBank::Part::gradients)));
        }
        return result;
    }

    /// With a sum of squared gradients as if it were that of all stages.
    void step(AdapterId adapter, double sum) {
        for (std::size_t s = 0; s < size(); ++s) {
            backends_[s]->upload(stages_[s]->sums().total + index(adapter), &sum, sizeof(sum));
            stages_[s]->step(adapter, 1e-2);
        }
    }

    /// The first `count` of the sums that `pick` chooses on the last stage.
    template <class Pick>
    std::vector<double> sums(Pick pick, std::size_t count) const {
        std::vector<double> values(count);
        backends_.back()->download(values.data(), pick(stages_.back()->sums()),
                                   count * sizeof(double));
        return values;
    }

    /// An adapter's tensors of all stages, the first stage's first.
    std::vector<NamedTensor> tensors(std::size_t adapter, AdapterBank::Part part) const {
        std::vector<NamedTensor> all;
        for (const auto& stage : stages_) {
            for (NamedTensor& tensor :
                 stage->bank().download(static_cast<AdapterId>(adapter), part)) {
                all.push_back(std::move(tensor));
            }
        }
        return all;
    }

  private:
    Job job_;
    Plan plan_;
    std::vector<std::unique_ptr<Backend>> backends_;
    std::vector<std::unique_ptr<Stage>> stages_;
};

}  // namespace loratrain::test
