#include "train/executor.h"

#include <map>
#include <span>
#include <string>
#include <utility>

#include "base/activity.h"
#include "base/error.h"
#include "comm/collective.h"
#include "data/dataset_files.h"
#include "plan/place.h"
#include "train/checkpoint/stored_adapter.h"

namespace loratrain {

namespace {

template <class... Functions>
struct Overloaded : Functions... {
    using Functions::operator()...;
};
template <class... Functions>  // clang 16 does not find it by itself
Overloaded(Functions...)->Overloaded<Functions...>;

}  // namespace

bool learns_evaluations(const Plan& plan, int rank) {
    const RankPlace place = place_of(plan, rank);
    return place.lane == 0 && place.stage + 1 == plan.replicas[place.replica].stages.size();
}

Executor::Executor(const TrainerParts& parts)
    : parts_(parts), copies_(parts.run.stage().bank(), parts.mpi.rank()) {}

const Window& Executor::own_part(const JointWindow& window) const {
    return window.replicas[place_of(parts_.plan, parts_.mpi.rank()).replica];
}

void Executor::train(const JointWindow& window, const PipelineRunner::Hooks& hooks) {
    const Window& own = own_part(window);
    parts_.run.loader().start(own);
    PipelineRunner::Hooks with_copies = hooks;
    with_copies.on_step = [this](const BatchPlan& batch) { copies_.stepped(batch); };
    parts_.run.runner().run(own, parts_.run.loader(), with_copies);
}

void Executor::refer(const JointWindow& window, const Meanwhile& meanwhile) {
    const BatchPlan& batch = window.common().batches.front();
    std::vector<std::pair<std::int32_t, std::vector<double>>> mine;
    PipelineRunner::Hooks hooks{{}, meanwhile, {}};
    hooks.has_window = has_posted_;
    hooks.on_reference = [&](const SampleRef& sample, std::span<const double> values) {
        mine.emplace_back(sample.index, std::vector(values.begin(), values.end()));
    };
    const std::string& ref_adapter = parts_.job.adapter(batch.adapter).ref_adapter;
    hooks.base_alone = ref_adapter.empty();
    AdapterBank& bank = parts_.run.stage().bank();
    std::vector<NamedTensor> trained;
    if (!ref_adapter.empty()) {
        trained = bank.download(batch.adapter, AdapterBank::Part::parameters);
        bank.read_parameters(batch.adapter, ref_adapter);
    }
    const Window& own = own_part(window);
    parts_.run.loader().start(own, Loader::Evaluates::all_samples);
    parts_.run.runner().run(own, parts_.run.loader(), hooks);
    if (!ref_adapter.empty()) bank.upload(batch.adapter, AdapterBank::Part::parameters, trained);
    std::vector<std::vector<double>> of_samples(static_cast<std::size_t>(batch.samples));
    for (const ReplicaPlan& replica : parts_.plan.replicas) {
        const int last_rank = replica.stages.back().rank;
        for (auto& [sample, values] : broadcast(parts_.mpi, mine, last_rank)) {
            of_samples.at(static_cast<std::size_t>(sample)) = std::move(values);
        }
    }
    ReferenceValues all;
    for (const std::vector<double>& values : of_samples) all.add(values);
    set_references(batch.adapter, all);
}

void Executor::set_references(AdapterId adapter, const ReferenceValues& losses) {
    parts_.run.stage().references().set(reference_of(parts_.job.adapter(adapter)), losses);
}

const ReferenceLosses& Executor::references() const {
    return parts_.run.stage().references();
}

std::vector<GeneratedText> Executor::generate(AdapterId adapter, const Meanwhile& meanwhile) {
    const GenerateJob& wanted = parts_.job.eval.generate;
    std::vector<TextOrder> orders;
    if (parts_.mpi.is_root()) {
        const DatasetId dataset = parts_.job.adapter(adapter).dataset;
        const Dataset& data = *parts_.files.eval.at(index(dataset));
        const std::vector<std::int32_t> stop_tokens =
            parts_.base.stop_tokens_with(wanted.stop_tokens);
        for (Prompt& prompt : prompts_in(data, wanted.samples, parts_.job.dataset(dataset).name)) {
            orders.push_back({adapter, std::move(prompt), wanted.max_new_tokens, stop_tokens, {}});
        }
    }
    return write_texts(broadcast(parts_.mpi, orders), meanwhile);
}

std::vector<GeneratedText> Executor::write_texts(const std::vector<TextOrder>& orders,
                                                 const Meanwhile& meanwhile) {
    const std::size_t replica = place_of(parts_.plan, parts_.mpi.rank()).replica;
    std::vector<std::int64_t> most_tokens;
    for (const ReplicaPlan& of : parts_.plan.replicas) most_tokens.push_back(of.microbatch_tokens);
    const auto dealt = deal_texts(orders, most_tokens);
    std::vector<TextOrder> own;
    for (const std::size_t i : dealt[replica]) own.push_back(orders[i]);
    const MpiSession ranks = parts_.mpi.split(static_cast<int>(replica));
    Generator generator({parts_.job, parts_.plan, parts_.mpi, ranks, parts_.run.stage(),
                         parts_.run.communicator(), meanwhile});
    const std::vector<GeneratedText> written = generator.write(own);
    std::vector<GeneratedText> all(orders.size());
    for (std::size_t r = 0; r < dealt.size(); ++r) {
        const int rank = parts_.plan.replicas[r].stages.front().rank;
        auto i = dealt[r].begin();
        for (GeneratedText& text : broadcast(parts_.mpi, written, rank)) {
            all.at(*i++) = std::move(text);
        }
    }
    return all;
}

std::vector<float> Executor::own_parameters(AdapterId adapter) {
    parts_.run.runner().settle();
    return parts_.run.stage().bank().numbers(adapter, AdapterBank::Part::parameters);
}

std::vector<NamedTensor> Executor::join(AdapterId adapter, const AdapterParts::ByRank& all) const {
    const auto values_of = [&](std::int32_t rank) { return std::span(all.at(rank)); };
    if (parts_.plan.replicas.size() > 1 && std::ssize(all) == parts_.mpi.size()) {
        check_copies(parts_.job, parts_.plan, adapter, values_of);
    }
    return join_values(parts_.job, parts_.plan, adapter, AdapterBank::Part::parameters, values_of);
}

void Executor::admit(const std::vector<AdapterId>& adapters) {
    activity::begin(activity::Task::admit);
    parts_.run.runner().settle();
    parts_.run.stage().bank().admit(adapters);
}

void Executor::release(AdapterId adapter) {
    const bool may_return = parts_.job.parallel.by_workers();
    parts_.run.stage().bank().release(adapter,
                                      may_return ? Residence::absent : Residence::released);
}

void Executor::load(AdapterId adapter, const std::string& directory) {
    activity::begin(activity::Task::admit);
    const AdapterJob& job = parts_.job.adapter(adapter);
    Stage& stage = parts_.run.stage();
    load_stored_adapter(directory + "/" + stored_adapter_name(job), job, parts_.plan.model,
                        stage.plan(), adapter, stage.bank());
}

GrowingRun Executor::growing_run() const {
    return {parts_.job,          parts_.plan,     parts_.files,
            parts_.datasets,     parts_.identity, reads_tokens(parts_.run.stage().plan()),
            parts_.keeps_records};
}

void Executor::check(const InboxFile& file) {
    activity::begin(activity::Task::admit);
    if (!growth_) growth_.emplace(growing_run(), parts_.mpi.is_root());
    growth_->check(file);
}

/// What an order before has left is gone.
AdditionsReport Executor::check_all(const std::vector<InboxFile>& files) {
    growth_.reset();
    AdditionsReport report;
    for (const InboxFile& file : files) {
        std::string& problem = report.problems.emplace_back();
        try {
            check(file);
        } catch (const InputError& error) {
            problem = error.what();
        }
    }
    return report;
}

void Executor::take_addition(const std::string& plan) {
    activity::begin(activity::Task::admit);
    LORATRAIN_CHECK(growth_ && growth_->size() > 0, "no checked addition is left");
    parts_.run.loader().grow([&] {
        growth_->take(plan);
        return datasets_of_adapters(parts_.job);
    });
    parts_.run.stage().bank().add_adapters();
}

void Executor::add_samples(const AddSamples& added) {
    if (!reads_tokens(parts_.run.stage().plan())) return;
    parts_.run.loader().grow([&] {
        Dataset& dataset = parts_.files.train.at(index(added.dataset));
        dataset.forget_before(added.first_needed);
        dataset.add(added.first, added.samples);
        return datasets_of_adapters(parts_.job);
    });
}

void Executor::perform(const WorkerCommand& command, const PipelineRunner::Hooks& hooks,
                       const Tell& tell) {
    const auto send = [&](AdapterId adapter) {
        const activity::Inside exporting(activity::Task::export_adapter, number(adapter));
        tell(whole_piece({adapter}, parts_.mpi.rank(), own_parameters(adapter)));
    };
    const bool copies = place_of(parts_.plan, parts_.mpi.rank()).replica == 0;  // it has it all
    const bool notes_counters = parts_.mpi.is_root();                           // wherever it is
    std::visit(Overloaded{
                   [&](const TrainWindow& c) { train(c.window, hooks); },
                   [&](const ReferWindow& c) { refer(c.window, hooks.between_actions); },
                   [&](const KnownReferences& c) { set_references(c.adapter, c.losses); },
                   [&](const SendAdapter& c) { send(c.adapter); },
                   [&](const CopyStates& c) {
                       if (!copies && !notes_counters) return;
                       copies_.begin(c.adapters, parts_.run.runner(), copies ? tell : Tell());
                   },
                   [&](const KeepParameters& c) {
                       if (copies) copies_.keep(c.adapters, parts_.run.runner(), tell);
                   },
                   [&](const AdmitAdapters& c) { admit(c.adapters); },
                   [&](const ReleaseAdapter& c) { release(c.adapter); },
                   [&](const LoadAdapter& c) { load(c.adapter, c.directory); },
                   [&](const CheckAdditions& c) { tell(check_all(c.files)); },
                   [&](const TakeAddition& c) { take_addition(c.plan); },
                   [&](const DropAdditions&) { growth_.reset(); },
                   [&](const AddSamples& c) { add_samples(c); },
                   [&](const GenerateTexts& c) { generate(c.adapter, hooks.between_actions); },
                   [&](const WriteTexts& c) { write_texts(c.orders, hooks.between_actions); },
                   [](const Finish&) {},
               },
               command);
}

}  // namespace loratrain
