#include "bench/bench_data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace loratrain {
namespace {

double mean(const std::vector<int>& lengths) {
    return std::accumulate(lengths.begin(), lengths.end(), 0.0) /
           static_cast<double>(lengths.size());
}

TEST(BenchLengths, HaveTheMeansOfTheirDataSets) {
    EXPECT_NEAR(mean(bench_lengths("xsum", 4000, 4096)), 500, 25);
    EXPECT_NEAR(mean(bench_lengths("cnn", 4000, 4096)), 900, 40);
    EXPECT_NEAR(mean(bench_lengths("wikisum", 4000, 4096)), 1650, 60);
}

TEST(BenchLengths, StayWithinTheLongest) {
    const std::vector<int> lengths = bench_lengths("wikisum", 4000, 4096);
    EXPECT_EQ(*std::max_element(lengths.begin(), lengths.end()), 4096);
    EXPECT_GE(*std::min_element(lengths.begin(), lengths.end()), 16);
    const std::vector<int> short_ones = bench_lengths("wikisum", 100, 8);
    EXPECT_EQ(mean(short_ones), 8.0);
}

TEST(BenchLengths, ScaleWithTheLongest) {
    EXPECT_NEAR(mean(bench_lengths("cnn", 4000, 1024)), 225, 10);
    EXPECT_EQ(bench_lengths("fixed", 3, 7), (std::vector<int>{7, 7, 7}));
    EXPECT_EQ(bench_lengths("cnn", 50, 512), bench_lengths("cnn", 50, 512));
}

TEST(BenchData, APresetOfFewerLayersIsOtherwiseItself) {
    CommandLine::Bench bench;
    bench.model = "qwen3-235b-a22b";
    bench.layers = 8;
    bench.weights = "nf4";
    const ModelSpec model = bench_model(bench);
    EXPECT_EQ(model.layers, 8);
    EXPECT_EQ(*model.experts(), (ExpertSpec{128, 8, 1536, true}));
    EXPECT_EQ(model.quantization, (Quantization{WeightFormat::nf4, SourceType::bf16}));
}

TEST(BenchData, MixHasAFilePerDataSet) {
    CommandLine::Bench bench;
    bench.sample_tokens = 32;
    bench.lengths = "mix";
    bench.vocab = 10;
    EXPECT_EQ(RandomData(bench).paths().size(), 3U);
    bench.lengths = "xsum";
    EXPECT_EQ(RandomData(bench).paths().size(), 1U);
}

}  // namespace
}  // namespace loratrain
