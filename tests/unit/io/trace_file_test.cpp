#include "io/run_files/trace_file.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace loratrain {

namespace {

std::vector<TraceSpan> some_spans() {
    return {{1, 0, "forward 3", "forward", 0.25, 0.5, {{"adapters", "a\"b"}}},
            {0, 1, "wait", "wait", 0.0, 1e-6, {}},
            {0, 0, "step a1@0", "step", 0.5, 0.75, {}},
            {0, 0, "forward 3", "forward", 0.0, 0.25, {}}};
}

}  // namespace

TEST(TraceFile, IsAChromeTrace) {
    const auto json = nlohmann::json::parse(trace_to_json(some_spans(), {{"model", "m"}}));
    EXPECT_EQ(json["otherData"]["model"], "m");
    std::vector<std::string> names;
    std::vector<double> starts;
    for (const auto& event : json["traceEvents"]) {
        if (event["ph"] == "M") {
            names.push_back(event["args"]["name"]);
        } else {
            EXPECT_EQ(event["ph"], "X");
            starts.push_back(event["ts"]);
        }
    }
    EXPECT_EQ(names, (std::vector<std::string>{"rank 0", "computation", "messages", "rank 1",
                                               "computation"}));
    EXPECT_EQ(starts, (std::vector<double>{0, 0, 500000, 250000}));
    const auto& last = json["traceEvents"].back();
    EXPECT_EQ(last["pid"], 1);
    EXPECT_EQ(last["dur"], 250000);
    EXPECT_EQ(last["args"]["adapters"], "a\"b");
}

TEST(TraceFile, ReadsWhatItWrote) {
    const std::string text = trace_to_json(some_spans(), {});
    const std::vector<TraceSpan> spans = trace_from_json(text, "trace.json");
    ASSERT_EQ(spans.size(), 4U);
    EXPECT_EQ(spans[0].thread, 1);
    EXPECT_EQ(spans[3].name, "forward 3");
    EXPECT_EQ(spans[3].category, "forward");
    EXPECT_NEAR(spans[3].start_s, 0.25, 1e-9);
    EXPECT_NEAR(spans[3].end_s, 0.5, 1e-9);
    EXPECT_EQ(spans[3].args, some_spans()[0].args);
    EXPECT_EQ(trace_to_json(spans, {}), text);
    EXPECT_TRUE(trace_from_json(trace_to_json({}, {}), "x").empty());
}

TEST(TraceFile, KeepsTheSharesOfAdapters) {
    TraceSpan span;
    EXPECT_TRUE(shares_of(span).empty());
    span.args = share_args({{"math r8", 200}, {"b", 100}});
    EXPECT_EQ(span.args[0].second, "300");
    EXPECT_EQ(span.args[1].second, "math r8 200, b 100");
    const auto shares = shares_of(span);
    ASSERT_EQ(shares.size(), 2U);
    EXPECT_EQ(shares[0].adapter, "math r8");
    EXPECT_EQ(shares[0].tokens, 200);
    EXPECT_EQ(shares[1].adapter, "b");
    EXPECT_EQ(shares[1].tokens, 100);
    span.args = {{"adapters", "odd"}};
    ASSERT_EQ(shares_of(span).size(), 1U);
    EXPECT_EQ(shares_of(span)[0].adapter, "odd");
    EXPECT_EQ(shares_of(span)[0].tokens, 0);
}

TEST(TraceFile, RefusesOtherFiles) {
    for (const char* text : {"", "[]", "{}", R"({"traceEvents": [{"ph": "X"}]})"}) {
        EXPECT_THROW(trace_from_json(text, "run/trace.json"), InputError) << text;
    }
}

}  // namespace loratrain
