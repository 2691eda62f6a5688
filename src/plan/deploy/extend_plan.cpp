#include "plan/deploy/extend_plan.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "plan/deploy/adapter_checks.h"
#include "plan/memory/engine_memory.h"
#include "plan/schedule/admission_rules.h"

namespace loratrain {

namespace {

constexpr const char* start_again_hint =
    "or stop the run and start it again, with the adapter at the end of the job file";

class Extension {
  public:
    Extension(const Plan& plan, const Job& job, std::span<const DatasetInfo> datasets,
              const std::string& source)
        : job_(job),
          datasets_(datasets),
          first_(plan.adapters.size()),
          plan_(plan),
          checks_(job, plan_.model, source, problems_) {}

    Plan run() {
        check_count();
        check_datasets();
        for (std::size_t a = first_; a < job_.adapters.size(); ++a) check(job_.adapters[a]);
        problems_.throw_if_any();
        for (std::size_t a = first_; a < job_.adapters.size(); ++a) add(job_.adapters[a]);
        plan_memory();
        problems_.throw_if_any();
        return std::move(plan_);
    }

  private:
    const DatasetInfo& data_of(const AdapterJob& adapter) const {
        return datasets_[index(adapter.dataset)];
    }

    void check_count() {
        const auto capacity = static_cast<std::size_t>(plan_.adapter_capacity);
        if (job_.adapters.size() <= capacity) return;
        problems_.add(
            checks_.where("adapters"),
            cat(job_.adapters.size(), " adapters in all, but this run has room for ", capacity),
            "stop the run and start it again: it then has room for more");
    }

    void check_datasets() {
        std::set<DatasetId> used;
        for (std::size_t a = first_; a < job_.adapters.size(); ++a) {
            used.insert(job_.adapters[a].dataset);
        }
        for (const DatasetId id : used) {
            checks_.dataset(id, datasets_[index(id)], longest_taken(),
                            "start a run with microbatch_tokens: # or more for them");
            take_lengths(datasets_[index(id)], plan_);
        }
    }

    std::int64_t longest_taken() const {
        std::int64_t most = 0;
        for (const ReplicaPlan& replica : plan_.replicas) {
            most = std::max(most, replica.microbatch_tokens);
        }
        return most;
    }

    std::vector<ReplicaJob> shapes() const {
        std::vector<ReplicaJob> shapes;
        for (const ReplicaPlan& replica : plan_.replicas) {
            shapes.push_back({replica.tensor, static_cast<int>(replica.stages.size())});
        }
        return shapes;
    }

    void check(const AdapterJob& adapter) {
        checks_.form(adapter);
        checks_.tokens(adapter, shapes());
        checks_.targets(adapter);
        if (!plan_.expert_lora && targets_experts(adapter, plan_.model)) {
            problems_.add(checks_.where(cat("adapters.", adapter.name, ".target_modules")),
                          "names linear layers of experts, but this run began without an adapter "
                          "on experts and has no memory for one",
                          cat("leave gate_proj, up_proj and down_proj out, ", start_again_hint));
        }
        const std::int32_t columns = plan_.replicas.front().saved_columns;  // of all replicas
        if (adapter.largest_rank() > columns) {
            problems_.add(checks_.where(cat("adapters.", adapter.name, ".r")),
                          cat("rank ", adapter.largest_rank(), " is larger than ", columns,
                              ", the largest that this run has room for"),
                          cat("use at most ", columns, ", ", start_again_hint));
        }
    }

    void add(const AdapterJob& adapter) {
        plan_.adapters.push_back(checks_.plan(adapter, data_of(adapter)));
    }

    /// The engine's scratch may grow with the adapters; the room for adapters shrinks by as much.
    void plan_memory() {
        for (const ReplicaView& view : views_of(plan_)) plan_memory(view);
    }

    void plan_memory(const ReplicaView& view) {
        for (const StagePlan& stage : view.replica.stages) {
            MemoryPlan& memory = plan_.memory[static_cast<std::size_t>(stage.rank)];
            memory.engine = engine_layout(job_, view, stage).total();
            const std::uint64_t largest = largest_adapter_bytes(stage, job_, view.lane_model);
            if (plan_.bytes_per_rank > 0) {
                const std::uint64_t room = adapter_room(plan_, stage.rank);
                if (largest > room) refuse(stage.rank, largest, room);
                memory.adapters = std::min(memory.adapters, room);
            }
            memory.adapters = std::max(memory.adapters, largest);
            std::fill_n(&memory, view.replica.tensor, MemoryPlan(memory));  // that of all lanes
        }
    }

    void refuse(std::int32_t rank, std::uint64_t largest, std::uint64_t room) {
        problems_.add(
            checks_.where("adapters"),
            cat("rank ", rank, " has ", human_bytes(room), " for adapters, but the new one needs ",
                human_bytes(largest), ", ", human_bytes(largest - room), " too little"),
            cat("use a smaller r or fewer target_modules, ", start_again_hint));
    }

    const Job& job_;
    std::span<const DatasetInfo> datasets_;
    std::size_t first_;
    Plan plan_;
    Problems problems_;
    AdapterChecks checks_;
};

}  // namespace

void extend_plan(Plan& plan, const Job& job, std::span<const DatasetInfo> datasets,
                 const std::string& source) {
    LORATRAIN_CHECK(datasets.size() == job.datasets.size(), "one DatasetInfo per dataset");
    LORATRAIN_CHECK(job.adapters.size() >= plan.adapters.size(), "a job only grows");
    plan = Extension(plan, job, datasets, source).run();
}

}  // namespace loratrain
