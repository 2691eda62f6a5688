#include "train/records/kept_references.h"

#include <filesystem>
#include <sstream>

#include "base/error.h"
#include "base/text.h"
#include "config/job_words.h"
#include "io/adapters/adapter_file.h"
#include "io/checksum.h"
#include "io/files.h"

namespace loratrain {

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

std::optional<std::vector<double>> KeptReferences::read(std::size_t samples) const {
    if (!std::filesystem::exists(path_)) return std::nullopt;
    std::istringstream lines(read_text(path_));
    std::vector<double> losses;
    try {
        // Streams do not read "nan" as a number.
        for (std::string line; lines >> line;) losses.push_back(std::stod(line));
    } catch (const std::logic_error&) {
        return std::nullopt;
    }
    if (losses.size() != samples) return std::nullopt;
    return losses;
}

void KeptReferences::write(const std::vector<double>& losses) const {
    std::string text;
    for (const double loss : losses) text += format_exact(loss) + "\n";
    std::filesystem::create_directories(std::filesystem::path(path_).parent_path());
    write_text_atomic(path_, text);
}

}  // namespace loratrain
