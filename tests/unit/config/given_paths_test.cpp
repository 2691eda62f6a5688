#include "config/given_paths.h"

#include "config/inbox_yaml.h"
#include "unit/config/job_files.h"

namespace loratrain {
namespace {

class GivenPathsTest : public JobFiles {
  protected:
    /// Of a problem of what lies at a path relative to the job file's folder.
    std::string where(const GivenPaths& paths, const std::string& path) const {
        Problems problems;
        problems.add(folder() + "/" + path, "is missing", "make it");
        const Problem problem = with_keys(problems, paths).list().at(0);
        EXPECT_EQ(problem.what, "is missing");
        EXPECT_EQ(problem.hint, "make it");
        return problem.where;
    }
    std::string named(int line, const std::string& key, const std::string& path) const {
        return at(line) + ": " + key + ": " + folder() + "/" + path;
    }
};

TEST_F(GivenPathsTest, EveryPathHasItsKeyAndLine) {
    const Job job = read(
        "model: {weights: base.h5}\n"
        "run: {dir: out}\n"
        "datasets:\n"
        "  math: {path: math.jsonl, eval_path: held/out.h5}\n"
        "  both:\n"
        "    files: [{path: one.jsonl}, {path: two.jsonl, weight: 2}]\n"
        "    eval_path: [a.jsonl, b.jsonl]\n"
        "  came: {path: rollouts/}\n"
        "defaults: {init_from: runs/first}\n"
        "adapters:\n"
        "  - {name: a, dataset: math}\n"
        "  - {name: b, dataset: both, init_from: runs/second}\n");
    const GivenPaths& paths = job.given_paths;
    EXPECT_EQ(where(paths, "base.h5"), named(1, "model.weights", "base.h5"));
    EXPECT_EQ(where(paths, "math.jsonl"), named(4, "datasets.math.path", "math.jsonl"));
    EXPECT_EQ(where(paths, "held/out.h5"), named(4, "datasets.math.eval_path", "held/out.h5"));
    EXPECT_EQ(where(paths, "two.jsonl"), named(6, "datasets.both.files[1].path", "two.jsonl"));
    EXPECT_EQ(where(paths, "b.jsonl"), named(7, "datasets.both.eval_path[1].path", "b.jsonl"));
    EXPECT_EQ(where(paths, "rollouts/"), named(8, "datasets.came.path", "rollouts/"));
    EXPECT_EQ(where(paths, "runs/first"), named(9, "defaults.init_from", "runs/first"));
    EXPECT_EQ(where(paths, "runs/second/adapter_config.json"),
              named(12, "adapters.b.init_from", "runs/second/adapter_config.json"));
}

TEST_F(GivenPathsTest, LinesOfFilesAndOtherPlacesStay) {
    const Job job = read(minimal_job);
    for (const char* path : {"math.jsonl:17", "math.jsonl.gz", "elsewhere"}) {
        EXPECT_EQ(where(job.given_paths, path), folder() + "/" + path);
    }
}

TEST_F(GivenPathsTest, AnOptionStandsForItsLine) {
    const Job job = read(minimal_job, {{"model.weights", "other.h5"}});
    EXPECT_EQ(where(job.given_paths, "other.h5"), "--set model.weights: " + folder() + "/other.h5");
}

TEST_F(GivenPathsTest, AnInboxFileNamesItsOwn) {
    const JobAdditions added =
        read_inbox("datasets:\n  code: {path: code.jsonl}\nadapters: [{name: c, dataset: code}]\n",
                   "new.yaml", read(minimal_job));
    EXPECT_EQ(where(added.given_paths, "code.jsonl"),
              "new.yaml:2: datasets.code.path: " + folder() + "/code.jsonl");
}

}  // namespace
}  // namespace loratrain
