#pragma once

#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace loratrain {

/// A file that adds adapters to a run (config/inbox_yaml.h).
struct InboxFile {
    std::string path;
    std::string text;
};
template <class Archive>
void fields(Archive& archive, InboxFile& file) {
    archive("path", file.path);
    archive("text", file.text);
}

/// <run.dir>/inbox/, through which a running job is given orders: NAME.yaml or .yml adds adapters,
/// ADAPTER.stop ends one. Other names, hidden files and folders are left alone, so that a file can
/// be written under another name and then renamed; one that changed within the last second is
/// looked at later. What was taken goes to accepted/0001-NAME.yaml, in order (a restarted job reads
/// these again), what was not to rejected/ with its reason in NAME.yaml.error. A file that changes
/// after it was read is a new order. Trouble with the file system is a warning, once per file, and
/// the file is left alone from then on. Root only.
class Inbox {
  public:
    /// Creates the folder. Removes what a job that died has accepted, but not yet taken away.
    explicit Inbox(const std::string& run_dir);

    struct Orders {
        std::vector<InboxFile> additions;  ///< the oldest first
        std::vector<std::string> stops;    ///< names of adapters, sorted
    };
    Orders look();
    /// Waits while there are files that changed within the last second, about a second at most.
    void let_settle();

    /// From now on the additions belong to the run, also when it dies and is started again:
    /// accepted/ holds the text that was read. Returns its path. InputError where that cannot be
    /// written.
    std::string accept(const InboxFile& file);
    /// Logs `why` as a warning.
    void reject(const InboxFile& file, const std::string& why);

    /// The adapter has ended, so that no restart trains it again: its stop file is removed.
    void obeyed(const std::string& adapter);
    void reject_stop(const std::string& adapter, const std::string& why);

  private:
    /// Warns and leaves the file alone where `work` fails.
    void attempt(const std::string& path, const std::function<void()>& work);
    /// When, and which.
    using Changes = std::vector<std::pair<std::filesystem::file_time_type, std::string>>;
    Changes changes();
    /// False where it is left alone, as what is no plain file.
    bool may_read(const std::string& path);
    Changes young_files();
    void remove_read(const InboxFile& file);
    void reject_path(const std::string& path, const std::string& why);

    std::string dir_;
    std::set<std::string> left_alone_;  ///< file names
};

/// What the run has accepted so far, in order.
std::vector<InboxFile> accepted_additions(const std::string& run_dir);

/// Moves the orders of a former run to <target>/inbox: stops it has not obeyed,
/// accepted/ and rejected/. Additions that no run has taken stay.
void set_orders_aside(const std::string& run_dir, const std::string& target);

/// Asks the run in `run_dir` to end an adapter of it; InputError for what no adapter can be called.
void request_stop(const std::string& run_dir, const std::string& adapter);

}  // namespace loratrain
