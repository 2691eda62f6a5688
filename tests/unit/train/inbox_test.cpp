#include "train/orders/inbox.h"

#include <sys/stat.h>

#include <chrono>

#include "unit/train/run_folder.h"

namespace loratrain::test {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

class InboxTest : public ::testing::Test {
  protected:
    /// A file in the inbox that was last changed some seconds ago.
    void put(const std::string& name, const std::string& text, int seconds_ago = 5) const {
        folder_.write("inbox/" + name, text);
        fs::last_write_time(folder_.path("inbox/" + name),
                            fs::file_time_type::clock::now() - std::chrono::seconds(seconds_ago));
    }
    bool has(const std::string& name) const { return fs::exists(folder_.path("inbox/" + name)); }
    Names texts(const Inbox::Orders& orders) const {
        Names found;
        for (const InboxFile& file : orders.additions) found.push_back(file.text);
        return found;
    }

    RunFolder folder_;
    Inbox inbox_{folder_.job.run.dir};
};

TEST_F(InboxTest, AdditionsTheOldestFirst) {
    EXPECT_TRUE(inbox_.look().additions.empty());
    put("a.yaml", "third", 3);
    put("b.yml", "first", 9);
    put("c.yaml", "second", 5);
    EXPECT_EQ(texts(inbox_.look()), (Names{"first", "second", "third"}));
    EXPECT_EQ(texts(inbox_.look()).size(), 3U) << "looking takes nothing away";
}

TEST_F(InboxTest, UnfinishedFilesAreLeftAlone) {
    put(".hidden.yaml", "x");
    put("new.yaml.part", "x");
    put("notes.txt", "x");
    fs::create_directories(folder_.path("inbox/folder.yaml"));
    put("young.yaml", "x", -1);  // a second ahead: young for two seconds from now
    EXPECT_TRUE(inbox_.look().additions.empty());
    put("young.yaml", "whole", 2);
    EXPECT_EQ(texts(inbox_.look()), Names{"whole"});
    put("young.yaml", "of a clock that is ahead", -100);
    EXPECT_EQ(texts(inbox_.look()).size(), 1U);
}

TEST_F(InboxTest, YoungFilesSettle) {
    inbox_.let_settle();
    folder_.write("inbox/young.yaml", "text");
    inbox_.let_settle();
    EXPECT_EQ(texts(inbox_.look()), Names{"text"});
}

TEST_F(InboxTest, AcceptedFilesKeepTheirOrder) {
    put("z.yaml", "one", 9);
    put("a.yaml", "two", 8);
    for (const InboxFile& file : inbox_.look().additions) inbox_.accept(file);
    EXPECT_TRUE(inbox_.look().additions.empty());
    EXPECT_TRUE(has("accepted/0001-z.yaml"));
    EXPECT_TRUE(has("accepted/0002-a.yaml"));
    Inbox again(folder_.job.run.dir);
    put("a.yaml", "three");
    EXPECT_EQ(again.accept(again.look().additions.at(0)),
              folder_.path("inbox/accepted/0003-a.yaml"));
    Names found;
    for (const InboxFile& file : accepted_additions(folder_.job.run.dir)) {
        found.push_back(file.text);
    }
    EXPECT_EQ(found, (Names{"one", "two", "three"}));
    fs::rename(folder_.path("inbox/accepted/0003-a.yaml"),
               folder_.path("inbox/accepted/10000-a.yaml"));
    EXPECT_EQ(accepted_additions(folder_.job.run.dir).back().text, "three");
    EXPECT_TRUE(accepted_additions(folder_.path("nowhere")).empty());
}

TEST_F(InboxTest, WhatWasReadIsAcceptedWhateverLiesThereNow) {
    put("changed.yaml", "old", 9);
    put("gone.yaml", "text", 8);
    const Inbox::Orders orders = inbox_.look();
    put("changed.yaml", "new");
    fs::remove(folder_.path("inbox/gone.yaml"));
    for (const InboxFile& file : orders.additions) inbox_.accept(file);
    EXPECT_EQ(folder_.read("inbox/accepted/0001-changed.yaml"), "old");
    EXPECT_EQ(folder_.read("inbox/accepted/0002-gone.yaml"), "text");
    EXPECT_EQ(texts(inbox_.look()), Names{"new"});
}

TEST_F(InboxTest, WhatChangedIsNotRejected) {
    put("bad.yaml", "old");
    const Inbox::Orders orders = inbox_.look();
    put("bad.yaml", "new");
    inbox_.reject(orders.additions.at(0), "why");
    EXPECT_FALSE(has("rejected/bad.yaml"));
    EXPECT_EQ(texts(inbox_.look()), Names{"new"});
}

TEST_F(InboxTest, AcceptedByAJobThatDiedBeforeItWasTakenAway) {
    folder_.write("inbox/accepted/0001-a.yaml", "one");
    folder_.write("inbox/accepted/0002-b.yaml", "two");
    put("a.yaml", "one");
    put("b.yaml", "changed");
    Inbox again(folder_.job.run.dir);
    EXPECT_FALSE(has("a.yaml"));
    EXPECT_EQ(texts(again.look()), Names{"changed"});
    EXPECT_EQ(accepted_additions(folder_.job.run.dir).size(), 2U);
}

TEST_F(InboxTest, RejectedFilesSayWhy) {
    put("bad.yaml", "text");
    inbox_.reject(inbox_.look().additions.at(0), "bad.yaml:1: unknown key 'x'");
    EXPECT_TRUE(inbox_.look().additions.empty());
    EXPECT_EQ(folder_.read("inbox/rejected/bad.yaml"), "text");
    EXPECT_EQ(folder_.read("inbox/rejected/bad.yaml.error"), "bad.yaml:1: unknown key 'x'\n");
}

TEST_F(InboxTest, Stops) {
    request_stop(folder_.job.run.dir, "second.v2");
    request_stop(folder_.job.run.dir, "first");
    EXPECT_EQ(inbox_.look().stops, (Names{"first", "second.v2"}));
    inbox_.obeyed("first");
    inbox_.obeyed("first");
    EXPECT_EQ(inbox_.look().stops, Names{"second.v2"});
    inbox_.reject_stop("second.v2", "no such adapter");
    EXPECT_TRUE(inbox_.look().stops.empty());
    EXPECT_EQ(folder_.read("inbox/rejected/second.v2.stop.error"), "no such adapter\n");
}

TEST_F(InboxTest, StopsStayInTheInbox) {
    for (const char* name : {"../..", "../../x", "", ".hidden", "a/b"}) {
        EXPECT_THROW(request_stop(folder_.job.run.dir, name), InputError) << name;
    }
    EXPECT_TRUE(inbox_.look().stops.empty());
    EXPECT_FALSE(fs::exists(folder_.path("../...stop")));
}

TEST_F(InboxTest, OrdersOfAFormerRunAreSetAside) {
    set_orders_aside(folder_.job.run.dir, folder_.path("before"));
    EXPECT_FALSE(fs::exists(folder_.path("before"))) << "nothing was ordered";
    put("taken.yaml", "one");
    inbox_.accept(inbox_.look().additions.at(0));
    put("bad.yaml", "two");
    inbox_.reject(inbox_.look().additions.at(0), "why");
    put("unread.yaml", "three");
    put("unread.yml.part", "four");
    request_stop(folder_.job.run.dir, "first");
    set_orders_aside(folder_.job.run.dir, folder_.path("before"));
    EXPECT_TRUE(inbox_.look().stops.empty());
    EXPECT_EQ(texts(inbox_.look()), Names{"three"});
    EXPECT_TRUE(has("unread.yml.part"));
    EXPECT_TRUE(accepted_additions(folder_.job.run.dir).empty());
    EXPECT_EQ(accepted_additions(folder_.path("before")).at(0).text, "one");
    EXPECT_EQ(folder_.read("before/inbox/rejected/bad.yaml"), "two");
    EXPECT_TRUE(fs::exists(folder_.path("before/inbox/first.stop")));
}

TEST_F(InboxTest, AFileThatCannotBeMovedIsLeftAloneFromThenOn) {
    folder_.write("inbox/rejected", "a file where a folder must be");
    put("a.yaml", "text");
    inbox_.reject(inbox_.look().additions.at(0), "why");
    EXPECT_TRUE(has("a.yaml"));
    EXPECT_TRUE(inbox_.look().additions.empty());
}

TEST_F(InboxTest, AFileThatCannotBeAcceptedStays) {
    folder_.write("inbox/accepted", "a file where a folder must be");
    put("a.yaml", "text");
    const Inbox::Orders orders = inbox_.look();
    EXPECT_THROW(inbox_.accept(orders.additions.at(0)), InputError);
    EXPECT_TRUE(has("a.yaml"));
    inbox_.reject(orders.additions.at(0), "why");
    EXPECT_TRUE(has("rejected/a.yaml"));
}

TEST_F(InboxTest, LinksAndPipesAreLeftAlone) {
    put("b.yaml", "plain");
    folder_.write("elsewhere.yaml", "linked");
    fs::create_symlink(folder_.path("elsewhere.yaml"), folder_.path("inbox/a.yaml"));
    fs::create_symlink("nowhere", folder_.path("inbox/c.yaml"));
    fs::create_symlink("nowhere", folder_.path("inbox/first.stop"));
    ASSERT_EQ(::mkfifo(folder_.path("inbox/d.yaml").c_str(), 0600), 0);
    const Inbox::Orders orders = inbox_.look();
    EXPECT_EQ(texts(orders), Names{"plain"});
    EXPECT_TRUE(orders.stops.empty());
    EXPECT_TRUE(has("a.yaml"));
}

}  // namespace
}  // namespace loratrain::test
