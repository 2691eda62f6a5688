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

/// m, n, k, row strides, transpositions, accumulation, alignments; what they mean is the library's
/// matter (backend/cuda/gemm_cublaslt.h). Of a class of products m, n and k are its largest.
using GemmKey = std::array<std::int64_t, 13>;

/// An algorithm for a class of products, as it was with the product that was timed of it.
struct GemmCandidate {
    std::array<std::uint64_t, 8> algorithm{};
    std::int64_t nanoseconds = 0;  ///< 0 = not timed
    std::int64_t milliwaves = 0;   ///< 1000 = its tiles fill the device once; 0 = not known
    friend bool operator==(const GemmCandidate&, const GemmCandidate&) = default;
};

/// Those that come into question for a class, the best first.
using GemmCandidates = std::vector<GemmCandidate>;

/// The candidate for a product of a class: the one that is expected to take the least time, where
/// another than the first that can be used must be 3% better. A candidate is expected to take what
/// it took by w + ceil(w), w its waves with the product, over the same with the timed one: a last
/// wave costs half of a full one, whatever it holds, and half of what it holds. Where waves are not
/// known of all that can be used, the first of these. `waves`: of a candidate with the product, in
/// thousandths; none where the library refuses it. None where no candidate can be used.
std::optional<std::size_t> pick_candidate(
    const GemmCandidates& candidates,
    const std::function<std::optional<std::int64_t>(const GemmCandidate&)>& waves);

/// Up to `most` different candidates within `limit` of the best of their class, from the classes
/// given, nearest first: worth trying for one more class.
GemmCandidates worth_trying(const std::vector<const GemmCandidates*>& classes, double limit,
                            std::size_t most);

/// The lists of candidates of all classes, shared with other processes by two files: the run's,
/// which its ranks share, so that all take the same algorithms and a stopped run continues to the
/// bit, and one that many runs share. A line of a file is the list of a class; the first line about
/// a class counts, the run's file before the other. Lines of another tag (library, device, type,
/// version of this format) are not read.
class GemmChoices {
  public:
    /// `tag`: without spaces. "" = no file.
    GemmChoices(std::string tag, const std::string& run_file, const std::string& shared_file);

    /// Null where no process has chosen yet. Valid as long as this.
    const GemmCandidates* find(const GemmKey& key);
    /// Makes a list count, in files too, unless another process was quicker; returns the one that
    /// counts.
    const GemmCandidates& agree(const GemmKey& key, GemmCandidates own);
    /// Lists of the classes that differ from this one in m and k alone, by how near their m is.
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
