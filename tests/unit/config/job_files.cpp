#include "unit/config/job_files.h"

#include "support/problems.h"

namespace loratrain {

using test::text_of;

void JobFiles::write(const std::string& text) const {
    test::put(job_path(), text);
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
    EXPECT_EQ(problems.size(), 1U) << text_of(problems);
    expect_among(problems, where, what, hint);
}

void expect_among(const std::vector<Problem>& problems, const std::string& where,
                  const std::string& what, const std::string& hint) {
    for (const Problem& problem : problems) {
        if (problem.where != where || problem.what != what) continue;
        EXPECT_NE(problem.hint.find(hint), std::string::npos) << to_string(problem);
        return;
    }
    ADD_FAILURE() << "not found: " << where << ": " << what << "\namong\n" << text_of(problems);
}

}  // namespace loratrain
