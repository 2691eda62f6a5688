#include "session/weight_check.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/system.h"
#include "base/task_progress.h"
#include "base/tensor.h"
#include "base/threads.h"
#include "comm/collective.h"
#include "io/files.h"
#include "io/json_text.h"
#include "io/raw_file.h"
#include "measure/cost_cache.h"

namespace loratrain {

namespace fs = std::filesystem;

namespace {

constexpr const char* notes_name = "checked_weights.json";
constexpr std::uint64_t large_file = std::uint64_t{1} << 30U;  ///< worth a word before

/// "" = nowhere.
std::string notes_path() {
    const std::string costs = cost_cache_path();
    return costs.empty() ? "" : fs::path(costs).replace_filename(notes_name).string();
}

/// What is noted: per file its stamp.
OrderedJson read_notes() {
    const std::string path = notes_path();
    if (path.empty() || !fs::exists(path)) return OrderedJson::object();
    OrderedJson notes = parse_json_or_discard(read_text(path));
    if (notes.is_object()) return notes;
    log::warn(path + ": cannot be read, so base weights are compared with their checksums again");
    return OrderedJson::object();
}

std::string canonical(const Job& job) {
    return fs::canonical(job.model.weights).string();
}

/// Changes whenever the file may have changed.
std::string stamp(const Job& job, const WeightSource& weights) {
    return cat(InputFile(job.model.weights).identity(), " ", weights.checksum());
}

bool is_checked(const Job& job, const WeightSource& weights) {
    const OrderedJson notes = read_notes();
    const auto found = notes.find(canonical(job));
    return found != notes.end() && *found == stamp(job, weights);
}

void note(const Job& job, const WeightSource& weights) {
    const std::string path = notes_path();
    if (path.empty()) return;
    const auto write = [&] {
        OrderedJson notes = OrderedJson::object();
        const OrderedJson before = read_notes();
        for (const auto& [file, known] : before.items()) {
            if (fs::exists(file)) notes[file] = known;
        }
        notes[canonical(job)] = stamp(job, weights);
        const std::string folder = fs::path(path).parent_path().string();
        if (!folder.empty()) make_directory(folder);
        write_text_atomic(path, dump_json(notes, 2) + "\n");
    };
    warn_at_failure(write, "the next start compares the base weights with their checksums again: ");
}

double element_count_of(const BaseTensor& tensor) {
    return static_cast<double>(element_count(tensor.shape));
}

/// The tensors that lie in this rank's share of all elements.
std::vector<const BaseTensor*> share_of(const MpiSession& mpi,
                                        const std::vector<BaseTensor>& tensors, double all) {
    std::vector<const BaseTensor*> share;
    double before = 0.0;
    for (const BaseTensor& tensor : tensors) {
        if (static_cast<int>(before / all * mpi.size()) == mpi.rank()) share.push_back(&tensor);
        before += element_count_of(tensor);
    }
    return share;
}

/// Compares this rank's share of a file of so many bytes.
void check_share(const MpiSession& mpi, const WeightSource& weights, const std::string& what,
                 std::uint64_t bytes) {
    const std::vector<BaseTensor> tensors = base_tensors(weights.spec());
    double all = 0.0;
    for (const BaseTensor& tensor : tensors) all += element_count_of(tensor);
    const double element_bytes = static_cast<double>(bytes) / all;
    const std::vector<const BaseTensor*> share = share_of(mpi, tensors, all);
    TaskProgress progress("comparing " + what, bytes / static_cast<std::uint64_t>(mpi.size()));
    std::vector<Problems> found(share.size());
    std::atomic<std::uint64_t> not_shown = 0;
    const auto shows = std::this_thread::get_id();
    const auto threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    parallel_for(share.size(), threads, [&](std::size_t i) {
        collect(found[i], [&] { weights.check_contents(share[i]->name); });
        not_shown += static_cast<std::uint64_t>(element_bytes * element_count_of(*share[i]));
        if (std::this_thread::get_id() == shows) progress.add(not_shown.exchange(0));
    });
    Problems problems;
    for (const Problems& of_tensor : found) {
        for (const Problem& problem : of_tensor.list()) {
            problems.add(problem.where, problem.what, problem.hint);
        }
    }
    problems.throw_if_any();
}

}  // namespace

std::string check_weights(const MpiSession& mpi, const Job& job, const WeightSource* weights) {
    if (job.model.has_random_weights()) return "";
    bool wanted = false;
    agree(mpi, [&] { wanted = mpi.is_root() && !is_checked(job, *weights); });
    if (!any_rank(mpi, wanted)) return "";
    const auto start = std::chrono::steady_clock::now();
    const std::string what = "the values of " + job.model.weights + " with their checksums";
    const std::uint64_t bytes = mpi.is_root() ? fs::file_size(job.model.weights) : 0;
    if (bytes >= large_file) log::info(cat("comparing ", what, " (", human_bytes(bytes), ")"));
    agree(mpi, [&] {
        std::unique_ptr<WeightSource> mine;
        if (weights == nullptr) mine = open_base_weights(job.model.weights);
        check_share(mpi, weights == nullptr ? *mine : *weights, what, bytes);
    });
    if (!mpi.is_root()) return "";
    note(job, *weights);
    return cat("compared ", what, ": ", human_bytes(bytes), " in ",
               format_fixed(seconds_since(start), 1),
               " s; later starts need not, while the file stays as it is");
}

}  // namespace loratrain
