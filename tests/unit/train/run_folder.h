#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "config/job.h"
#include "support/files.h"

namespace loratrain::test {

/// A job of two adapters whose run directory exists, empty.
struct RunFolder {
    RunFolder() {
        job.run.dir = folder_.path();
        job.datasets.resize(1);
        for (const char* name : {"first", "second"}) {
            AdapterJob adapter;
            adapter.name = name;
            job.adapters.push_back(adapter);
            std::filesystem::create_directories(job.run.dir + "/adapters/" + name);
        }
    }

    std::string path(const std::string& name) const { return job.run.dir + "/" + name; }
    std::string read(const std::string& name) const { return test::get(path(name)); }
    void write(const std::string& name, const std::string& text) const {
        std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
        test::put(path(name), text);
    }

    Job job;

  private:
    test::TempDir folder_;
};

}  // namespace loratrain::test
