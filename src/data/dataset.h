#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/job.h"
#include "io/token_file.h"
#include "plan/plan.h"

namespace loratrain {

/// What the over-length policy did to a file.
struct LengthReport {
    std::int64_t samples = 0;  ///< in the file
    std::int64_t truncated = 0;
    std::int64_t dropped = 0;
    std::int64_t without_target = 0;
};

/// A token file seen through max_seq_len and over_length: sample i here is the i-th that was kept.
class Dataset {
  public:
    /// Opens and checks a file: token ids and labels within `vocab_size`, lengths by policy
    /// (over_length error: every offender listed, at most 20). Throws InputError with all problems.
    Dataset(const std::string& path, const DatasetJob& job, std::int64_t vocab_size);
    ~Dataset();
    Dataset(Dataset&&) noexcept;
    Dataset& operator=(Dataset&&) noexcept;

    const std::vector<SampleInfo>& infos() const { return infos_; }
    const LengthReport& report() const { return report_; }
    /// Checksum over all ids and labels, for provenance and resume.
    const std::string& checksum() const { return checksum_; }
    /// Sample `index`, truncated where the policy says so.
    TokenSample read(std::int64_t index) const;

  private:
    std::unique_ptr<TokenFile> file_;
    std::vector<std::int64_t> kept_;
    std::vector<SampleInfo> infos_;
    LengthReport report_;
    std::string checksum_;
    std::int64_t max_tokens_ = 0;
};

}  // namespace loratrain
