#include "train/performer.h"

#include <sstream>

#include "base/activity.h"
#include "base/error.h"
#include "comm/collective.h"
#include "measure/measured_trace.h"
#include "plan/place.h"
#include "train/orders/grow_run.h"

namespace loratrain {

namespace {

template <class... Functions>
struct Overloaded : Functions... {
    using Functions::operator()...;
};

std::string eval_sums_text(const std::vector<EvalSums>& sums) {
    std::string text;
    for (const EvalSums& s : sums) {
        text += cat(format_exact(s.loss_sum), " ", s.exact_samples, " ", s.samples, "\n");
    }
    return text;
}

std::vector<EvalSums> eval_sums_from_text(const std::string& text) {
    std::istringstream lines(text);
    std::vector<EvalSums> sums;
    std::string loss;  // streams do not read "nan" as a number
    for (EvalSums s; lines >> loss >> s.exact_samples >> s.samples;) {
        s.loss_sum = std::stod(loss);
        sums.push_back(s);
    }
    return sums;
}

/// Per batch.
void add_sums(const std::vector<EvalSums>& part, std::vector<EvalSums>& sums) {
    LORATRAIN_CHECK(part.size() == sums.size(), part.size(), " sums of ", sums.size(), " batches");
    for (std::size_t b = 0; b < sums.size(); ++b) {
        sums[b].loss_sum += part[b].loss_sum;
        sums[b].exact_samples += part[b].exact_samples;
        sums[b].samples += part[b].samples;
    }
}

}  // namespace

const Window& Performer::own_part(const JointWindow& window) const {
    return window.replicas[place_of(parts_.plan, parts_.mpi.rank()).replica];
}

void Performer::train(const JointWindow& window, const PipelineRunner::Hooks& hooks) {
    const Window& own = own_part(window);
    parts_.run.loader().start(own);
    parts_.run.runner().run(own, parts_.run.loader(), hooks);
}

std::vector<EvalSums> Performer::evaluate(const JointWindow& window, const Meanwhile& meanwhile) {
    const Window& own = own_part(window);
    parts_.run.loader().start(own);
    const std::vector<EvalSums> mine =
        parts_.run.runner().run(own, parts_.run.loader(), {{}, meanwhile});
    std::vector<EvalSums> sums(own.batches.size());
    for (const ReplicaPlan& replica : parts_.plan.replicas) {
        const int last_rank = replica.stages.back().rank;
        const std::string text = broadcast_text(parts_.mpi, eval_sums_text(mine), last_rank);
        add_sums(eval_sums_from_text(text), sums);
    }
    return sums;
}

void Performer::save(const RunState& state) {
    activity::begin(activity::Task::checkpoint);
    if (parts_.job.logging.trace) {
        write_trace(parts_.mpi, parts_.job, parts_.plan, parts_.run.recorder());
    }
    save_checkpoint(parts_.mpi, parts_.job, parts_.plan, parts_.run.stage().bank(), state,
                    parts_.identity);
}

std::vector<NamedTensor> Performer::gather(AdapterId adapter) {
    activity::begin(activity::Task::export_adapter, number(adapter));
    return gather_adapter(parts_.mpi, parts_.job, parts_.plan, parts_.run.stage().bank(), adapter,
                          AdapterBank::Part::parameters);
}

void Performer::admit(const std::vector<AdapterId>& adapters) {
    activity::begin(activity::Task::admit);
    parts_.run.stage().bank().admit(adapters);
}

void Performer::release(AdapterId adapter) {
    parts_.run.stage().bank().release(adapter);
}

void Performer::add(const InboxFile& file, const std::function<void()>& accept) {
    activity::begin(activity::Task::admit);
    parts_.run.loader().stop();
    grow_run(parts_.mpi,
             {parts_.job, parts_.plan, parts_.files, parts_.datasets, parts_.identity,
              reads_tokens(parts_.run.stage().plan()), accept},
             file.text, file.path);
    parts_.run.loader().restart(datasets_of_adapters(parts_.job));
    parts_.run.stage().bank().add_adapters();
}

void Performer::perform(const Directive& directive, const Meanwhile& meanwhile) {
    const auto add_or_refuse = [this](const InboxFile& file) {
        try {
            add(file, {});
        } catch (const InputError&) {
            return;  // rank 0 has the same and says it
        }
    };
    std::visit(Overloaded{
                   [&](const TrainWindow& d) {
                       train(d.window, {{}, meanwhile});
                   },
                   [&](const EvaluateWindow& d) { evaluate(d.window, [] {}); },
                   [&](const SaveCheckpoint&) { save({}); },
                   [&](const GatherAdapter& d) { gather(d.adapter); },
                   [&](const AdmitAdapters& d) { admit(d.adapters); },
                   [&](const ReleaseAdapter& d) { release(d.adapter); },
                   [&](const AddAdapters& d) { add_or_refuse(d.file); },
                   [](const Finish&) {},
               },
               directive);
}

}  // namespace loratrain
