#include "unit/config/job_files.h"

#include <cstdlib>
#include <fstream>

namespace loratrain {

namespace {

std::string list(const std::vector<Problem>& problems) {
    std::string text;
    for (const Problem& problem : problems) text += to_string(problem) + "\n";
    return text;
}

}  // namespace

JobFiles::JobFiles() {
    std::string pattern = (std::filesystem::temp_directory_path() / "loratrain-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw Error(pattern + ": cannot be made");
    folder_ = std::filesystem::canonical(pattern);
}

JobFiles::~JobFiles() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
}

void JobFiles::write(const std::string& text) const {
    std::ofstream(job_path(), std::ios::binary) << text;
}

Job JobFiles::read(const std::string& text, const std::vector<Override>& overrides) const {
    write(text);
    return read_job(job_path(), overrides);
}

std::vector<Problem> JobFiles::problems(const std::string& text,
                                        const std::vector<Override>& overrides) const {
    try {
        read(text, overrides);
    } catch (const InputError& error) {
        return error.problems();
    }
    ADD_FAILURE() << "no problem was found in\n" << text;
    return {};
}

void expect_only(const std::vector<Problem>& problems, const std::string& where,
                 const std::string& what, const std::string& hint) {
    EXPECT_EQ(problems.size(), 1U) << list(problems);
    expect_among(problems, where, what, hint);
}

void expect_among(const std::vector<Problem>& problems, const std::string& where,
                  const std::string& what, const std::string& hint) {
    for (const Problem& problem : problems) {
        if (problem.where != where || problem.what != what) continue;
        EXPECT_NE(problem.hint.find(hint), std::string::npos) << to_string(problem);
        return;
    }
    ADD_FAILURE() << "not found: " << where << ": " << what << "\namong\n" << list(problems);
}

}  // namespace loratrain
