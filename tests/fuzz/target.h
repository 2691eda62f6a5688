#pragma once

#include <memory>
#include <span>
#include <string>

#include "fuzz/draw.h"

namespace loratrain::fuzz {

/// What users and disks give the program, and the code that reads it. A case that ends with an
/// InputError or normally is good; any other exception, a crash, a hang or too much memory is a
/// finding.
class Target {
  public:
    virtual ~Target() = default;
    /// Makes one input from `draw` alone, in the target's folder, and has it read.
    virtual void run(Draw& draw) = 0;
};

struct TargetKind {
    const char* name;
    int share;  ///< of the cases, in relation to the others
    /// `folder` is empty, for this target alone.
    std::unique_ptr<Target> (*make)(const std::string& folder);
};

/// All of them.
std::span<const TargetKind> target_kinds();

std::unique_ptr<Target> job_target(const std::string& folder);
std::unique_ptr<Target> inbox_target(const std::string& folder);
std::unique_ptr<Target> config_target(const std::string& folder);
std::unique_ptr<Target> import_target(const std::string& folder);
std::unique_ptr<Target> base_target(const std::string& folder);
std::unique_ptr<Target> token_lines_target(const std::string& folder);
std::unique_ptr<Target> token_hdf5_target(const std::string& folder);
std::unique_ptr<Target> peft_target(const std::string& folder);
std::unique_ptr<Target> records_target(const std::string& folder);
std::unique_ptr<Target> checkpoint_target(const std::string& folder);

}  // namespace loratrain::fuzz
