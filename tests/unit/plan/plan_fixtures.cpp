#include "unit/plan/plan_fixtures.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/rng.h"
#include "base/text.h"
#include "plan/stage_layers.h"
#include "plan/text/describe.h"

namespace loratrain::plan_test {

namespace {

std::vector<SampleInfo> random_samples(Draw& draw, int count, int longest) {
    std::vector<SampleInfo> samples;
    for (int i = 0; i < count; ++i) {
        const int tokens =
            draw.one_in(4) ? draw.between(1, longest) : draw.between(1, std::max(1, longest / 4));
        samples.push_back({tokens, draw.between(0, tokens - 1)});
    }
    samples.back() = {std::max(2, longest), 1};
    return samples;
}

bool covers_every_layer(const std::vector<StagePlan>& stages, std::int32_t layers,
                        AdapterId adapter) {
    std::int32_t next = 0;
    for (const StagePlan& stage : stages) {
        const LayerRange range = layers_of(stage, adapter);
        if (range.first != next || range.count < 1) return false;
        next += range.count;
    }
    return next == layers;
}

}  // namespace

Draw::Draw(std::uint64_t seed) : key_(mix_key(seed, 1)) {}

int Draw::between(int low, int high) {
    const auto values = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) + 1;
    return low + static_cast<int>(uniform_int(key_, next_++, values));
}

ModelSpec cheap_head_model(std::int64_t layers) {
    ModelSpec model;
    model.family = "llama";
    model.vocab_size = 8;
    model.hidden_size = 64;
    model.dense().size = 128;
    model.layers = layers;
    model.attention().heads = 4;
    model.attention().kv_heads = 2;
    model.attention().head_dim = 16;
    return model;
}

std::vector<SampleInfo> equal_samples(std::size_t count, std::int32_t tokens) {
    return std::vector<SampleInfo>(count, SampleInfo{tokens, tokens - 1});
}

Case uniform_case(int adapters, int ranks, std::size_t samples, std::int32_t tokens, int batch) {
    Case result;
    result.job.path = "tune.yaml";
    DatasetJob dataset;
    dataset.name = "data";
    dataset.path = "data.jsonl";
    result.job.datasets.push_back(dataset);
    for (int a = 0; a < adapters; ++a) {
        AdapterJob adapter;
        adapter.name = cat("a", a);
        adapter.r = 8;
        adapter.global_batch_size = batch;
        result.job.adapters.push_back(adapter);
    }
    result.model = cheap_head_model(ranks);
    result.datasets.push_back({equal_samples(samples, tokens), {}});
    result.cluster.ranks = ranks;
    return result;
}

Case random_case(std::uint64_t seed) {
    Draw draw(seed);
    Case result = uniform_case(draw.between(1, 24), draw.between(1, 8), 1, 2, 1);
    const int capacity = draw.between(2, 300);
    if (draw.one_in(2)) result.job.parallel.microbatch_tokens = capacity;
    result.model = cheap_head_model(result.cluster.ranks + draw.between(0, 6));
    result.model.vocab_size = draw.one_in(2) ? 8 : 2000;
    if (seed % 8 == 0) result.job.schedule.packing = Packing::milp;
    result.job.datasets.clear();
    result.datasets.clear();
    const int datasets = draw.between(1, 4);
    for (int d = 0; d < datasets; ++d) {
        DatasetJob dataset;
        dataset.name = cat("data", d);
        dataset.path = dataset.name + ".jsonl";
        dataset.shuffle = !draw.one_in(4);
        DatasetInfo info;
        info.train = random_samples(draw, draw.between(1, 60), capacity);
        if (draw.one_in(2)) {
            dataset.eval_path = dataset.name + "_eval.jsonl";
            info.eval = random_samples(draw, draw.between(1, 30), capacity);
        }
        result.job.datasets.push_back(dataset);
        result.datasets.push_back(info);
    }
    for (AdapterJob& adapter : result.job.adapters) {
        adapter.dataset = DatasetId{draw.between(0, datasets - 1)};
        adapter.r = draw.between(1, 32);
        adapter.seed = static_cast<std::uint64_t>(draw.between(0, 3));
        adapter.global_batch_size = draw.between(1, 32);
        adapter.num_train_epochs = 0.25 * draw.between(1, 10);
        if (draw.one_in(3)) adapter.max_steps = draw.between(1, 12);
    }
    return result;
}

void share_first_layer(Plan& plan, std::size_t s, std::int32_t divider) {
    StagePlan& below = plan.replicas[0].stages[s];
    ++below.layer_count;
    below.last_layer_adapters = {0, divider};
    plan.replicas[0].stages[s + 1].first_layer_adapters = {divider};
}

bool cover_every_layer(const std::vector<StagePlan>& stages, std::int32_t layers, int adapters) {
    std::vector<AdapterId> ids{AdapterId{1000},
                               AdapterId{std::numeric_limits<std::int32_t>::max() - 1}};
    for (int a = 0; a < adapters; ++a) ids.push_back(AdapterId{a});
    return std::all_of(stages.begin(), stages.end(),
                       [](const StagePlan& stage) { return whole_layers(stage) >= 1; }) &&
           std::all_of(ids.begin(), ids.end(),
                       [&](AdapterId id) { return covers_every_layer(stages, layers, id); });
}

std::string described(const Case& test) {
    const auto [plan, report] = test.planned();
    return describe(test.job, plan, report, test.datasets);
}

Progress fresh(const Plan& plan) {
    return {0, std::vector<std::int32_t>(plan.adapters.size(), 0),
            std::vector<bool>(plan.adapters.size(), false)};
}

void advance(Progress& progress, const Window& window) {
    progress.round += window.rounds;
    for (const BatchPlan& batch : window.batches) {
        if (!batch.evaluation) ++progress.steps[index(batch.adapter)];
    }
}

std::string problems_of(const Case& test_case) {
    try {
        test_case.plan();
    } catch (const InputError& error) {
        std::vector<std::string> lines;
        for (const Problem& problem : error.problems()) {
            lines.push_back(cat(problem.where, ": ", problem.what, " (", problem.hint, ")"));
        }
        return join(lines, "\n");
    }
    return "";
}

}  // namespace loratrain::plan_test
