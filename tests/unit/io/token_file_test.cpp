#include "io/tokens/token_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <functional>
#include <thread>

#include "io/hdf5_handle.h"
#include "support/files.h"
#include "support/problems.h"
#include "test_paths.h"

namespace loratrain::test {
namespace {

using Ids = std::vector<std::int32_t>;
using Floats = std::vector<float>;

void put_list(hid_t file, const char* name, hid_t type, hid_t memory_type, std::size_t count,
              const void* data, hid_t layout = H5P_DEFAULT) {
    const hsize_t extent = count;
    const Hdf5Handle space(H5Screate_simple(1, &extent, nullptr), H5Sclose);
    const Hdf5Handle dataset(
        H5Dcreate2(file, name, type, space.get(), H5P_DEFAULT, layout, H5P_DEFAULT), H5Dclose);
    if (count > 0) H5Dwrite(dataset.get(), memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data);
}

class TokenFileTest : public ::testing::Test {
  protected:
    std::unique_ptr<TokenFile> open_lines(const std::string& text, bool bytes = false) {
        put(jsonl(), text);
        return open_token_file(jsonl(), bytes);
    }
    std::string refusal(const std::string& text, bool bytes = false) {
        put(jsonl(), text);
        return problem_text([&] { open_token_file(jsonl(), bytes); });
    }
    void put_hdf5(const Ids& tokens, const Ids& labels, const std::vector<std::int64_t>& offsets) {
        const Hdf5Handle file = create_hdf5_file(h5());
        put_list(file.get(), "tokens", H5T_STD_I32LE, H5T_NATIVE_INT32, tokens.size(),
                 tokens.data());
        put_list(file.get(), "labels", H5T_STD_I32LE, H5T_NATIVE_INT32, labels.size(),
                 labels.data());
        put_list(file.get(), "offsets", H5T_STD_I64LE, H5T_NATIVE_INT64, offsets.size(),
                 offsets.data());
    }
    /// A good file but for one list, open to get another.
    Hdf5Handle hdf5_without(const char* name) {
        put_hdf5({1, 2, 3}, {1, 2, 3}, {0, 3});
        Hdf5Handle file(H5Fopen(h5().c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
        H5Ldelete(file.get(), name, H5P_DEFAULT);
        return file;
    }
    std::string hdf5_refusal() {
        return problem_text([&] { open_token_file(h5(), false); });
    }
    std::string jsonl() const { return dir_.file("data.jsonl"); }
    std::string h5() const { return dir_.file("data.h5"); }

    TempDir dir_;
};

TEST_F(TokenFileTest, ReadsLinesInAnyOrder) {
    const auto file = open_lines(
        "{\"input_ids\": [1, 2, 3], \"labels\": [-100, 2, 3]}\n"
        "{\"input_ids\":[7],\"attention_mask\":[1]}\r\n"
        "{\"labels\": [5, 6], \"input_ids\": [5, 6]}");
    ASSERT_EQ(file->size(), 3);
    EXPECT_EQ(file->length(0), 3);
    EXPECT_EQ(file->length(1), 1);
    EXPECT_EQ(file->read(2).input_ids, (Ids{5, 6}));
    EXPECT_EQ(file->read(1).labels, Ids{7});
    EXPECT_EQ(file->read(0).labels, (Ids{-100, 2, 3}));
    EXPECT_TRUE(file->where(2).ends_with("data.jsonl:3"));
    EXPECT_THROW(file->read(3), Error);
    EXPECT_THROW(file->read(-1), Error);
}

TEST_F(TokenFileTest, ReadsWeights) {
    const auto file = open_lines(
        "{\"input_ids\":[1,2,3,4],\"labels\":[-100,2,3,4],\"weights\":[7, 0.5, 0, 2e0]}\n"
        "{\"weights\":[1,1.0],\"input_ids\":[5,6],\"attention_mask\":[true,true]}\n"
        "{\"input_ids\":[7,8],\"weights\":[1,0.25],\"attention_mask\":[true,true]}\n"
        "{\"input_ids\":[9]}");
    EXPECT_EQ(file->read(0).weights, (Floats{1.0F, 0.5F, 1.0F, 2.0F}));
    EXPECT_EQ(file->read(0).labels, (Ids{-100, 2, -100, 4}));
    EXPECT_EQ(file->read(1).weights, Floats{});
    EXPECT_EQ(file->read(2).weights, (Floats{1.0F, 0.25F}));
    EXPECT_EQ(file->read(2).labels, (Ids{7, 8}));
    EXPECT_EQ(file->read(3).weights, Floats{});
}

TEST_F(TokenFileTest, RefusesBadWeights) {
    const auto with = [&](const std::string& weights) {
        return refusal("{\"input_ids\":[1]}\n{\"input_ids\":[1,2],\"weights\":" + weights + "}\n");
    };
    EXPECT_TRUE(has(with("[1,-0.5]"), "data.jsonl:2: 'weights'[1] is -0.5"));
    EXPECT_TRUE(has(with("[1,1e31]"), "'weights'[1] is 1e+31"));
    EXPECT_TRUE(has(with("[1e-40,1]"), "'weights'[0] is 1e-40"));
    EXPECT_TRUE(has(with("[1,true]"), "'weights'[1] is true"));
    EXPECT_TRUE(has(with("[1]"), "data.jsonl:2: 2 input_ids but 1 weights"));
    EXPECT_TRUE(has(with("0.5"), "'weights' is a fraction, must be a list of numbers"));
    EXPECT_TRUE(has(with("[1,NaN]"), "data.jsonl:2: "));
    EXPECT_TRUE(has(refusal("{\"input_ids\":[1,2],\"token_weights\":[1,2]}"),
                    "unknown key 'token_weights'"));
    EXPECT_TRUE(has(refusal("{\"text\":\"a\",\"weights\":[1]}", true), "is text"));
    EXPECT_TRUE(has(refusal("{\"chosen_input_ids\":[1],\"weights\":[1]}"), "is a pair"));
}

TEST_F(TokenFileTest, Hdf5Weights) {
    const auto put_weights = [&](const std::vector<double>& weights) {
        put_hdf5({1, 2, 3}, {-100, 2, 3}, {0, 2, 3});
        const Hdf5Handle file(H5Fopen(h5().c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
        put_list(file.get(), "weights", H5T_IEEE_F32LE, H5T_NATIVE_DOUBLE, weights.size(),
                 weights.data());
    };
    put_weights({3.0, 0.5, 0.0});
    auto file = open_token_file(h5(), false);
    EXPECT_EQ(file->read(0).weights, (Floats{1.0F, 0.5F}));
    EXPECT_EQ(file->read(1).weights, Floats{});
    EXPECT_EQ(file->read(1).labels, Ids{-100});
    file.reset();
    put_weights({1.0, 1.0, -1.0});
    EXPECT_TRUE(has(hdf5_refusal(), "data.h5:sample 1: weight 0 is -1"));
    put_weights({std::nan(""), 1.0, 1.0});
    EXPECT_TRUE(has(hdf5_refusal(), "data.h5:sample 0: weight 0 is nan"));
    put_weights({1.0, 1.0});
    EXPECT_TRUE(has(hdf5_refusal(), "data.h5:weights: 3 tokens but 2 weights"));
}

TEST_F(TokenFileTest, BlankLastLineIsFine) {
    EXPECT_EQ(open_lines("{\"input_ids\":[1]}\n")->size(), 1);
    EXPECT_EQ(open_lines("{\"input_ids\":[1]}\n\n")->size(), 1);
    EXPECT_EQ(open_lines("{\"input_ids\":[1]}\n  ")->size(), 1);
    EXPECT_TRUE(has(refusal("{\"input_ids\":[1]}\n\n{\"input_ids\":[1]}\n"),
                    "data.jsonl:2: line is blank"));
}

TEST_F(TokenFileTest, LinesLongerThanTheScanBuffer) {
    std::string text;
    std::vector<std::size_t> counts{3, 2200000, 1, 900000, 2};
    for (const std::size_t count : counts) {
        text += "{\"input_ids\":[" + std::to_string(count % 1000);
        for (std::size_t i = 1; i < count; ++i) text += ",1";
        text += "]}\n";
    }
    const auto file = open_lines(text);
    ASSERT_EQ(file->size(), 5);
    for (std::int64_t i = 0; i < 5; ++i) {
        const std::size_t count = counts[static_cast<std::size_t>(i)];
        EXPECT_EQ(file->length(i), static_cast<std::int64_t>(count));
        const TokenSample sample = file->read(i);
        EXPECT_EQ(sample.input_ids.size(), count);
        EXPECT_EQ(sample.input_ids[0], static_cast<std::int32_t>(count % 1000));
    }
}

TEST_F(TokenFileTest, RefusesALineWithoutEnd) {
    put(jsonl(), "{\"input_ids\":[1]}\n[");
    std::filesystem::resize_file(jsonl(), std::uintmax_t{6} << 30U);  // sparse
    EXPECT_TRUE(has(problem_text([&] { open_token_file(jsonl(), false); }),
                    "data.jsonl:2: line is longer than 256"));
}

TEST_F(TokenFileTest, GoldenData) {
    const auto file =
        open_token_file(LORATRAIN_TEST_DATA "/golden/llama/adapters/a_r4_all/data.jsonl", false);
    EXPECT_EQ(file->size(), 24);
    EXPECT_EQ(file->read(0).input_ids.size(), file->read(0).labels.size());
    EXPECT_EQ(file->read(0).input_ids[0], 128);
}

TEST_F(TokenFileTest, VisitsEverySampleOnce) {
    put(jsonl(), "{\"input_ids\":[1,2]}\n{\"input_ids\":[3]}\n");
    std::string seen;
    const auto visit = [&](const std::string& where, const TokenSample& sample) {
        seen +=
            where.substr(where.rfind('/') + 1) + "=" + std::to_string(sample.input_ids[0]) + " ";
    };
    open_token_file(jsonl(), false, visit);
    put_hdf5({1, 2, 3}, {1, 2, 3}, {0, 2, 3});
    open_token_file(h5(), false, visit);
    EXPECT_EQ(seen, "data.jsonl:1=1 data.jsonl:2=3 data.h5:sample 0=1 data.h5:sample 1=3 ");
}

TEST_F(TokenFileTest, ReadsFromSeveralThreads) {
    std::string text;
    Ids ids;
    std::vector<std::int64_t> offsets{0};
    for (int i = 0; i < 500; ++i) {
        text += "{\"input_ids\":[" + std::to_string(i) + "," + std::to_string(i) + "]}\n";
        ids.insert(ids.end(), 2, i);
        offsets.push_back(2 * (i + 1));
    }
    put_hdf5(ids, ids, offsets);
    const auto lines = open_lines(text);
    const auto hdf5 = open_token_file(h5(), false);
    std::vector<int> wrong(4, 0);
    std::vector<std::thread> threads;
    threads.reserve(wrong.size());
    for (int& count : wrong) {
        threads.emplace_back([&] {
            for (int i = 0; i < 500; ++i) {
                count += lines->read(i).input_ids != Ids{i, i};
                count += hdf5->read(i).labels != Ids{i, i};
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, (std::vector<int>{0, 0, 0, 0}));
}

TEST_F(TokenFileTest, RefusesBadLines) {
    const auto line = [&](const std::string& text) { return refusal(text + "\n"); };
    EXPECT_TRUE(has(line("{\"input_ids\": [1, 2"), "data.jsonl:1: not valid JSON: "));
    EXPECT_TRUE(has(line("{\"input_ids\": [1, 2"), "may be truncated"));
    EXPECT_TRUE(has(line("[1, 2]"), "holds an array, must be an object"));
    EXPECT_TRUE(has(line("{\"ids\": [1]}"), "has no 'input_ids'"));
    EXPECT_TRUE(has(line("{\"text\": \"a\"}"), "set tokenizer: bytes"));
    EXPECT_TRUE(has(line("{\"input_ids\": 3}"), "'input_ids' is a number, must be a list"));
    EXPECT_TRUE(
        has(line("{\"input_ids\": [1, \"a\"]}"), "'input_ids'[1] is \"a\": not a whole number"));
    EXPECT_TRUE(has(line("{\"input_ids\": [1.5]}"), "'input_ids'[0] is 1.5: not a whole number"));
    EXPECT_TRUE(has(line("{\"input_ids\": [4, -2]}"), "'input_ids'[1] is -2: negative"));
    EXPECT_TRUE(has(line("{\"input_ids\": [2147483648]}"), "2147483648: too large"));
    EXPECT_TRUE(
        has(line("{\"input_ids\": [18446744073709551615]}"), "is 18446744073709551615: too large"));
    EXPECT_TRUE(has(line("{\"input_ids\": [1], \"labels\": [-3000000000]}"),
                    "'labels'[0] is -3000000000: too small"));
    EXPECT_TRUE(has(line("{\"input_ids\": []}"), "sample is empty"));
    EXPECT_TRUE(has(line("{\"input_ids\": [1, 2], \"labels\": [1]}"), "2 input_ids but 1 labels"));
    EXPECT_TRUE(has(line("{\"input_ids\": [1], \"labels\": \"x\"}"), "'labels' is a string"));
    EXPECT_TRUE(has(line("{\"input_ids\": [1], \"labels\": [null]}"), "'labels'[0] is null"));
    EXPECT_TRUE(has(line("{\"input_ids\": [1], \"label\": [1]}"), "did you mean 'labels'?"));
    EXPECT_TRUE(has(line("{\"input_ids\": [1], \"label_ids\": [1]}"), "unknown key 'label_ids'"));
    EXPECT_TRUE(has(line("{\"input_ids\": [\"\xff\"]}"), "not valid JSON"));
    EXPECT_TRUE(has(line("{\"input_ids\": [1],\"input_ids\": [2]}"),
                    "data.jsonl:1: key 'input_ids' is given twice"));
    EXPECT_TRUE(has(line("{\"input_ids\": [" + std::string(100000, '[')),
                    "data.jsonl:1: is nested more than 100 levels deep"));
}

TEST_F(TokenFileTest, RefusesMasksThatWouldBeIgnored) {
    const auto with = [](const std::string& keys) {
        return "{\"input_ids\":[1,2]," + keys + "}\n";
    };
    const std::string labels = ",\"labels\":[-100,2]";
    for (const std::string key :
         {"completion_mask", "assistant_masks", "assistant_mask", "loss_mask"}) {
        const std::string mask = "\"" + key + "\":[0,1]";
        EXPECT_TRUE(has(refusal(with(mask)), "data.jsonl:1: has '" + key + "' but no 'labels'"));
        EXPECT_EQ(open_lines(with(mask + labels))->size(), 1);
    }
    const std::string padded = "\"attention_mask\":[1,0]";
    EXPECT_TRUE(has(refusal(with(padded)), "padding inside a sample is not supported"));
    EXPECT_TRUE(has(refusal(with(padded + labels)), "padding inside a sample is not supported"));
    EXPECT_TRUE(has(refusal(with("\"attention_mask\":1")), "'attention_mask' is not all ones"));
    EXPECT_EQ(open_lines(with("\"attention_mask\":[true,1]"))->size(), 1);
}

TEST_F(TokenFileTest, RefusesMasksThatLabelsContradict) {
    const std::string text =
        R"({"input_ids":[1,2,3],"labels":[-100,2,3],"assistant_masks":[0,0,1]})";
    EXPECT_TRUE(
        has(refusal(text), "data.jsonl:1: 'assistant_masks'[1] is 0, but 'labels'[1] is 2"));
    EXPECT_TRUE(has(refusal(R"({"input_ids":[1,2],"labels":[1,2],"completion_mask":[1]})"),
                    "'completion_mask' is not a list of 2 numbers"));
}

// Of packed rows as axolotl, TRL and others write them.
TEST_F(TokenFileTest, RefusesRowsOfSeveralDocuments) {
    const auto with = [](const std::string& keys) {
        return R"({"input_ids":[5,6,7,8],"labels":[-100,6,-100,8],)" + keys + "}\n";
    };
    for (const auto& [keys, message] :
         {std::pair{R"("position_ids":[0,1,0,1])", "'position_ids'[2] is 0, not 2"},
          {R"("position_ids":[4,5,6,7])", "'position_ids'[0] is 4, not 0"},
          {R"("input_pos":[0,0,0,0])", "'input_pos'[1] is 0, not 1"},
          {R"("seq_lengths":[2,2])", "'seq_lengths' has 2 numbers, not [4]"},
          {R"("seq_lens":[3])", "'seq_lens' has 1 numbers, not [4]"},
          {R"("cu_seqlens":[0,2,4])", "'cu_seqlens' has 3 numbers, not [0,4]"},
          {R"("segment_ids":[1,1,2,2])", "'segment_ids'[2] is 2, not 1"},
          {R"("document_ids":[0,0,0,1])", "'document_ids'[3] is 1, not 0"},
          {R"("token_type_ids":[0,0,1,1])", "'token_type_ids'[2] is 1, not 0"},
          {R"("attention_mask":[1,1,2,2])", "'attention_mask' numbers documents"}}) {
        const std::string text = refusal(with(keys));
        EXPECT_TRUE(has(text, std::string("data.jsonl:1: ") + message)) << text;
        EXPECT_TRUE(has(text, "write each document as a sample of its own")) << text;
    }
    EXPECT_TRUE(has(refusal(with(R"("position_ids":[0,1])")), "4 input_ids but 2 position_ids"));
    EXPECT_TRUE(has(refusal(with(R"("position_ids":3)")), "'position_ids' is a number"));
    const auto one = open_lines(
        with(R"("position_ids":[0,1,2,3],"seq_lengths":[4],"cu_seqlens":[0,4])") +
        with(R"("segment_ids":[1,1,1,1],"token_type_ids":[0,0,0,0],"attention_mask":[1,1,1,1])"));
    EXPECT_EQ(one->read(0).labels, (Ids{-100, 6, -100, 8}));
    EXPECT_EQ(one->read(1).input_ids, (Ids{5, 6, 7, 8}));
}

TEST_F(TokenFileTest, RefusesUnknownKeys) {
    const auto tokens = [&](const std::string& keys) {
        return refusal(R"({"input_ids":[1],"labels":[1],)" + keys + "}\n");
    };
    EXPECT_TRUE(has(tokens(R"("positions_ids":[0])"),
                    "data.jsonl:1: unknown key 'positions_ids'\n    did you mean 'position_ids'?"));
    EXPECT_TRUE(has(tokens(R"("source":"web","id":3)"), "unknown keys 'id', 'source'"));
    EXPECT_TRUE(has(tokens(R"("wieghts":[1])"), "did you mean 'weights'?"));
    EXPECT_TRUE(has(refusal(R"({"promt":"a","text":"b"})", true), "unknown key 'promt'"));
    EXPECT_TRUE(has(refusal(R"({"prompt":"a","completion":"b","system":"c"})", true),
                    "unknown key 'system'"));
    EXPECT_TRUE(has(refusal(R"({"prompt":"a","chosen":"b","rejected":"c","score":1})", true),
                    "unknown key 'score'"));
    const std::string pair =
        R"({"chosen_input_ids":[1],"chosen_labels":[1],"rejected_input_ids":[2],)"
        R"("rejected_labels":[2],)";
    EXPECT_TRUE(
        has(refusal(pair + R"("prompt_input_ids":[3]})"), "unknown key 'prompt_input_ids'"));
    EXPECT_TRUE(has(refusal(pair + R"("chosen_attention_mask":[0]})"),
                    "'chosen_attention_mask' is not all ones"));
    EXPECT_EQ(open_lines(pair + R"("rejected_attention_mask":[1]})")->size(), 2);
}

TEST_F(TokenFileTest, RefusesEmptyAndMissingFiles) {
    EXPECT_TRUE(has(refusal(""), "data.jsonl: has no samples"));
    EXPECT_TRUE(has(refusal("\n"), "data.jsonl: has no samples"));
    EXPECT_TRUE(has(problem_text([&] { open_token_file(dir_.file("no.jsonl"), false); }),
                    "no.jsonl: cannot be read"));
    ASSERT_EQ(mkfifo(dir_.file("pipe.jsonl").c_str(), 0600), 0);
    EXPECT_TRUE(has(problem_text([&] { open_token_file(dir_.file("pipe.jsonl"), false); }),
                    "pipe.jsonl: is not a regular file"));
    EXPECT_TRUE(has(problem_text([&] { open_token_file(dir_.file("a.txt"), false); }),
                    "a.txt: has an unknown ending"));
    EXPECT_TRUE(has(problem_text([&] { open_token_file(dir_.file("openai/gsm8k"), true); }),
                    "download it first: hf download --repo-type dataset openai/gsm8k"));
    EXPECT_TRUE(has(problem_text([&] { open_token_file(dir_.file("a.h5"), true); }),
                    "remove tokenizer: bytes"));
}

TEST_F(TokenFileTest, ListsTwentyProblemsAndCountsTheRest) {
    std::string text = "{\"input_ids\": [1]}\n";
    for (int i = 0; i < 30; ++i) text += cat("{\"input_ids\": [-", i + 1, "]}\n");
    put(jsonl(), text);
    const auto problems = problems_of([&] { open_token_file(jsonl(), false); });
    ASSERT_EQ(problems.size(), 21U);
    EXPECT_TRUE(problems[0].where.ends_with("data.jsonl:2"));
    EXPECT_EQ(problems[20].what, "and 10 more problems");
}

TEST_F(TokenFileTest, LinesOfOneWrongKindAreReportedThreeTimesAndCounted) {
    std::string text;
    for (int i = 0; i < 1400; ++i) text += "{\"text\": \"raw\"}\n";
    put(jsonl(), text + "{\"input_ids\": []}\n");
    const auto problems = problems_of([&] { open_token_file(jsonl(), false); });
    ASSERT_EQ(problems.size(), 5U);
    EXPECT_TRUE(problems[2].where.ends_with("data.jsonl:3"));
    EXPECT_EQ(problems[3].what, "sample is empty");
    EXPECT_TRUE(problems[3].where.ends_with("data.jsonl:1401"));
    EXPECT_EQ(problems[4].what, "1397 more: has no 'input_ids'");
}

TEST_F(TokenFileTest, NoticesAChangedFile) {
    const auto file = open_lines("{\"input_ids\":[1,2]}\n{\"input_ids\":[3,4]}\n");
    put(jsonl(), "{\"input_ids\":[1]}  \n{\"input_ids\":[3");
    EXPECT_THROW(file->read(0), Error);
    EXPECT_THROW(file->read(1), InputError);
}

TEST_F(TokenFileTest, BytesTokenizer) {
    const TokenSample pair = tokenize_bytes("a\xff", "bc");
    EXPECT_EQ(pair.input_ids, (Ids{256, 97, 255, 98, 99, 257}));
    EXPECT_EQ(pair.labels, (Ids{-100, -100, -100, 98, 99, 257}));
    const auto file =
        open_lines("{\"prompt\": \"a\", \"completion\": \"\\u00e4\"}\n{\"text\": \"hi\"}\n", true);
    EXPECT_EQ(file->length(0), 5);
    EXPECT_EQ(file->read(0).input_ids, (Ids{256, 97, 0xc3, 0xa4, 257}));
    EXPECT_EQ(file->read(0).labels, (Ids{-100, -100, 0xc3, 0xa4, 257}));
    EXPECT_EQ(file->read(1).labels, (Ids{-100, 104, 105, 257}));
}

TEST_F(TokenFileTest, BytesTokenizerRefusesOtherLines) {
    const auto line = [&](const std::string& text) { return refusal(text + "\n", true); };
    EXPECT_TRUE(has(line("{\"prompt\": \"a\"}"), "has neither 'text' nor"));
    EXPECT_TRUE(has(line("{\"input_ids\": [1]}"), "remove tokenizer: bytes"));
    EXPECT_TRUE(has(line("{\"text\": 3}"), "'text' is a number, must be a string"));
    EXPECT_TRUE(has(line("{\"text\": \"\"}"), "sample is empty"));
    EXPECT_TRUE(
        has(line("{\"text\": \"a\", \"prompt\": \"a\", \"completion\": \"b\"}"), "has both"));
    EXPECT_TRUE(has(line("{\"prompt\": \"a\", \"completion\": null}"), "'completion' is null"));
}

TEST_F(TokenFileTest, Hdf5HoldsTheSame) {
    put_hdf5({1, 2, 3, 4, 5, 6}, {-100, 2, 3, -100, 5, 6}, {0, 3, 4, 6});
    auto file = open_token_file(h5(), false);
    ASSERT_EQ(file->size(), 3);
    EXPECT_EQ(file->length(1), 1);
    EXPECT_EQ(file->read(2).input_ids, (Ids{5, 6}));
    EXPECT_EQ(file->read(0).labels, (Ids{-100, 2, 3}));
    EXPECT_TRUE(file->where(2).ends_with("data.h5:sample 2"));
    EXPECT_THROW(file->read(3), Error);
    file.reset();
    H5Ldelete(Hdf5Handle(H5Fopen(h5().c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose).get(),
              "labels", H5P_DEFAULT);
    EXPECT_EQ(open_token_file(h5(), false)->read(0).labels, (Ids{1, 2, 3}));
}

TEST_F(TokenFileTest, Hdf5RefusesOtherFormats) {
    const auto put_format = [&](const std::string& format) {
        put_hdf5({1, 2, 3}, {1, 2, 3}, {0, 3});
        const Hdf5Handle file(H5Fopen(h5().c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
        write_text_attribute(file.get(), "format", format, h5());
    };
    put_format("loratrain-tokens-1");
    EXPECT_EQ(open_token_file(h5(), false)->size(), 1);
    for (const char* format : {"loratrain-tokens-2", "loratrain-base-1"}) {
        put_format(format);
        EXPECT_TRUE(has(hdf5_refusal(),
                        cat("data.h5: has format '", format, "', must be 'loratrain-tokens-1'")));
    }
}

TEST_F(TokenFileTest, Hdf5RefusesBadLayouts) {
    put_hdf5({1, 2, -3}, {1, 2, 3}, {0, 2, 3});
    EXPECT_TRUE(has(hdf5_refusal(), "data.h5:sample 1: token 0 is -3: negative"));
    put_hdf5({1, 2, 3}, {1, 2}, {0, 2, 2, 4});
    const std::string text = hdf5_refusal();
    EXPECT_TRUE(has(text, "data.h5:labels: 3 tokens but 2 labels"));
    EXPECT_TRUE(has(text, "data.h5:offsets: run from 0 to 4, must run from 0 to the 3 tokens"));
    EXPECT_TRUE(has(text, "data.h5:sample 1: sample is empty"));
    put_hdf5({1, 2, 3}, {1, 2, 3}, {0, 4, 3});
    EXPECT_TRUE(has(hdf5_refusal(), "data.h5:sample 0: runs from 0 to 4 of the 3 tokens"));
    put_hdf5({1, 2, 3}, {1, 2, 3}, {0, 2, 1, 3});
    EXPECT_TRUE(has(hdf5_refusal(), "data.h5:sample 1: has -1 tokens by its offsets"));
    put_hdf5({}, {}, {0});
    EXPECT_TRUE(has(hdf5_refusal(), "data.h5: has no samples"));
}

TEST_F(TokenFileTest, Hdf5RefusesHugeOffsets) {
    put_hdf5({1, 2, 3}, {1, 2, 3}, {0, INT64_MIN, INT64_MAX, 3});
    const std::string text = hdf5_refusal();
    EXPECT_TRUE(has(text, "sample 0: runs from 0 to -9223372036854775808 of the 3 tokens"));
    EXPECT_TRUE(has(text, "sample 1: runs from -9223372036854775808 to 9223372036854775807"));
}

TEST_F(TokenFileTest, Hdf5RefusesDataThatAreNotThere) {
    const auto offsets_of = [&](hsize_t count, const Hdf5Handle& layout) {
        const Hdf5Handle file = hdf5_without("offsets");
        const Hdf5Handle space(H5Screate_simple(1, &count, nullptr), H5Sclose);
        const Hdf5Handle dataset(H5Dcreate2(file.get(), "offsets", H5T_STD_I64LE, space.get(),
                                            H5P_DEFAULT, layout.get(), H5P_DEFAULT),
                                 H5Dclose);
        ASSERT_TRUE(static_cast<bool>(dataset));
    };
    const auto layout = [] { return Hdf5Handle(H5Pcreate(H5P_DATASET_CREATE), H5Pclose); };
    const Hdf5Handle chunked = layout();
    const hsize_t chunk = 16;
    H5Pset_chunk(chunked.get(), 1, &chunk);
    offsets_of(hsize_t{1} << 59U, chunked);
    EXPECT_TRUE(has(hdf5_refusal(), "data.h5:offsets: claims more data than the file can hold"));
    offsets_of(40, chunked);
    EXPECT_TRUE(has(hdf5_refusal(), "data.h5:offsets: the file's index has 0 of its 3 chunks"));
    offsets_of(40, layout());
    EXPECT_TRUE(has(hdf5_refusal(), "data.h5:offsets: its data were never written"));
    const Hdf5Handle compressed = layout();
    H5Pset_chunk(compressed.get(), 1, &chunk);
    H5Pset_deflate(compressed.get(), 5);
    H5Pset_alloc_time(compressed.get(), H5D_ALLOC_TIME_EARLY);
    offsets_of(40, compressed);
    EXPECT_TRUE(has(hdf5_refusal(), "data.h5:offsets: run from 0 to 0"));
    const Hdf5Handle elsewhere = layout();
    H5Pset_external(elsewhere.get(), "/etc/hostname", 0, 16);
    offsets_of(2, elsewhere);
    EXPECT_TRUE(has(hdf5_refusal(), "data.h5:offsets: keeps its data in another file"));
}

TEST_F(TokenFileTest, Hdf5RefusesDamagedHeadersWithoutChecksum) {
    const auto damaged = [&](const Hdf5Handle& layout, const std::string& before, std::size_t at,
                             char now) {
        {
            // Of the library's first format.
            const std::vector<std::int64_t> offsets{0, 1, 2, 3};
            const Hdf5Handle file(H5Fcreate(h5().c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT),
                                  H5Fclose);
            put_list(file.get(), "tokens", H5T_STD_I32LE, H5T_NATIVE_INT32, 3, Ids{1, 2, 3}.data());
            put_list(file.get(), "offsets", H5T_STD_I64LE, H5T_NATIVE_INT64, offsets.size(),
                     offsets.data(), layout.get());
        }
        EXPECT_EQ(open_token_file(h5(), false)->size(), 3);
        std::string bytes = get(h5());
        const std::size_t found = bytes.find(before);
        EXPECT_NE(found, std::string::npos);
        if (found != std::string::npos) bytes[found + at] = now;
        put(h5(), bytes);
        return hdf5_refusal();
    };
    const Hdf5Handle compact(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    H5Pset_layout(compact.get(), H5D_COMPACT);
    const std::string layout("\3\0\40\0", 4);  // version 3, compact, 32 bytes
    EXPECT_TRUE(has(damaged(compact, layout, 2, 19),
                    "data.h5:offsets: has 19 bytes in its header and needs 32"));
    const Hdf5Handle compressed(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    const hsize_t elements = 4;
    H5Pset_chunk(compressed.get(), 1, &elements);
    H5Pset_deflate(compressed.get(), 4);
    const std::string filters("\13\0\40\0", 4);  // a message about filters, 32 bytes
    EXPECT_TRUE(has(damaged(compressed, filters, 0, 0), "bytes for 1 chunks of 32"));
}

TEST_F(TokenFileTest, Hdf5RefusesChunksOfAnotherSize) {
    const hsize_t elements = 4;
    const auto stored_as = [&](const Hdf5Handle& layout, std::uint32_t skipped,
                               const std::vector<std::uint8_t>& chunk) {
        const Hdf5Handle file = hdf5_without("offsets");
        const std::vector<std::int64_t> offsets{0, 1, 2, 3};
        put_list(file.get(), "offsets", H5T_STD_I64LE, H5T_NATIVE_INT64, offsets.size(),
                 offsets.data(), layout.get());
        if (chunk.empty()) return;
        const Hdf5Handle dataset(H5Dopen2(file.get(), "offsets", H5P_DEFAULT), H5Dclose);
        const hsize_t at = 0;
        EXPECT_GE(
            H5Dwrite_chunk(dataset.get(), H5P_DEFAULT, skipped, &at, chunk.size(), chunk.data()),
            0);
    };
    const auto chunked = [&] {
        Hdf5Handle layout(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
        H5Pset_chunk(layout.get(), 1, &elements);
        return layout;
    };
    const Hdf5Handle filtered = chunked();
    H5Pset_shuffle(filtered.get());
    H5Pset_deflate(filtered.get(), 4);
    H5Pset_fletcher32(filtered.get());
    const std::uint32_t all = 7;
    const std::uint32_t all_but_deflate = 5;
    stored_as(chunked(), 0, {});
    EXPECT_EQ(open_token_file(h5(), false)->size(), 3);
    stored_as(filtered, 0, {});
    EXPECT_EQ(open_token_file(h5(), false)->size(), 3);
    std::vector<std::uint8_t> bytes(32, 0);
    for (std::size_t i = 0; i < elements; ++i) bytes[8 * i] = static_cast<std::uint8_t>(i);
    stored_as(filtered, all, bytes);
    EXPECT_EQ(open_token_file(h5(), false)->size(), 3);

    bytes.resize(19);
    const std::string problem = "data.h5:offsets: its chunk at [0] does not hold its 32 bytes";
    stored_as(filtered, all, bytes);
    EXPECT_TRUE(has(hdf5_refusal(), problem));
    stored_as(filtered, all_but_deflate, bytes);
    EXPECT_TRUE(has(hdf5_refusal(), problem));
    // zlib's stream of 16 zeros.
    stored_as(filtered, all_but_deflate,
              {0x78, 0x9c, 0x63, 0x60, 0x40, 0x05, 0x00, 0x00, 0x10, 0x00, 0x01});
    EXPECT_TRUE(has(hdf5_refusal(), problem));
}

TEST_F(TokenFileTest, Hdf5RefusesFiltersItDoesNotKnow) {
    {
        const Hdf5Handle file = hdf5_without("labels");
        const Hdf5Handle layout(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
        const hsize_t elements = 2;
        H5Pset_chunk(layout.get(), 1, &elements);
        H5Pset_scaleoffset(layout.get(), H5Z_SO_INT, 0);
        put_list(file.get(), "labels", H5T_STD_I32LE, H5T_NATIVE_INT32, 3, Ids{1, 2, 3}.data(),
                 layout.get());
    }
    EXPECT_TRUE(has(hdf5_refusal(), "data.h5:labels: needs filter 6: can be read with gzip"));
}

TEST_F(TokenFileTest, Hdf5RefusesOtherData) {
    put_hdf5({1, 2, 3}, {1, 2, 3}, {0, 3});
    {
        const Hdf5Handle file(H5Fopen(h5().c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
        H5Lmove(file.get(), "labels", file.get(), "label", H5P_DEFAULT, H5P_DEFAULT);
    }
    EXPECT_TRUE(has(hdf5_refusal(), "data.h5:label: is not known in a token file"));
    {
        const Hdf5Handle file(H5Fopen(h5().c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
        H5Lmove(file.get(), "label", file.get(), "position_ids", H5P_DEFAULT, H5P_DEFAULT);
    }
    EXPECT_TRUE(has(hdf5_refusal(), "data.h5:position_ids: is not known in a token file"));
    EXPECT_TRUE(has(hdf5_refusal(), "write each document as a sample of its own"));
}

TEST_F(TokenFileTest, Hdf5RefusesBadTypesAndFiles) {
    {
        const Hdf5Handle file = create_hdf5_file(h5());
        const std::vector<std::int64_t> list{1, 2};
        put_list(file.get(), "tokens", H5T_STD_I64LE, H5T_NATIVE_INT64, 2, list.data());
        put_list(file.get(), "labels", H5T_STD_U32LE, H5T_NATIVE_INT64, 2, list.data());
    }
    const std::string text = hdf5_refusal();
    EXPECT_TRUE(has(text, "data.h5:tokens: must hold signed integers of 32 bits"));
    EXPECT_TRUE(has(text, "data.h5:labels: must hold signed integers of 32 bits"));
    EXPECT_TRUE(has(text, "data.h5:offsets: dataset is missing"));
    {
        const Hdf5Handle file = create_hdf5_file(h5());
        const Hdf5Handle group(
            H5Gcreate2(file.get(), "tokens", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose);
    }
    EXPECT_TRUE(has(hdf5_refusal(), "data.h5:tokens: is not a readable dataset"));
    put(h5(), "text");
    EXPECT_TRUE(has(hdf5_refusal(), "data.h5: is not an HDF5 file"));
    put_hdf5(Ids(10000, 1), Ids(10000, 1), {0, 10000});
    put(h5(), get(h5()).substr(0, 20000));
    EXPECT_TRUE(has(hdf5_refusal(), "data.h5: cannot be opened as HDF5: truncated file"));
}

TEST_F(TokenFileTest, Hdf5ScansInBlocks) {
    const std::int64_t count = 700000;
    Ids tokens(static_cast<std::size_t>(5 * count));
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i % 999);
    put_hdf5(tokens, tokens, {0, count, 2 * count, 2 * count + 1, 5 * count});
    std::size_t at = 0;
    bool same = true;
    open_token_file(h5(), false, [&](const std::string&, const TokenSample& sample) {
        for (const std::int32_t id : sample.input_ids) same = same && id == tokens[at++];
    });
    EXPECT_TRUE(same);
    EXPECT_EQ(at, tokens.size());
}

TEST_F(TokenFileTest, PairsAreTwoSamplesEach) {
    const auto file = open_lines(
        R"({"chosen_input_ids":[1,2],"chosen_labels":[-100,2],"rejected_input_ids":[1,3,4],)"
        R"("rejected_labels":[-100,3,4]})"
        "\n"
        R"({"rejected_input_ids":[9],"rejected_labels":[9],"chosen_input_ids":[8,7],)"
        R"("chosen_labels":[8,7]})"
        "\n");
    EXPECT_EQ(file->group_samples(), 2);
    ASSERT_EQ(file->size(), 4);
    EXPECT_EQ(file->read(1).input_ids, (Ids{1, 3, 4}));
    EXPECT_EQ(file->read(1).labels, (Ids{-100, 3, 4}));
    EXPECT_EQ(file->read(2).input_ids, (Ids{8, 7}));
    EXPECT_EQ(file->length(3), 1);
    EXPECT_TRUE(file->where(3).ends_with("data.jsonl:2"));
    EXPECT_EQ(open_lines("{\"input_ids\":[1]}")->group_samples(), 1);
}

TEST_F(TokenFileTest, PairsOfText) {
    const auto file = open_lines(R"({"prompt":"a","chosen":"b","rejected":"cd"})", true);
    ASSERT_EQ(file->size(), 2);
    EXPECT_EQ(file->read(0).input_ids, (Ids{byte_bos, 'a', 'b', byte_eos}));
    EXPECT_EQ(file->read(1).labels, (Ids{no_target, no_target, 'c', 'd', byte_eos}));
}

TEST_F(TokenFileTest, SamplesWithALabel) {
    const std::string good = R"({"input_ids":[1,2],"labels":[-100,2],"label":true})";
    const std::string bad = R"({"label":false,"input_ids":[3],"labels":[3]})";
    const auto file = open_lines(good + "\n" + bad);
    EXPECT_TRUE(file->is_labelled());
    EXPECT_EQ(file->group_samples(), 1);
    EXPECT_EQ(file->read(0).label, true);
    EXPECT_EQ(file->read(1).label, false);
    EXPECT_TRUE(has(refusal(R"({"input_ids":[1],"labels":[1],"label":3})"),
                    "'label' is 3, must be true or false"));
    const auto text = open_lines(R"({"prompt":"a","completion":"b","label":false})", true);
    EXPECT_EQ(text->read(0).label, false);
    EXPECT_TRUE(has(refusal(good + "\n{\"input_ids\":[1],\"labels\":[1]}"),
                    "data.jsonl:2: has no label of true or false, the lines before have one"));
    EXPECT_TRUE(has(refusal("{\"input_ids\":[1],\"labels\":[1]}\n" + good),
                    "data.jsonl:2: has a label, the lines before have none"));
}

TEST_F(TokenFileTest, Rollouts) {
    const std::string good =
        R"({"input_ids":[1,2,3],"labels":[-100,2,3],"advantages":[0,-1.5,2],"logprobs":[0,-0.5,-2]})";
    const auto file = open_lines(good + "\n");
    EXPECT_TRUE(file->is_rollouts());
    EXPECT_EQ(file->read(0).advantages, (Floats{0.0F, -1.5F, 2.0F}));
    EXPECT_EQ(file->read(0).logprobs, (Floats{0.0F, -0.5F, -2.0F}));
    EXPECT_FALSE(open_lines("{\"input_ids\":[1]}")->is_rollouts());
    const auto bad = [&](const std::string& keys) {
        return refusal(good + "\n{\"input_ids\":[1,2]," + keys + "}\n");
    };
    EXPECT_TRUE(
        has(bad(R"("advantages":[1,1])"), "data.jsonl:2: has 'advantages' but no 'logprobs'"));
    EXPECT_TRUE(
        has(bad(R"("logprobs":[-1,-1])"), "data.jsonl:2: has 'logprobs' but no 'advantages'"));
    EXPECT_TRUE(
        has(bad(R"("advantages":[1],"logprobs":[-1,-1])"), ":2: 2 input_ids but 1 advantages"));
    EXPECT_TRUE(
        has(bad(R"("advantages":[1,1],"logprobs":[-1,-1,0])"), ":2: 2 input_ids but 3 logprobs"));
    EXPECT_TRUE(
        has(bad(R"("advantages":[1,1],"logprobs":[-1,0.5])"), "'logprobs'[1] is 0.5: positive"));
    EXPECT_TRUE(has(bad(R"("advantages":[1,1e39],"logprobs":[-1,0])"),
                    "'advantages'[1] is 1e+39: not finite"));
    EXPECT_TRUE(has(bad(R"("advantages":[null,1],"logprobs":[-1,0])"),
                    "'advantages'[0] is null: no number"));
    EXPECT_TRUE(has(bad(R"("advantages":3,"logprobs":[-1,0])"), "'advantages' is a number"));
    EXPECT_TRUE(has(bad(R"("advantages":[1,1],"logprobs":[-1,0],"weights":[1,1])"),
                    "has advantages and weights"));
    EXPECT_TRUE(has(bad(R"("labels":[1,2],"advantages":[1,1],"logprobs":[-1,0],"label":true)"),
                    "has advantages and a label"));
    EXPECT_TRUE(has(bad(R"("labels":[1,2])"), "has no advantages, the lines before have some"));
    const std::string rewarded =
        R"({"reward":0.5,"rewards":{"format":1},"stopped":true,"input_ids":[1],"advantages":[1],"logprobs":[-1]})";
    EXPECT_TRUE(open_lines(rewarded)->is_rollouts());
    EXPECT_TRUE(
        has(refusal(R"({"reward":0.5,"input_ids":[1]})"), "has 'reward' but no 'advantages'"));
    EXPECT_TRUE(
        has(refusal("{\"input_ids\":[1]}\n" + good), "has advantages, the lines before have none"));
    EXPECT_TRUE(
        has(refusal(R"({"text":"a","advantages":[1]})", true), "has 'advantages', but is text"));
    EXPECT_TRUE(
        has(bad(R"("advantages":[1,1],"sampling_logprobs":[-1,0])"), "did you mean 'logprobs'?"));
    const std::string both_lists = R"("advantages":[1,1],"logprobs":[-1,0],)";
    EXPECT_EQ(file->read(0).adapter_step, std::nullopt);
    EXPECT_EQ(open_lines("{\"input_ids\":[1,2]," + both_lists + R"("adapter_step":7})")
                  ->read(0)
                  .adapter_step,
              7);
    for (const char* value : {"-1", "1.5", "\"7\"", "3000000000", "null"}) {
        EXPECT_TRUE(has(bad(both_lists + R"("adapter_step":)" + value),
                        cat("data.jsonl:2: 'adapter_step' is ", value)));
    }
    EXPECT_TRUE(has(bad(R"("adapter_step":1)"), "has 'adapter_step' but no 'advantages'"));
    // All bad lines at once; what fp32 rounds is no fault.
    const std::string both =
        bad("\"advantages\":[1],\"logprobs\":[0,0]}\n"
            "{\"input_ids\":[1],\"advantages\":[1],\"logprobs\":[9]");
    EXPECT_TRUE(has(both, "data.jsonl:2: ") && has(both, "data.jsonl:3: "));
    open_lines(R"({"input_ids":[1],"advantages":[1],"logprobs":[1e-7]})");
}

TEST_F(TokenFileTest, Hdf5Rollouts) {
    const auto put_rollouts = [&](const std::vector<double>& advantages,
                                  const std::vector<double>& logprobs) {
        put_hdf5({1, 2, 3}, {-100, 2, 3}, {0, 2, 3});
        const Hdf5Handle file(H5Fopen(h5().c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
        put_list(file.get(), "advantages", H5T_IEEE_F32LE, H5T_NATIVE_DOUBLE, advantages.size(),
                 advantages.data());
        if (logprobs.empty()) return;
        put_list(file.get(), "logprobs", H5T_IEEE_F32LE, H5T_NATIVE_DOUBLE, logprobs.size(),
                 logprobs.data());
    };
    put_rollouts({3.0, -0.5, 0.25}, {0.0, -1.0, -2.0});
    auto file = open_token_file(h5(), false);
    EXPECT_TRUE(file->is_rollouts());
    EXPECT_EQ(file->read(0).advantages, (Floats{3.0F, -0.5F}));
    EXPECT_EQ(file->read(1).logprobs, Floats{-2.0F});
    EXPECT_EQ(file->read(0).adapter_step, std::nullopt);
    file.reset();
    const auto put_steps = [&](const std::vector<std::int32_t>& steps) {
        put_rollouts({3.0, -0.5, 0.25}, {0.0, -1.0, -2.0});
        const Hdf5Handle to(H5Fopen(h5().c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
        put_list(to.get(), "adapter_step", H5T_STD_I32LE, H5T_NATIVE_INT32, steps.size(),
                 steps.data());
    };
    put_steps({4, 5});
    EXPECT_EQ(open_token_file(h5(), false)->read(1).adapter_step, 5);
    put_steps({4, -5});
    EXPECT_TRUE(has(hdf5_refusal(), "data.h5:sample 1: adapter_step is -5"));
    put_steps({4});
    EXPECT_TRUE(has(hdf5_refusal(), "data.h5:adapter_step: 2 samples but 1 steps"));
    put_rollouts({3.0, -0.5, 0.25}, {});
    EXPECT_TRUE(has(hdf5_refusal(), "data.h5:logprobs: dataset is missing"));
    put_rollouts({3.0, -0.5}, {0.0, -1.0, -2.0});
    EXPECT_TRUE(has(hdf5_refusal(), "data.h5:advantages: 3 tokens but 2 advantages"));
    put_rollouts({3.0, std::nan(""), 0.25}, {0.0, -1.0, 2.0});
    EXPECT_TRUE(has(hdf5_refusal(), "data.h5:sample 0: advantages 1 is nan: not finite"));
    EXPECT_TRUE(has(hdf5_refusal(), "data.h5:sample 1: logprobs 0 is 2: positive"));
}

TEST_F(TokenFileTest, RefusesBadPairs) {
    const std::string pair =
        R"({"chosen_input_ids":[1],"chosen_labels":[1],"rejected_input_ids":[2],)"
        R"("rejected_labels":[2]})";
    EXPECT_TRUE(has(refusal(pair + "\n{\"input_ids\":[1]}\n"),
                    "data.jsonl:2: is a single sample, the lines before are pairs"));
    EXPECT_TRUE(has(refusal("{\"input_ids\":[1]}\n" + pair), "data.jsonl:2: is a pair"));
    EXPECT_TRUE(has(refusal(R"({"chosen_input_ids":[1],"chosen_labels":[1]})"),
                    "a pair without 'rejected_input_ids'"));
    EXPECT_TRUE(
        has(refusal(R"({"prompt":"a","chosen":"b","rejected":"c"})"), "or set tokenizer: bytes"));
    EXPECT_TRUE(has(refusal(R"({"chosen":"b","rejected":"c"})", true), "a pair without 'prompt'"));
    EXPECT_TRUE(
        has(refusal(R"({"prompt":"a","chosen":1,"rejected":"c"})", true), "'chosen' is a number"));
    EXPECT_TRUE(has(refusal(R"({"chosen_input_ids":[1,2],"chosen_labels":[1],)"
                            R"("rejected_input_ids":[2],"rejected_labels":[2]})"),
                    "2 chosen_input_ids but 1 chosen_labels"));
}

TEST_F(TokenFileTest, Hdf5RefusesLinksIntoOtherFiles) {
    put_hdf5({1, 2, 3}, {1, 2, 3}, {0, 2, 3});
    {
        const Hdf5Handle file(H5Fopen(h5().c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
        H5Ldelete(file.get(), "tokens", H5P_DEFAULT);
        H5Lcreate_external("other.h5", "/tokens", file.get(), "tokens", H5P_DEFAULT, H5P_DEFAULT);
    }
    EXPECT_TRUE(has(hdf5_refusal(), "data.h5:tokens: is an external link to /tokens of other.h5"));
}

}  // namespace
}  // namespace loratrain::test
