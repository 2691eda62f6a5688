#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/job.h"

namespace loratrain {

/// <run.dir>/status.json, the state of a run that rank 0 writes every few seconds.

/// Progress of one adapter.
struct AdapterProgress {
    std::string name;
    std::string status;  ///< status_name(): RUNNING, WAITING, DONE, FAILED, ...
    std::int32_t step = 0;
    std::int32_t total_steps = 0;
    std::optional<double> loss;  ///< of the last step
    std::optional<double> eval_loss;
    std::optional<double> eval_exact_match;  ///< for losses of pairs: the reward accuracy
    int priority = 0;
};

struct RunStatus {
    std::string state;   ///< running, stopped, done, failed
    std::string reason;  ///< why the run failed or stopped; may be empty
    std::int32_t round = 0;
    std::int32_t rounds = 0;
    double elapsed_seconds = 0.0;    ///< of training, in all starts of the run
    double tokens_per_second = 0.0;  ///< of all adapters, recent mean
    std::optional<double> seconds_left;
    double seconds_per_round = 0.0;  ///< recent mean; 0 = not known
    std::string host;
    std::int64_t pid = 0;
    int ranks = 1;
    double updated = 0.0;                  ///< seconds since 1970
    std::string accuracy = "exact match";  ///< accuracy_name() of the job
    std::vector<AdapterProgress> adapters;
};

/// An adapter's status as shown after its run has ended: INTERRUPTED for RUNNING, others as they
/// are.
std::string status_of_ended(const std::string& status);

/// The heading of the share of right answers in evaluations: "exact match"; "reward accuracy" if
/// all adapters have losses of pairs; "accuracy" if some have.
std::string accuracy_name(const std::vector<AdapterJob>& adapters);

inline constexpr const char* status_file_name = "status.json";

/// JSON text. Numbers that are not finite become null, and are read as empty.
std::string to_json(const RunStatus& status);
/// Throws InputError at `where` if the text is damaged or an adapter's name is not a valid one.
RunStatus run_status_from_json(const std::string& text, const std::string& where);

/// "2026-03-01 14:05:09", local time.
std::string time_text(double unix_seconds);

}  // namespace loratrain
