#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/job_warnings.h"
#include "train/orders/inbox.h"
#include "train/worker.h"
#include "train/workers/dispatcher_link.h"

namespace loratrain {

/// Adapters that files of the inbox add to the run. The dispatcher finds a file while window k
/// trains. All ranks check it before window k + 1 (train/orders/grow_run.h), keep what they have
/// read and report what is wrong, while all train on. Behind window k + 1 the run takes the file as
/// a whole where all have found it good; checkpoints and exports that are being written are waited
/// for. Its adapters train from window k + 2 on, where they get a place (admission.h). With an
/// empty pipeline, and always where there is a sweep, all of this happens at once.
class GrowthService : public Service {
  public:
    GrowthService(Worker& worker, DispatcherLink& dispatcher)
        : worker_(worker), dispatcher_(dispatcher) {}

    void on_report(const AdditionsReport& report) override;
    bool delays_planning() const override { return asked_ && !asked_->answers_later; }
    bool awaits_reports() const override { return asked_ && asked_->reports_left > 0; }
    bool grow() override;

    /// Asks all ranks about files, unless they look at some already.
    void ask(const std::vector<InboxFile>& files);
    /// As the next window is to be planned: by its end ranks have reported on what was asked
    /// before.
    void window_passes() {
        if (asked_) asked_->answers_later = false;
    }
    /// With an empty pipeline. Whether the run has grown.
    bool take_now(const InboxFile& file);

  private:
    struct Asked {
        std::vector<InboxFile> files;
        std::vector<std::string> problems;  ///< per file; "" = none
        int reports_left = 0;
        bool answers_later = true;  ///< not before the end of the window under way
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
