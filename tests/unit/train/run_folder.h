#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "config/job.h"

namespace loratrain::test {

/// A job of two adapters whose run directory exists, empty.
struct RunFolder {
    RunFolder() {
        const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
        job.run.dir = (std::filesystem::path(::testing::TempDir()) /
                       (std::string("loratrain-") + info->test_suite_name() + "-" + info->name()))
                          .string();
        std::filesystem::remove_all(job.run.dir);
        for (const char* name : {"first", "second"}) {
            AdapterJob adapter;
            adapter.name = name;
            job.adapters.push_back(adapter);
            std::filesystem::create_directories(job.run.dir + "/adapters/" + name);
        }
    }
    ~RunFolder() { std::filesystem::remove_all(job.run.dir); }
    RunFolder(const RunFolder&) = delete;
    RunFolder& operator=(const RunFolder&) = delete;

    std::string path(const std::string& name) const { return job.run.dir + "/" + name; }
    std::string read(const std::string& name) const {
        std::ostringstream text;
        text << std::ifstream(path(name)).rdbuf();
        return text.str();
    }
    void write(const std::string& name, const std::string& text) const {
        std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
        std::ofstream(path(name)) << text;
    }

    Job job;
};

}  // namespace loratrain::test
