#include "data/dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "support/files.h"
#include "support/problems.h"
#include "test_paths.h"

namespace loratrain::test {
namespace {

using Ids = std::vector<std::int32_t>;

class DatasetTest : public ::testing::Test {
  protected:
    Dataset open(const std::string& text, std::int64_t vocabulary = 100) {
        put(path(), text);
        return {path(), job_, vocabulary};
    }
    std::string refusal(const std::string& text, std::int64_t vocabulary = 100) {
        return problem_text([&] { open(text, vocabulary); });
    }
    std::string path() const { return dir_.file("data.jsonl"); }

    static constexpr const char* three_lengths =
        "{\"input_ids\":[1,2]}\n"
        "{\"input_ids\":[1,2,3,4,5],\"labels\":[-100,-100,-100,4,5]}\n"
        "{\"input_ids\":[7,8,9]}\n";

    TempDir dir_;
    DatasetJob job_;
};

TEST_F(DatasetTest, CountsTokensAndTargets) {
    const Dataset data = open(
        "{\"input_ids\":[1,2,3],\"labels\":[1,-100,3]}\n"
        "{\"input_ids\":[5],\"labels\":[5]}\n");
    ASSERT_EQ(data.infos().size(), 2U);
    EXPECT_EQ(data.infos()[0].tokens, 3);
    EXPECT_EQ(data.infos()[0].targets, 1);
    EXPECT_EQ(data.infos()[1].targets, 0);
    EXPECT_EQ(data.report().samples, 2);
    EXPECT_EQ(data.report().without_target, 1);
    EXPECT_EQ(data.read(0).labels, (Ids{1, -100, 3}));
    EXPECT_THROW(data.read(2), Error);
    EXPECT_THROW(data.read(-1), Error);
}

TEST_F(DatasetTest, SumsTheWeightsOfTargets) {
    const std::string bare = "{\"input_ids\":[1,2,3],\"labels\":[1,-100,3]}\n";
    const std::string weighted =
        "{\"input_ids\":[1,2,3,4],\"labels\":[1,-100,3,4],\"weights\":[9,9,0.5,0.25]}\n";
    const Dataset data = open(bare + weighted + "{\"input_ids\":[1,2],\"weights\":[1,0]}\n");
    EXPECT_EQ(data.weights(), (std::vector<double>{1.0, 0.75, 0.0}));
    EXPECT_EQ(data.infos()[1].targets, 2);
    EXPECT_EQ(data.infos()[2].targets, 0);
    EXPECT_EQ(data.report().weighted, 1);
    EXPECT_EQ(open(bare).weights(), std::vector<double>{});
    EXPECT_NE(open(bare + weighted).checksum(), open(bare + bare).checksum());
    job_.max_seq_len = 3;
    job_.over_length = OverLength::truncate;
    const Dataset cut = open(bare + weighted);
    EXPECT_EQ(cut.weights(), (std::vector<double>{1.0, 0.5}));
    EXPECT_EQ(cut.read(1).weights, (std::vector<float>{9.0F, 1.0F, 0.5F}));
}

TEST_F(DatasetTest, WeightsGoWithTheirSamplesIntoASplit) {
    std::string text;
    for (int i = 1; i <= 8; ++i) {
        text += cat("{\"input_ids\":[1,2],\"weights\":[1,", i, ".5]}\n");
    }
    Dataset train = open(text);
    const Dataset eval = train.hold_out(3, 5);
    for (const Dataset* part : {&std::as_const(train), &eval}) {
        ASSERT_EQ(part->weights().size(), part->infos().size());
        for (std::size_t i = 0; i < part->weights().size(); ++i) {
            EXPECT_EQ(part->weights()[i], static_cast<double>(part->positions()[i]) + 1.5);
        }
    }
}

TEST_F(DatasetTest, OverLengthError) {
    job_.max_seq_len = 3;
    const std::string text = refusal(three_lengths);
    EXPECT_TRUE(has(text, "data.jsonl:2: sample has 5 tokens, max_seq_len is 3"));
    EXPECT_TRUE(
        has(text, "raise max_seq_len (5 takes all), or set over_length to truncate or drop"));
    std::string many = "{\"input_ids\":[1,2,3]}\n";
    for (int i = 0; i < 25; ++i) many += "{\"input_ids\":[1,2,3,4]}\n";
    many += "{\"input_ids\":[1,2,3,4,5,6,7,8,9]}\n{\"input_ids\":[1,2,3,4]}\n";
    put(path(), many);
    const auto problems = problems_of([&] { Dataset(path(), job_, 100); });
    ASSERT_EQ(problems.size(), 1U) << "one for all of them";
    EXPECT_EQ(problems[0].where, path() + ":2");
    EXPECT_EQ(problems[0].what,
              cat("sample has 4 tokens, max_seq_len is 3; 27 of the 28 samples are longer, the "
                  "longest, ",
                  path(), ":27, has 9"));
}

TEST_F(DatasetTest, SamplesThatTrainOnEveryTokenAreCounted) {
    const Dataset data = open(
        "{\"input_ids\":[1,2,3]}\n{\"input_ids\":[1,2,3],\"labels\":[1,2,3]}\n"
        "{\"input_ids\":[1,2,3],\"labels\":[-100,2,3]}\n");
    EXPECT_EQ(data.report().all_trained, 2);
}

TEST_F(DatasetTest, OverLengthTruncate) {
    job_.max_seq_len = 3;
    job_.over_length = OverLength::truncate;
    const Dataset data = open(three_lengths);
    ASSERT_EQ(data.infos().size(), 3U);
    EXPECT_EQ(data.infos()[1].tokens, 3);
    EXPECT_EQ(data.infos()[1].targets, 0);
    EXPECT_EQ(data.read(1).input_ids, (Ids{1, 2, 3}));
    EXPECT_EQ(data.read(1).labels, (Ids{-100, -100, -100}));
    EXPECT_EQ(data.report().truncated, 1);
    EXPECT_EQ(data.report().dropped, 0);
    EXPECT_EQ(data.report().without_target, 1);
}

TEST_F(DatasetTest, OverLengthDrop) {
    job_.max_seq_len = 3;
    job_.over_length = OverLength::drop;
    const Dataset data = open(three_lengths);
    ASSERT_EQ(data.infos().size(), 2U);
    EXPECT_EQ(data.read(1).input_ids, (Ids{7, 8, 9}));
    EXPECT_EQ(data.report().samples, 3);
    EXPECT_EQ(data.report().dropped, 1);
    job_.max_seq_len = 1;
    EXPECT_TRUE(has(refusal(three_lengths), "data.jsonl: all 3 samples were dropped"));
}

TEST_F(DatasetTest, ChecksTheVocabulary) {
    const std::string text = refusal(
        "{\"input_ids\":[1,99,100]}\n"
        "{\"input_ids\":[1,2],\"labels\":[-100,-1]}\n"
        "{\"input_ids\":[1,2],\"labels\":[500,2]}\n"
        "{\"input_ids\":[1,2],\"labels\":[-100,99]}\n");
    EXPECT_TRUE(has(text, "data.jsonl:1: token 2 is 100, outside the vocabulary of 100"));
    EXPECT_TRUE(has(text, "data.jsonl:2: label 1 is -1, neither -100 nor in the vocabulary"));
    EXPECT_TRUE(has(text, "data.jsonl:3: label 0 is 500"));
    EXPECT_FALSE(has(text, "data.jsonl:4"));
}

TEST_F(DatasetTest, RefusesLabelsThatAreShiftedAlready) {
    const std::string text = refusal(
        "{\"input_ids\":[1,2,3]}\n"
        "{\"input_ids\":[1,9,8,7],\"labels\":[9,8,7,-100]}\n"
        "{\"input_ids\":[1,9,8,7],\"labels\":[-100,8,7,-100]}\n");
    EXPECT_TRUE(has(text, "data.jsonl:2: labels are shifted by one"));
    EXPECT_FALSE(has(text, "data.jsonl:3"));
    EXPECT_TRUE(has(refusal("{\"input_ids\":[1,9,8,7],\"labels\":[-100,8,7,-100]}\n"), "shifted"));
    EXPECT_TRUE(has(refusal("{\"input_ids\":[1,9,8,7],\"labels\":[-100,-100,9,8]}\n"),
                    "each is the id of the token before"));
    open(
        "{\"input_ids\":[1,9,8,7],\"labels\":[-100,9,8,7]}\n"  // own ids
        "{\"input_ids\":[5,5,5],\"labels\":[5,5,5]}\n"         // which are the next ones' too
        "{\"input_ids\":[1,9,8],\"labels\":[-100,8,-100]}\n"   // one label may be anything
        "{\"input_ids\":[1,9,8],\"labels\":[-100,-100,-100]}\n");
}

TEST_F(DatasetTest, AllKindsOfProblemsAtOnce) {
    job_.max_seq_len = 2;
    const std::string text = refusal("{\"input_ids\":[1,2,3]}\nnonsense\n{\"input_ids\":[100]}\n");
    EXPECT_TRUE(has(text, "data.jsonl:1: sample has 3 tokens"));
    EXPECT_TRUE(has(text, "data.jsonl:2: not valid JSON"));
    EXPECT_TRUE(has(text, "data.jsonl:3: token 0 is 100"));
}

TEST_F(DatasetTest, RefusesDataWithoutAnyTarget) {
    EXPECT_TRUE(
        has(refusal("{\"input_ids\":[1,2],\"labels\":[1,-100]}\n"), "no sample has a target"));
    job_.only_prompts = true;
    EXPECT_EQ(open("{\"input_ids\":[1,2],\"labels\":[1,-100]}\n").infos().size(), 1U);
}

TEST_F(DatasetTest, ReadsBytes) {
    job_.tokenizer = Tokenizer::bytes;
    const std::string line = "{\"prompt\":\"a\",\"completion\":\"b\"}\n";
    const Dataset data = open(line, 258);
    EXPECT_EQ(data.infos()[0].tokens, 4);
    EXPECT_EQ(data.infos()[0].targets, 2);
    EXPECT_TRUE(
        has(refusal(line, 257), "tokenizer bytes needs a vocabulary of 258, the model has 257"));
}

TEST_F(DatasetTest, ChecksumSeesEveryTokenAndLabel) {
    const auto checksum = [&](const std::string& text) { return open(text).checksum(); };
    const std::string first = checksum("{\"input_ids\":[1,2,3],\"labels\":[1,2,3]}\n");
    EXPECT_EQ(first, checksum("{ \"labels\": [1,2,3], \"input_ids\": [1,2,3] }\n"));
    EXPECT_NE(first, checksum("{\"input_ids\":[1,2,4],\"labels\":[1,2,3]}\n"));
    EXPECT_NE(first, checksum("{\"input_ids\":[1,2,3],\"labels\":[-100,2,3]}\n"));
    EXPECT_NE(checksum("{\"input_ids\":[1,2]}\n{\"input_ids\":[3]}\n"),
              checksum("{\"input_ids\":[1]}\n{\"input_ids\":[2,3]}\n"));
}

TEST_F(DatasetTest, MovesWithItsFile) {
    Dataset data = open(three_lengths);
    Dataset moved = std::move(data);
    EXPECT_EQ(moved.read(2).input_ids, (Ids{7, 8, 9}));
    data = open("{\"input_ids\":[1,2]}\n");
    EXPECT_EQ(data.infos().size(), 1U);
}

/// Sample i is [i, i, ...], of i + 2 tokens.
std::string numbered(int samples) {
    std::string text;
    for (int i = 0; i < samples; ++i) {
        std::string ids = std::to_string(i);
        for (int k = 0; k <= i; ++k) ids += cat(",", i);
        text += cat("{\"input_ids\":[", ids, "]}\n");
    }
    return text;
}

TEST_F(DatasetTest, HoldsOutSamplesOfTheFile) {
    Dataset train = open(numbered(40));
    const Dataset eval = train.hold_out(9, 42);
    ASSERT_EQ(eval.infos().size(), 9U);
    ASSERT_EQ(train.infos().size(), 31U);
    std::vector<std::int64_t> all;
    for (const Dataset* part : {&std::as_const(train), &eval}) {
        EXPECT_TRUE(std::is_sorted(part->positions().begin(), part->positions().end()));
        for (std::size_t i = 0; i < part->infos().size(); ++i) {
            const std::int64_t position = part->positions()[i];
            EXPECT_EQ(part->read(static_cast<std::int64_t>(i)).input_ids.front(), position);
            EXPECT_EQ(part->infos()[i].tokens, position + 2);
            all.push_back(position);
        }
    }
    std::sort(all.begin(), all.end());
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<int>(i));
    EXPECT_EQ(train.report().samples, 40);
    EXPECT_EQ(train.report().held_out, 9);
    EXPECT_EQ(eval.report().samples, 9);
    EXPECT_NE(eval.positions().back(), 8) << "not simply the first";
}

TEST_F(DatasetTest, WhatIsHeldOutDependsOnSeedNumberAndDataOnly) {
    struct Parts {
        std::vector<std::int64_t> held_out;
        std::string train;
        std::string eval;
    };
    const auto parts = [&](int samples, std::int64_t count, std::uint64_t seed) {
        Dataset train = open(numbered(samples));
        const Dataset eval = train.hold_out(count, seed);
        return Parts{eval.positions(), train.checksum(), eval.checksum()};
    };
    const Parts first = parts(40, 9, 42);
    EXPECT_EQ(first.held_out, parts(40, 9, 42).held_out);
    EXPECT_EQ(first.train, parts(40, 9, 42).train);
    EXPECT_EQ(first.eval, parts(40, 9, 42).eval);
    EXPECT_NE(first.eval, first.train);
    EXPECT_NE(first.eval, parts(41, 9, 42).eval);
    EXPECT_NE(first.train, open(numbered(40)).checksum());
    for (const Parts& other : {parts(40, 10, 42), parts(40, 9, 43)}) {
        EXPECT_NE(first.held_out, other.held_out);
        EXPECT_NE(first.train, other.train);
        EXPECT_NE(first.eval, other.eval);
    }
    // A change would move samples from training to evaluation when an old run is continued.
    EXPECT_EQ(parts(8, 3, 42).held_out, (std::vector<std::int64_t>{0, 3, 6}));
}

TEST_F(DatasetTest, HoldsOutOfWhatWasKept) {
    job_.max_seq_len = 12;
    job_.over_length = OverLength::drop;
    Dataset train = open(numbered(40));
    ASSERT_EQ(train.infos().size(), 11U);
    const Dataset eval = train.hold_out(10, 42);
    EXPECT_LE(eval.positions().back(), 10);
    EXPECT_EQ(train.infos().size(), 1U);
    EXPECT_THROW(train.hold_out(1, 42), Error);
    EXPECT_THROW(train.hold_out(0, 42), Error);
}

TEST_F(DatasetTest, GoldenDataFitTheirModel) {
    const std::string file = LORATRAIN_TEST_DATA "/golden/llama/adapters/a_r4_all/data.jsonl";
    EXPECT_EQ(Dataset(file, job_, 320).infos().size(), 24U);
    EXPECT_TRUE(has(problem_text([&] { Dataset(file, job_, 310); }), "outside the vocabulary"));
}

/// Pairs whose rejected samples have so many tokens.
std::string pairs_of(std::initializer_list<int> rejected_tokens) {
    std::string text;
    for (const int tokens : rejected_tokens) {
        std::string ids = "1";
        for (int i = 1; i < tokens; ++i) ids += ",1";
        text += cat(R"({"chosen_input_ids":[7,7],"chosen_labels":[-100,7],"rejected_input_ids":[)",
                    ids, R"(],"rejected_labels":[)", ids, "]}\n");
    }
    return text;
}

TEST_F(DatasetTest, PairsAreDroppedWhole) {
    job_.max_seq_len = 3;
    job_.over_length = OverLength::drop;
    const Dataset data = open(pairs_of({2, 9, 3}));
    EXPECT_EQ(data.group_samples(), 2);
    EXPECT_EQ(data.positions(), (std::vector<std::int64_t>{0, 1, 4, 5}));
    EXPECT_EQ(data.report().dropped, 2);
    EXPECT_EQ(data.infos()[3].tokens, 3);
    EXPECT_TRUE(has(refusal(pairs_of({9})), "all 2 samples were dropped"));
}

TEST_F(DatasetTest, PairsAreHeldOutWhole) {
    Dataset train = open(pairs_of({2, 3, 4, 5, 6}));
    const Dataset eval = train.hold_out(2, 42);
    ASSERT_EQ(eval.infos().size(), 4U);
    ASSERT_EQ(train.infos().size(), 6U);
    for (const Dataset* part : std::initializer_list<const Dataset*>{&train, &eval}) {
        for (std::size_t i = 0; i < part->positions().size(); i += 2) {
            EXPECT_EQ(part->positions()[i] % 2, 0);
            EXPECT_EQ(part->positions()[i + 1], part->positions()[i] + 1);
        }
    }
    EXPECT_THROW(train.hold_out(3, 42), Error);
}

/// Examples with labels whose completions have so many tokens.
std::string examples_of(std::initializer_list<int> completions) {
    std::string text;
    for (const int tokens : completions) {
        std::string ids = "5";
        for (int i = 1; i < tokens; ++i) ids += ",5";
        text += cat(R"({"input_ids":[7,)", ids, R"(],"labels":[-100,)", ids, R"(],"label":)",
                    tokens % 2 == 0 ? "true" : "false", "}\n");
    }
    return text;
}

TEST_F(DatasetTest, ExamplesWithLabelsGetKlSamples) {
    job_.kl_batch_size = 2;
    job_.max_seq_len = 5;
    job_.over_length = OverLength::drop;
    Dataset data = open(examples_of({1, 2, 9, 3, 4, 2}));
    EXPECT_EQ(data.group_samples(), 4);
    EXPECT_EQ(data.positions(), (std::vector<std::int64_t>{0, 1, 3, 4}));
    EXPECT_EQ(data.report().dropped, 1);
    EXPECT_EQ(data.report().ungrouped, 1);
    ASSERT_EQ(data.infos().size(), 8U);
    EXPECT_EQ(data.infos()[2].tokens, 3);  // the first one's prompt, the second one's completion
    EXPECT_TRUE(data.infos()[0].undesirable);
    EXPECT_FALSE(data.infos()[1].undesirable);
    EXPECT_EQ(data.read(7).input_ids.size(), 4U);
    const Dataset eval = data.hold_out(1, 42);
    EXPECT_EQ(eval.infos().size(), 4U);
    EXPECT_EQ(data.infos().size(), 4U);
    EXPECT_EQ(data.report().held_out, 2);
    EXPECT_NE(eval.positions(), data.positions());
}

class SeveralFiles : public DatasetTest {
  protected:
    Dataset open_all(const std::vector<std::string>& texts) {
        std::vector<std::string> paths;
        for (const std::string& text : texts) {
            paths.push_back(dir_.file(cat(paths.size(), ".jsonl")));
            put(paths.back(), text);
        }
        return {paths, job_, 100};
    }
    std::string refusal_of(const std::vector<std::string>& texts) {
        return problem_text([&] { open_all(texts); });
    }
};

TEST_F(SeveralFiles, AreOneBehindTheOther) {
    job_.max_seq_len = 3;
    job_.over_length = OverLength::drop;
    const std::string one = "{\"input_ids\":[4,4]}\n";
    Dataset data = open_all({three_lengths, one, three_lengths});
    EXPECT_EQ(data.positions(), (std::vector<std::int64_t>{0, 2, 3, 4, 6}));
    EXPECT_EQ(data.samples_of_files(), (std::vector<std::int64_t>{2, 1, 2}));
    EXPECT_EQ(data.read(1).input_ids, (Ids{7, 8, 9}));
    EXPECT_EQ(data.read(2).input_ids, (Ids{4, 4}));
    EXPECT_EQ(data.read(4).input_ids, (Ids{7, 8, 9}));
    EXPECT_EQ(data.checksum(), open(cat(three_lengths, one, three_lengths)).checksum());
    const Dataset eval = data.hold_out(2, 42);
    std::vector<std::int64_t> whole{0, 0, 0};
    for (std::size_t f = 0; f < 3; ++f) {
        whole[f] = data.samples_of_files()[f] + eval.samples_of_files()[f];
    }
    EXPECT_EQ(whole, (std::vector<std::int64_t>{2, 1, 2}));
}

TEST_F(SeveralFiles, GroupExamplesFileByFile) {
    job_.kl_batch_size = 2;
    const Dataset data = open_all({examples_of({1, 2, 3}), examples_of({4, 5})});
    EXPECT_EQ(data.positions_of_files(), (std::vector<std::vector<std::int64_t>>{{0, 1}, {0, 1}}));
    EXPECT_EQ(data.samples_of_files(), (std::vector<std::int64_t>{4, 4}));
    EXPECT_EQ(data.report().ungrouped, 1);
    EXPECT_EQ(data.read(4).input_ids.size(), 5U);  // the second file's first example
}

TEST_F(SeveralFiles, AreRefusedTogether) {
    EXPECT_TRUE(has(refusal_of({pairs_of({2}), three_lengths}), "1.jsonl: holds single samples, "));
    const std::string text = refusal_of({"{", "{\"input_ids\":[1,200]}\n"});
    EXPECT_TRUE(has(text, "0.jsonl:1") && has(text, "1.jsonl:1"));
    job_.max_seq_len = 2;
    job_.over_length = OverLength::drop;
    EXPECT_TRUE(has(refusal_of({three_lengths, "{\"input_ids\":[1,2,3]}\n"}),
                    "1.jsonl: all 1 samples were dropped"));
}

TEST_F(DatasetTest, RefusesExamplesThatMakeNoGroup) {
    EXPECT_TRUE(has(refusal(examples_of({1, 2})), "has 2 examples, too few for a group of "));
    EXPECT_TRUE(has(refusal(R"({"input_ids":[1,2,3],"labels":[-100,2,-100],"label":true})"),
                    "data.jsonl:1: some tokens of the completion are not trained"));
}

}  // namespace
}  // namespace loratrain::test
