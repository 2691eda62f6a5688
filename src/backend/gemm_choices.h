#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/plain_file.h"

namespace loratrain {

/// Choices of GEMM algorithms by classes of products, shared between ranks and runs.

/// A product: m, n, k, row strides, transpositions, accumulation, alignments, as
/// cuda/gemm_cublaslt.h encodes them. The key of a class has its largest m, n and k.
using GemmKey = std::array<std::int64_t, 13>;

/// An algorithm for a class of products, with what was measured for the class's timed product.
struct GemmCandidate {
    std::array<std::uint64_t, 8> algorithm{};
    std::int64_t nanoseconds = 0;  ///< 0 = not timed
    std::int64_t milliwaves = 0;   ///< 1000 = the tiles fill the device once; 0 = not known
    friend bool operator==(const GemmCandidate&, const GemmCandidate&) = default;
};

/// The candidates for a class, the best first.
using GemmCandidates = std::vector<GemmCandidate>;

/// Index of the candidate with the least expected time for a product of a class; none if no
/// candidate can be used. waves(candidate): its waves with the product in thousandths, 0 = not
/// known; none if the library refuses it.
///   expected time = measured time * cost(w) / cost(w of the timed product),  cost(w) = w + ceil(w)
/// where w is the number of waves: the last wave costs half of a full wave in any case, and the
/// other half in proportion to its tiles. A candidate other than the first usable one must be 3%
/// faster. If the waves of a usable candidate are not known, the first usable candidate is taken.
std::optional<std::size_t> pick_candidate(
    const GemmCandidates& candidates,
    const std::function<std::optional<std::int64_t>(const GemmCandidate&)>& waves);

/// Candidates worth trying for another class: up to `most` different ones from the given classes,
/// nearest class first, each within `limit` times the best of its class.
GemmCandidates worth_trying(const std::vector<const GemmCandidates*>& classes, double limit,
                            std::size_t most);

/// The candidates of all classes, shared with other processes through two files:
///   the run's file     shared by its ranks, so that all ranks take the same algorithms.
///                      A run that continues reads it again and so
///                      reproduces its bits
///   the shared file    shared by many runs
/// A line has the candidates of a class. The first line about a class counts, the run's file before
/// the shared file. Lines with another tag (library, device, type, version of the format) are not
/// read.
class GemmChoices {
  public:
    /// `tag`: without spaces. "" = no file.
    GemmChoices(std::string tag, const std::string& run_file, const std::string& shared_file);

    /// The candidates of a class; null if no process has chosen yet. Valid as long as this object.
    const GemmCandidates* find(const GemmKey& key);
    /// Records the candidates of a class, in the files too, unless another process was first;
    /// returns the candidates that count.
    const GemmCandidates& agree(const GemmKey& key, GemmCandidates own);
    /// Candidates of the classes that differ from `key` in m and k alone, nearest m first.
    std::vector<const GemmCandidates*> relatives(const GemmKey& key) const;

  private:
    using Table = std::map<GemmKey, GemmCandidates>;
    void take(const std::vector<std::string>& lines, Table& into) const;
    std::string line_of(const GemmKey& key, const GemmCandidates& candidates) const;
    void append_shared(const GemmKey& key, GemmCandidates& candidates);

    std::string tag_;
    SharedLines run_;
    SharedLines shared_;
    Table of_run_;
    Table of_all_;  ///< the shared file's
};

}  // namespace loratrain
