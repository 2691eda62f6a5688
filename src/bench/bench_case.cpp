#include "bench/bench_case.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/text.h"
#include "config/job_words.h"
#include "plan/deploy/make_plan.h"
#include "plan/memory/memory_model.h"
#include "session/cluster.h"

namespace loratrain {

namespace {

constexpr std::array ranks_in_turn{8, 16, 32, 64, 128};

template <class E, std::size_t N>
E value_of(const std::array<Word<E>, N>& words, const std::string& text) {
    for (const Word<E>& word : words) {
        if (text == word.text) return word.value;
    }
    return words.front().value;
}

Job bench_job(const CommandLine::Bench& bench, const std::vector<std::string>& data, bool lora) {
    const ModelSpec model = bench_model(bench);
    Job job;
    job.path = "bench";
    job.model.precision = value_of(precision_words, bench.precision);
    job.parallel.recompute = value_of(recompute_words, bench.recompute);
    job.parallel.offload = offload_of(bench.offload).value_or(Offload{});
    job.model.residency = residency_of(bench.residency).value_or(Residency{});
    job.schedule.policy = value_of(schedule_policy_words, bench.policy);
    job.schedule.packing = value_of(packing_words, bench.packing);
    if (bench.microbatch_tokens > 0) job.parallel.microbatch_tokens = bench.microbatch_tokens;
    for (std::size_t d = 0; d < data.size(); ++d) {
        DatasetJob dataset;
        dataset.name = cat("random-", d);
        dataset.path = data[d];
        dataset.max_seq_len = bench.sample_tokens;
        dataset.shuffle = false;
        job.datasets.push_back(dataset);
    }
    for (int i = 0; i < bench.adapters; ++i) {
        AdapterJob adapter;
        adapter.name = cat("adapter-", i);
        adapter.dataset = static_cast<DatasetId>(static_cast<std::size_t>(i) % data.size());
        adapter.r = bench.mixed_ranks
                        ? ranks_in_turn[static_cast<std::size_t>(i) % ranks_in_turn.size()]
                        : bench.rank;
        adapter.global_batch_size = bench.samples;
        adapter.max_steps = bench_rounds(bench);
        adapter.lora_dropout = bench.dropout;
        adapter.use_dora = bench.dora;
        adapter.optim = value_of(optim_words, bench.optim);
        if (bench.vera) adapter.peft_type = PeftType::vera;
        adapter.form = form_of(adapter);
        for (int l = 0; bench.target_experts && l < linear_count; ++l) {
            adapter.targets[static_cast<std::size_t>(l)] =
                has_target(model, static_cast<Linear>(l));
        }
        if (!lora) adapter.targets.fill(false);
        job.adapters.push_back(adapter);
    }
    return job;
}

}  // namespace

NumberTypes bench_types(const CommandLine::Bench& bench) {
    return number_types(value_of(precision_words, bench.precision), bench_backend(bench));
}

BenchCase::BenchCase(const CommandLine::Bench& bench, const MpiSession& mpi, const RandomData& data,
                     bool lora, std::optional<std::int64_t> microbatch_tokens)
    : job(bench_job(bench, data.paths(), lora)) {
    if (microbatch_tokens) job.parallel.microbatch_tokens = microbatch_tokens;
    inputs.weights = synthetic_base_weights(bench_model(bench), 1);
    inputs.files = open_datasets(job, inputs.weights->spec().vocab_size);
    inputs.infos = infos_of(job, inputs.files);
    cluster = describe_cluster(mpi, bench_backend(bench));
    make();
}

void BenchCase::plan_with(const CostModel& costs) {
    cluster.costs = costs;
    make();
}

void BenchCase::make() {
    plan = make_plan(job, inputs.weights->spec(), inputs.infos, cluster);
    const std::size_t planned = plan.first_admitted.size();
    if (planned < std::min(job.adapters.size(), most_admitted(job))) {
        const std::string fit = cat(planned, planned == 1 ? " does" : " do");
        throw InputError("--adapters",
                         cat(job.adapters.size(), " do not fit in memory at once; ", fit),
                         "give fewer, or a smaller --rank");
    }
    plan.first_admitted.clear();
    for (std::size_t a = 0; a < job.adapters.size(); ++a) {
        plan.first_admitted.push_back(static_cast<AdapterId>(a));
    }
    const ReplicaView view = only_replica(plan);
    for (std::size_t s = 0; s < plan.memory.size(); ++s) {
        plan.memory[s] = stage_memory(job, view, s);
    }
}

}  // namespace loratrain
