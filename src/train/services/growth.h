#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/job_warnings.h"
#include "train/orders/inbox.h"
#include "train/worker.h"
#include "train/workers/dispatcher_link.h"

namespace loratrain {

/// Adds adapters of inbox files to the run without draining the pipeline:
/// 1. While window k trains, Dispatcher::take_orders() finds a file, and ask() orders
///    CheckAdditions.
/// 2. Before window k + 1 every rank checks and keeps the file (train/orders/grow_run.h) and
///    reports problems.
/// 3. After window k + 1, grow(): without a problem every rank takes the file as a whole. The
///    checkpoint and exports that are being written come first.
/// 4. From window k + 2 on its adapters train as places become free (admission.h).
/// With an empty pipeline, and always in a sweep, take_now() does all of this at once.
class GrowthService : public Service {
  public:
    GrowthService(Worker& worker, DispatcherLink& dispatcher)
        : worker_(worker), dispatcher_(dispatcher) {}

    void on_report(const AdditionsReport& report) override;
    bool delays_planning() const override { return asked_ && !asked_->answers_later; }
    bool awaits_reports() const override { return asked_ && asked_->reports_left > 0; }
    bool grow() override;

    /// Asks all ranks to check files, unless they check some already.
    void ask(const std::vector<InboxFile>& files);
    /// The next window is planned now: ranks report on earlier files before it ends.
    void window_passes() {
        if (asked_) asked_->answers_later = false;
    }
    /// With an empty pipeline: checks and takes the file. True if the run has grown.
    bool take_now(const InboxFile& file);

  private:
    struct Asked {
        std::vector<InboxFile> files;
        std::vector<std::string> problems;  ///< per file; "" = none
        int reports_left = 0;
        bool answers_later = true;  ///< not before the end of the current window
    };

    bool take(const InboxFile& file, std::string problem);
    void refuse(const InboxFile& file, const std::string& why);
    void note_taken(const InboxFile& file, const JobTail& tail);
    void look_again(const InboxFile& file);
    void forget(const InboxFile& file);

    Worker& worker_;
    DispatcherLink& dispatcher_;
    std::optional<Asked> asked_;
};

}  // namespace loratrain
