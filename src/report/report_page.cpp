#include "report/report_page.h"

#include "base/text.h"
#include "base/version.h"
#include "report/html.h"
#include "report/page_parts.h"

namespace loratrain {

std::string report_page(const RunRecord& run, double now) {
    const std::string title = html::escape("loratrain: " + run.dir);
    return cat("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
               "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>",
               title, "</title>\n<style>\n", report::style(), "</style>\n</head>\n<body>\n",
               report::summary(run), report::sweep(run), report::adapters(run),
               report::generations(run), report::rollouts(run), report::curves(run),
               report::throughput(run), report::account(run), report::timeline(run),
               report::memory(run), report::devices(run), report::provenance(run),
               "<footer>Written ", time_text(now), " by loratrain ", html::escape(version_text()),
               " (", html::escape(git_hash()), ")</footer>\n</body>\n</html>\n");
}

}  // namespace loratrain
