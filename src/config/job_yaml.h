#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/job.h"

namespace loratrain {

/// One `--set key=value` of the command line: key is a dotted path ("defaults.learning_rate",
/// "run.dir", "adapters.math-r8.r", "datasets.math.path"), value is YAML text.
struct Override {
    std::string key;
    std::string value;
};

/// Reads and checks the job file. Throws InputError with every problem at once: unknown key (names
/// the nearest known one), wrong type, value out of range, missing required key, duplicate key or
/// name, unknown dataset or target; `where` is "file:line" or "--set key". Does not look at any
/// other file.
Job read_job(const std::string& path, const std::vector<Override>& overrides);

/// run.peer_timeout of a job file, for the watch that begins before ranks wait for each other; the
/// default if the file has none that can be read.
int read_peer_timeout(const std::string& path, const std::vector<Override>& overrides);

/// The effective job as YAML with every key written out and `defaults` merged into each adapter;
/// read_job reads it back to the same Job. Written to <run.dir>/resolved.yaml.
std::string to_yaml(const Job& job);

/// The keys of an adapter as to_yaml writes them, each value in one line.
using KeyValues = std::map<std::string, std::string>;
inline constexpr const char* empty_value = "''";
/// The same for all adapters.
std::vector<KeyValues> adapter_values(const Job& job);

/// The differences of two resolved jobs, as lines "key: old -> new". `harmless`: of keys that may
/// change between a checkpoint and its continuation (logging, checkpoint, eval cadence,
/// parallel layout, schedule, priorities, more epochs or steps but of trials, run.dir, the name of
/// the base model, what ends a sweep and is kept of it, adapters and datasets added at the end).
struct JobDifference {
    std::vector<std::string> harmful;
    std::vector<std::string> harmless;
};
/// The backend of the run before and now, as auto was resolved: "cpu", "cuda"; "" = not known.
struct BackendsOfAuto {
    std::string before;
    std::string now;
};
/// `before`, `now`: texts made by to_yaml; `path`: the file that holds `before`. run.backend may
/// change if one of the two is auto and means the other. InputError if `before` is damaged.
JobDifference compare_jobs(const std::string& before, const std::string& now,
                           const std::string& path, const BackendsOfAuto& backends = {});

}  // namespace loratrain
