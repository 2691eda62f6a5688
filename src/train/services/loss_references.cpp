#include "train/services/loss_references.h"

#include <filesystem>
#include <sstream>
#include <utility>

#include "base/activity.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "config/job_words.h"
#include "io/adapters/adapter_file.h"
#include "io/checksum.h"
#include "io/files.h"
#include "plan/schedule/evaluations.h"
#include "plan/schedule/plan_window.h"

namespace loratrain {

void References::refer_newcomers() {
    for (const AdapterId a : worker_.adapters.running()) {
        if (knows(a)) continue;
        const ReferenceId id = reference_of(worker_.job(a));
        known_.insert(id);
        const KeptReferences kept(worker_.parts.job, worker_.parts.identity, id);
        const bool keeps = worker_.is_joint();
        const std::string what = cat("dataset ", worker_.parts.job.dataset(id.dataset).name,
                                     ": log-probabilities under ",
                                     id.ref_adapter.empty() ? "the base model" : id.ref_adapter);
        const DatasetInfo& info = worker_.parts.datasets[index(id.dataset)];
        if (const auto known = keeps ? kept.read(info.train.size() + info.eval.size())
                                     : std::optional<ReferenceValues>{}) {
            worker_.ranks.order(KnownReferences{a, *known});
            worker_.ranks.perform_ordered();
            log::info(what + " read");
            continue;
        }
        const auto start = std::chrono::steady_clock::now();
        refer(a);
        if (keeps) kept.write(worker_.ranks.references(id));
        log::info(cat(what, " found in ", format_fixed(seconds_since(start), 1), " s"));
    }
}

void References::refer(AdapterId adapter) {
    activity::begin(activity::Task::plan);
    const RunParts& parts = worker_.parts;
    worker_.ranks.order(ReferWindow{plan_joint_eval_window(
        parts.job, parts.plan, all_samples_as_eval(parts.datasets), {adapter})});
    worker_.ranks.perform_ordered();
}

bool References::knows(AdapterId adapter) const {
    const AdapterJob& job = worker_.job(adapter);
    return !job.loss.has_reference() || known_.contains(reference_of(job));
}

// ---- in the run directory

KeptReferences::KeptReferences(const Job& job, const RunIdentity& identity, const ReferenceId& id) {
    const DatasetJob& of = job.dataset(id.dataset);
    const std::size_t i = index(id.dataset);
    std::string key =
        cat(identity.weights_checksum, "\n", word_of(precision_words, job.model.precision), "\n",
            identity.data_checksums.at(i), "\n", identity.eval_checksums.at(i), "\n",
            of.max_seq_len, " ", word_of(over_length_words, of.over_length), " ", of.kl_batch_size);
    if (!id.ref_adapter.empty()) key += "\n" + adapter_checksum(id.ref_adapter);
    Checksum checksum;
    checksum.update(key.data(), key.size());
    path_ = job.run.dir + "/references/" + checksum.hex() + ".txt";
}

std::optional<ReferenceValues> KeptReferences::read(std::size_t samples) const {
    if (!std::filesystem::exists(path_)) return std::nullopt;
    std::istringstream lines(read_text(path_));
    ReferenceValues losses;
    try {
        for (std::string line; std::getline(lines, line);) {
            std::istringstream words(line);
            std::vector<double> values;
            // Streams do not read "nan" as a number.
            for (std::string word; words >> word;) values.push_back(std::stod(word));
            losses.add(values);
        }
    } catch (const std::logic_error&) {
        return std::nullopt;
    }
    if (losses.ends.size() != samples) return std::nullopt;
    return losses;
}

void KeptReferences::write(const ReferenceValues& losses) const {
    std::string text;
    for (std::size_t sample = 0; sample < losses.ends.size(); ++sample) {
        const char* before = "";
        for (const double value : losses.of(sample)) {
            text += std::exchange(before, " ") + format_exact(value);
        }
        text += "\n";
    }
    std::filesystem::create_directories(std::filesystem::path(path_).parent_path());
    write_text_atomic(path_, text);
}

}  // namespace loratrain
