
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <iomanip>
#include <sstream>

#include "app/commands.h"
#include "backend/gpu_info.h"
#include "backend/make_backend.h"
#include "base/log.h"
#include "base/version.h"
#include "io/files.h"
#include "io/json_text.h"
#include "selftest/operator_checks.h"
#include "selftest/reference_training.h"
#include "selftest/tiny_model.h"
#include "train/orders/stop_request.h"

namespace loratrain {

namespace {

struct Errors {
    double losses = 0.0;
    double grad_norms = 0.0;
    double weights = 0.0;
};

struct Engine {
    std::string name;  ///< "cuda-bf16", also of its folder
    std::string backend;
    DType compute = DType::f32;
    /// What the tests of the program allow beside PEFT in fp64.
    Errors limits() const {
        return compute == DType::f32 ? Errors{2e-6, 1e-5, 5e-5} : Errors{2e-2, 2.5e-1, 2.5e-1};
    }
};

std::string scientific(double value) {
    std::ostringstream out;
    out << std::scientific << std::setprecision(1) << value;
    return out.str();
}

/// Tells of every check as it ends, and counts.
class Checks {
  public:
    void report(bool passed, const std::string& what) {
        ++checks_;
        failed_ += passed ? 0 : 1;
        log::block(cat(passed ? "  ok      " : "  FAILED  ", what));
    }
    void report(const std::string& what, double error, double limit) {
        report(error <= limit,
               cat(what, ": error ", scientific(error), ", limit ", scientific(limit)));
    }
    /// What `body` throws is a failed check.
    template <class Body>
    void attempt(const std::string& what, const Body& body) {
        try {
            body();
        } catch (const std::exception& error) {
            report(false, cat(what, ": ", error.what()));
        }
    }
    int checks() const { return checks_; }
    int failed() const { return failed_; }

  private:
    int checks_ = 0;
    int failed_ = 0;
};

/// A new folder below $TMPDIR.
std::string make_scratch() {
    std::string path =
        (std::filesystem::temp_directory_path() / "loratrain-selftest-XXXXXX").string();
    if (::mkdtemp(path.data()) == nullptr) {
        throw InputError(path, "cannot be created", "let TMPDIR name a folder that may be written");
    }
    return path;
}

/// What the runs train, and what must come of it.
struct TinyJob {
    TinyModel model = make_tiny_model();
    TinyTraining training;
    std::vector<TinyAdapter> adapters = make_tiny_adapters(model);
    std::vector<std::vector<TinySample>> samples;
    std::vector<TinyAdapter> trained;
    std::vector<ReferenceCurve> curves;

    TinyJob() {
        for (std::size_t i = 0; i < adapters.size(); ++i) {
            samples.push_back(make_tiny_samples(model.spec.vocab_size, i));
            trained.push_back(adapters[i]);
            curves.push_back(train_reference(model, training, samples[i], trained[i]));
        }
    }
};

/// Runs commands of the program in this process, silently.
class TinyRuns {
  public:
    TinyRuns(const MpiSession& mpi, std::string folder, const TinyJob& job)
        : mpi_(mpi), folder_(std::move(folder)), job_(job) {
        write_tiny_model(job_.model, folder_ + "/hf");
        for (std::size_t i = 0; i < job_.adapters.size(); ++i) {
            const std::string& name = job_.adapters[i].name;
            write_tiny_adapter(job_.adapters[i], folder_ + "/start-" + name);
            write_tiny_samples(job_.samples[i], folder_ + "/" + name + ".jsonl");
        }
    }

    ExitCode import_model() const {
        return run({"import-hf", folder_ + "/hf", folder_ + "/base.h5"}, import_command);
    }

    /// Trains in the folder `name`.
    ExitCode train(const Engine& engine, const std::string& name,
                   const std::vector<std::string>& options = {}) const {
        const std::string path = folder_ + "/" + name + ".yaml";
        write_text_atomic(path, dump_json(job_of(engine, name), 1));
        std::vector<std::string> words{path};
        words.insert(words.end(), options.begin(), options.end());
        return run(words, train_command);
    }

    Errors errors_of(const std::string& name) const {
        Errors worst;
        for (std::size_t i = 0; i < job_.adapters.size(); ++i) {
            const std::string folder = adapter_folder(name, i);
            compare_curve(folder + "/metrics.jsonl", job_.curves[i], worst);
            const TinyAdapter got = read_tiny_adapter(job_.adapters[i], folder);
            for (std::size_t f = 0; f < got.factors.size(); ++f) {
                const TinyFactors& want = job_.trained[i].factors[f];
                worst.weights =
                    std::max({worst.weights, relative_error(got.factors[f].a.values, want.a.values),
                              relative_error(got.factors[f].b.values, want.b.values)});
            }
        }
        return worst;
    }

    /// Both runs have exported the same files, to the bit.
    bool same_bits(const std::string& one, const std::string& other) const {
        for (std::size_t i = 0; i < job_.adapters.size(); ++i) {
            const std::string file = "/adapter_model.safetensors";
            if (read_text(adapter_folder(one, i) + file) !=
                read_text(adapter_folder(other, i) + file)) {
                return false;
            }
        }
        return true;
    }

  private:
    std::string adapter_folder(const std::string& name, std::size_t adapter) const {
        return folder_ + "/" + name + "/adapters/" + job_.adapters[adapter].name;
    }

    template <class CommandOf>
    ExitCode run(const std::vector<std::string>& words, const CommandOf& command) const {
        std::vector<const char*> arguments{"loratrain"};
        for (const std::string& word : words) arguments.push_back(word.c_str());
        const CommandLine line =
            parse_command_line(static_cast<int>(arguments.size()), arguments.data());
        const log::Silence silence;
        return command(line, mpi_);
    }

    Json job_of(const Engine& engine, const std::string& name) const {
        const TinyTraining& training = job_.training;
        Json job{{"model",
                  {{"weights", folder_ + "/base.h5"},
                   {"precision", engine.compute == DType::f32 ? "fp32" : "bf16"}}},
                 {"run", {{"dir", folder_ + "/" + name}, {"backend", engine.backend}}},
                 {"schedule", {{"costs", "built-in"}}},
                 {"logging", {{"tensorboard", false}, {"live", "never"}}},
                 {"defaults",
                  {{"learning_rate", training.learning_rate},
                   {"lr_scheduler_type", "constant"},
                   {"weight_decay", training.weight_decay},
                   {"adam_beta1", training.beta1},
                   {"adam_beta2", training.beta2},
                   {"adam_epsilon", training.epsilon},
                   {"max_grad_norm", training.max_grad_norm},
                   {"max_steps", training.steps}}}};
        for (std::size_t i = 0; i < job_.adapters.size(); ++i) {
            const TinyAdapter& adapter = job_.adapters[i];
            job["datasets"][adapter.name] = {{"path", folder_ + "/" + adapter.name + ".jsonl"}};
            Json targets = Json::array();
            for (const TinyFactors& factors : adapter.factors) {
                if (factors.layer == 0) targets.push_back(module_name(factors.linear));
            }
            job["adapters"].push_back({{"name", adapter.name},
                                       {"dataset", adapter.name},
                                       {"r", adapter.rank},
                                       {"lora_alpha", adapter.alpha},
                                       {"target_modules", targets},
                                       {"global_batch_size", job_.samples[i].size()},
                                       {"init_from", folder_ + "/start-" + adapter.name}});
        }
        return job;
    }

    static void compare_curve(const std::string& path, const ReferenceCurve& want, Errors& worst) {
        std::istringstream lines(read_text(path));
        std::size_t step = 0;
        for (std::string text; std::getline(lines, text);) {
            const OrderedJson line = parse_ordered_json(text);
            if (!line.contains("loss")) continue;
            if (step == want.losses.size()) break;
            const double loss = line["loss"].get<double>();
            const double norm = line["grad_norm"].get<double>();
            worst.losses = std::max(worst.losses, std::fabs(loss / want.losses[step] - 1.0));
            worst.grad_norms =
                std::max(worst.grad_norms, std::fabs(norm / want.grad_norms[step] - 1.0));
            ++step;
        }
        if (step != want.losses.size()) {
            throw InputError(path, cat("has ", step, " steps, expected ", want.losses.size()));
        }
    }

    const MpiSession& mpi_;
    std::string folder_;
    const TinyJob& job_;
};

void check_engine(const Engine& engine, Checks& checks) {
    checks.attempt(engine.name, [&] {
        const auto backend = make_backend(engine.backend, {1, 0, engine.compute});
        log::block(cat(engine.name, ": ", backend->description()));
        for (const OperatorCheck& check : check_operators(*backend)) {
            checks.report(check.name, check.error, check.limit);
        }
    });
}

void check_training(const Engine& engine, const TinyJob& job, const TinyRuns& runs,
                    Checks& checks) {
    const std::string whole = engine.name + "-whole";
    const std::string resumed = engine.name + "-resumed";
    checks.attempt("training", [&] {
        const ExitCode code = runs.train(engine, whole);
        checks.report(code == ExitCode::done,
                      cat("trains ", job.adapters.size(), " adapters for ", job.training.steps,
                          " steps: exit code ", static_cast<int>(code)));
        const Errors errors = runs.errors_of(whole);
        const Errors limits = engine.limits();
        checks.report("losses of all steps", errors.losses, limits.losses);
        checks.report("gradient norms", errors.grad_norms, limits.grad_norms);
        checks.report("exported weights", errors.weights, limits.weights);
    });
    checks.attempt("resuming", [&] {
        const ExitCode stopped = runs.train(engine, resumed, {"--stop-after", "2"});
        const ExitCode done = runs.train(engine, resumed);
        checks.report(stopped == ExitCode::stopped_resume_me && done == ExitCode::done,
                      cat("stops and goes on: exit codes ", static_cast<int>(stopped), ", ",
                          static_cast<int>(done)));
        checks.report(runs.same_bits(whole, resumed),
                      "what it exports then is the same to the bit");
    });
}

std::vector<Engine> engines_here() {
    std::vector<Engine> engines{{"cpu", "cpu", DType::f32}};
    const GpuInfo gpu = gpu_info(0);
    require_no_failure(gpu, "this host");
    if (gpu.visible > 0) {
        engines.push_back({"cuda-fp32", "cuda", DType::f32});
        engines.push_back({"cuda-bf16", "cuda", DType::bf16});
    } else {
        log::block("no GPU here, or a build without CUDA: the CPU alone is checked");
    }
    return engines;
}

}  // namespace

ExitCode selftest_command(const MpiSession& mpi) {
    if (mpi.size() > 1) {
        throw InputError("selftest", cat("runs on one rank, not ", mpi.size()),
                         "write loratrain selftest without a launcher");
    }
    const auto begin = std::chrono::steady_clock::now();
    log::block(cat("loratrain ", version_text(), " (", git_hash(), "), ", build_text()));
    const std::string folder = make_scratch();
    Checks checks;
    checks.attempt("self test", [&] {
        const TinyJob job;
        const TinyRuns runs(mpi, folder, job);
        const ExitCode imported = runs.import_model();
        checks.report(imported == ExitCode::done, "imports a Hugging Face folder");
        for (const Engine& engine : engines_here()) {
            check_engine(engine, checks);
            check_training(engine, job, runs, checks);
        }
    });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    const std::string took =
        cat(" of ", checks.checks(), " checks in ", format_fixed(seconds.count(), 1), " s");
    if (checks.failed() == 0) {
        remove_directory(folder);
        log::block(cat("passed: all", took));
        return ExitCode::done;
    }
    log::block(cat("FAILED: ", checks.failed(), took, "; what the runs wrote is in ", folder));
    return ExitCode::error;
}

}  // namespace loratrain
