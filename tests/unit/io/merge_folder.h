#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "io/weights/base_weights.h"
#include "io/weights/import_hf.h"
#include "support/files.h"
#include "support/golden_path.h"

namespace loratrain::test {

/// A folder with a golden base as base.h5, and where an adapter is merged into it.
class MergeFolder : public testing::Test {
  protected:
    std::unique_ptr<WeightSource> base(const std::string& family,
                                       const ImportOptions& options = {}) {
        ImportOptions anew = options;
        anew.force = true;
        import_hf(golden_path(family + "/base"), folder_.file("base.h5"), anew);
        return open_base_weights(folder_.file("base.h5"));
    }
    std::string out() const { return folder_.file("merged"); }
    /// Where it lies until it is complete.
    std::string hidden() const { return folder_.file(".merged.tmp"); }

    TempDir folder_;
};

}  // namespace loratrain::test
