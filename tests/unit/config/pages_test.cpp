#include <gtest/gtest.h>

#include <sstream>

#include "config/command_line.h"
#include "config/job_keys.h"
#include "config/pages.h"

namespace loratrain {
namespace {

TEST(ManPage, HasEverySectionOfTheHelpAndEveryKey) {
    const std::string page = man_page();
    EXPECT_EQ(page.rfind(".TH LORATRAIN 1 ", 0), 0U);
    for (const char* section : {"NAME", "SYNOPSIS", "OPTIONS FOR TRAINING",
                                "OPTIONS FOR IMPORT-HF, --QUANTIZE ALSO FOR MERGE", "EXIT CODES",
                                "EXAMPLES", "JOB FILE"}) {
        std::string title = std::string(".SH ") + section + "\n";
        EXPECT_NE(page.find(title), std::string::npos) << title;
    }
    for (const JobKey& key : job_keys()) {
        EXPECT_NE(page.find("\\fB" + key.key + "\\fR"), std::string::npos) << key.key;
    }
}

TEST(ManPage, TellsTwoColumnsApartAndKeepsOtherLines) {
    const std::string page = man_page();
    EXPECT_NE(page.find(".TP\n\\fB\\-\\-set KEY=VALUE\\fR\nset any key"), std::string::npos);
    EXPECT_NE(page.find("\n\\-\\-steps 5  \\-\\-layers 12  "), std::string::npos);
}

TEST(ManPage, HasNoLineThatRoffTakesForARequest) {
    std::istringstream lines(man_page());
    for (std::string line; std::getline(lines, line);) {
        EXPECT_FALSE(line.starts_with('\'')) << line;
        if (!line.starts_with('.')) continue;
        EXPECT_TRUE(line.starts_with(".TH ") || line.starts_with(".SH ") ||
                    line.starts_with(".SS ") || line == ".TP" || line == ".PP" || line == ".nf" ||
                    line == ".fi" || line == ".nh")
            << line;
    }
}

TEST(BashCompletion, KnowsTheParsersOptionsAndTheHelpsValues) {
    const std::string script = bash_completion();
    for (const CommandWords& command : command_words()) {
        if (!command.word.empty()) {
            EXPECT_NE(script.find(command.word + ") words='"), std::string::npos) << command.word;
        }
        for (const OptionWord& option : command.options) {
            EXPECT_NE(script.find(option.name), std::string::npos) << option.name;
        }
    }
    EXPECT_NE(script.find("--backend) words='cpu cuda'"), std::string::npos);
    EXPECT_NE(script.find("--restart) words='auto never'"), std::string::npos);
    EXPECT_NE(script.find(" defaults.learning_rate= "), std::string::npos);
    EXPECT_EQ(script.find("--steps) words"), std::string::npos);
}

}  // namespace
}  // namespace loratrain
