#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/job.h"
#include "io/run_files/device_samples.h"
#include "io/run_files/results_file.h"
#include "io/run_files/status_file.h"
#include "io/run_files/trace_file.h"
#include "plan/plan.h"
#include "report/status_text.h"

namespace loratrain {

/// Everything that a run directory says of its run.

/// Measured memory of a rank, in bytes.
struct MeasuredMemory {
    std::uint64_t allocated = 0;
    std::uint64_t resident_growth = 0;
};

/// Largest number of ranks, the first ones, whose samples the report page shows.
inline constexpr std::size_t most_sampled_ranks = 32;

inline constexpr const char* memory_file_name = "memory.json";
std::string memory_to_json(const std::vector<MeasuredMemory>& ranks);

/// The contents of a run directory, in whatever state its run is.
struct RunRecord {
    std::string dir;
    std::vector<std::string> parts;  ///< the runs that it merges (merge_runs.h); empty = one run
    Job job;
    std::string job_yaml;
    std::optional<Plan> plan;                      ///< none = not there, or unreadable (a warning)
    std::optional<RunStatus> status;               ///< none before the first heartbeat
    Pulse pulse;                                   ///< of `status`, when it was read
    std::string provenance_json;                   ///< "" = none
    std::vector<std::vector<MetricsRow>> metrics;  ///< per AdapterId
    std::vector<std::string> generations;  ///< per AdapterId: its generations.jsonl; "" = none
    /// Per AdapterId: the newest file of what it has written and learned from (train/rewards/);
    /// "" = none.
    std::vector<std::string> rollouts;
    /// Sorted (io/run_files/results_file.h), with shown_status().
    std::vector<AdapterResult> results;
    std::vector<MeasuredMemory> memory;              ///< per rank; empty = none measured
    std::vector<std::vector<DeviceSample>> samples;  ///< of the first ranks; empty = none taken
    std::vector<TraceSpan> trace;                    ///< measured, else simulated before the start
    bool trace_measured = false;
};

/// Whether a run has started in `dir`.
bool is_run_directory(const std::string& dir);

/// Reads a run directory. InputError if `dir` is none or its job is damaged. Any other file that
/// cannot be read is a warning, and its part of the record stays empty.
RunRecord read_run(const std::string& dir);

/// Reads only the heartbeat; none if the run has not written one yet. InputError if `dir` is no run
/// directory or the heartbeat is damaged.
std::optional<RunStatus> read_status(const std::string& dir);

}  // namespace loratrain
