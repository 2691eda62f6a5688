#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/job.h"

namespace loratrain {

/// Job files: reading, writing with every key, and comparing two of them.

/// One `--set key=value` of the command line: key is a dotted path ("defaults.learning_rate",
/// "run.dir", "adapters.math-r8.r", "datasets.math.path"), value is YAML text.
struct Override {
    std::string key;
    std::string value;
};

/// Reads and checks the job file; opens no other file. Throws InputError with every problem at
/// once: unknown key (with the nearest known one), wrong type, value out of range, missing required
/// key, duplicate key or name, unknown dataset or target. The place of a problem is "file:line" or
/// "--set key".
Job read_job(const std::string& path, const std::vector<Override>& overrides);

/// run.peer_timeout of a job file, for the watch that begins before ranks wait for each other. The
/// default if the file has no readable value.
int read_peer_timeout(const std::string& path, const std::vector<Override>& overrides);

/// The effective job as YAML with every key written out and `defaults` merged into each adapter;
/// read_job reads it back to the same Job. Written to <run.dir>/resolved.yaml.
std::string to_yaml(const Job& job);

/// The keys of an adapter as to_yaml writes them, each value in one line.
using KeyValues = std::map<std::string, std::string>;
inline constexpr const char* empty_value = "''";
/// The keys of every adapter.
std::vector<KeyValues> adapter_values(const Job& job);

/// The differences of two resolved jobs, as lines "key: old -> new". `harmless`: differences in
/// keys that may change between a checkpoint and its continuation:
/// - logging, checkpoint, cadence of evaluation, parallel layout, schedule, priorities;
/// - more epochs or steps, except of trials;
/// - run.dir, the name of the base model;
/// - what ends a sweep and what is kept of it;
/// - adapters and datasets added at the end.
struct JobDifference {
    std::vector<std::string> harmful;
    std::vector<std::string> harmless;
};
/// The backends of the earlier run and of this run, as auto was resolved: "cpu", "cuda"; "" = not
/// known.
struct BackendsOfAuto {
    std::string before;
    std::string now;
};
/// Compares two texts written by to_yaml(). `path`: the file that holds `before`. run.backend may
/// change if one of the two values is auto and means the other. Throws InputError if `before` is
/// damaged.
JobDifference compare_jobs(const std::string& before, const std::string& now,
                           const std::string& path, const BackendsOfAuto& backends = {});

}  // namespace loratrain
