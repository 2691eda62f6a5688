#pragma once

#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace loratrain {

/// The inbox of a run: files by which people add and stop adapters.

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

/// The folder <run.dir>/inbox/, in which people give orders to a running job:
/// | file | what happens |
/// |---|---|
/// | NAME.yaml, NAME.yml | adds adapters (train/services/growth.h) |
/// | ADAPTER.stop | ends an adapter (train/services/stops.h) |
/// | other names, hidden files, folders | ignored, so that a file can be written, then renamed |
/// | accepted/0001-NAME.yaml | taken, in order; a restarted job reads these again |
/// | rejected/NAME.yaml | not taken; the reason is in NAME.yaml.error |
/// A file that changed within the last second is read later. A file that changes after it was read
/// is a new order. An error of the file system is a warning, once per file, and the file is ignored
/// from then on. Root only.
class Inbox {
  public:
    /// Creates the folder. Removes files that a job which died had accepted already.
    explicit Inbox(const std::string& run_dir);

    struct Orders {
        std::vector<InboxFile> additions;  ///< oldest first
        std::vector<std::string> stops;    ///< names of adapters, sorted
    };
    Orders look();
    /// Waits up to about a second until no file has changed within the last second.
    void let_settle();

    /// Writes the text that was read to accepted/ and returns its path. From then on the additions
    /// belong to the run, also when it is started again. InputError if it cannot be written.
    std::string accept(const InboxFile& file);
    /// Moves the file to rejected/ and logs `why` as a warning.
    void reject(const InboxFile& file, const std::string& why);

    /// Removes the adapter's stop file: the adapter has ended, and no restart trains it again.
    void obeyed(const std::string& adapter);
    void reject_stop(const std::string& adapter, const std::string& why);

  private:
    /// Runs `work`. If it fails, warns, and ignores the file from then on.
    void attempt(const std::string& path, const std::function<void()>& work);
    /// (time, path)
    using Changes = std::vector<std::pair<std::filesystem::file_time_type, std::string>>;
    Changes changes();
    /// False for files that are ignored, such as pipes and devices.
    bool may_read(const std::string& path);
    Changes young_files();
    void remove_read(const InboxFile& file);
    void reject_path(const std::string& path, const std::string& why);

    std::string dir_;
    std::set<std::string> left_alone_;  ///< file names
};

/// The files that the run has accepted so far, in order.
std::vector<InboxFile> accepted_additions(const std::string& run_dir);

/// Moves the orders of a former run to <target>/inbox: stops that it has not obeyed, accepted/ and
/// rejected/. Additions that no run has taken stay.
void set_orders_aside(const std::string& run_dir, const std::string& target);

/// Writes the stop file of an adapter of the run in `run_dir`. InputError if no adapter can have
/// such a name.
void request_stop(const std::string& run_dir, const std::string& adapter);

}  // namespace loratrain
