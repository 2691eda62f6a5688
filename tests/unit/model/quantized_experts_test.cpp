#include "unit/model/small_stage.h"

namespace loratrain::test {
namespace {

/// The weights that the codes of a base stand for, as a base that is not quantised.
class EffectiveWeights : public WeightSource {
  public:
    explicit EffectiveWeights(std::shared_ptr<WeightSource> quantized)
        : quantized_(std::move(quantized)), spec_(quantized_->spec()) {
        spec_.quantization.reset();
    }
    const ModelSpec& spec() const override { return spec_; }
    std::string checksum() const override { return "effective"; }
    void read_rows(const std::string& name, std::int64_t first_row,
                   const TensorView& target) const override {
        quantized_->read_rows(name, first_row, target);
    }

  private:
    std::shared_ptr<WeightSource> quantized_;
    ModelSpec spec_;
};

/// With a layer that has no experts between two.
ModelSpec mixture(WeightFormat format) {
    ModelSpec model = quantizable_model(3);
    LayerSpec experts = model.layer(0);
    experts.mlp = ExpertSpec{5, 2, 192, true};
    model.set_layers({experts, model.layer(1), experts});
    model.quantization = {format, SourceType::bf16};
    return model;
}

/// On attention, on experts, on down alone.
std::vector<AdapterJob> adapters_of_experts() {
    std::vector<AdapterJob> adapters{small_adapter("a", 5), small_adapter("b", 3),
                                     small_adapter("c", 4)};
    adapters[0].targets = {true, true, true, true, false, false, false};
    adapters[1].targets = {true, false, false, false, true, true, true};
    adapters[2].targets = {false, false, false, false, false, false, true};
    return adapters;
}

void expect_equal_gradients(const SmallCase& quantized, const SmallCase& dense) {
    WholeStage a(quantized);
    WholeStage b(dense);
    for (std::size_t adapter = 0; adapter < quantized.job.adapters.size(); ++adapter) {
        EXPECT_EQ(a.forward(adapter), b.forward(adapter));
    }
    a.backward();
    b.backward();
    for (std::size_t adapter = 0; adapter < quantized.job.adapters.size(); ++adapter) {
        EXPECT_GT(norm(flat(a.gradients(adapter))), 0.0);
        EXPECT_EQ(flat(a.gradients(adapter)), flat(b.gradients(adapter)));
    }
}

TEST(QuantizedExperts, TrainAsOnTheWeightsThatCodesStandFor) {
    for (const WeightFormat format :
         {WeightFormat::nf4, WeightFormat::int8, WeightFormat::e4m3, WeightFormat::e4m3_block}) {
        for (const Precision precision : {Precision::fp32, Precision::bf16}) {
            std::vector<AdapterJob> adapters = adapters_of_experts();
            for (const bool all : {true, false}) {
                if (!all) adapters.resize(1);
                const SmallCase quantized(mixture(format), adapters, 1, precision);
                ModelSpec model = mixture(format);
                model.quantization.reset();
                SmallCase dense(model, adapters, 1, precision);
                dense.weights = std::make_shared<EffectiveWeights>(quantized.weights);
                expect_equal_gradients(quantized, dense);
            }
        }
    }
}

}  // namespace
}  // namespace loratrain::test
