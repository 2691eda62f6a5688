#include "config/command_line.h"

#include <gtest/gtest.h>

#include <sstream>

#include "base/text.h"
#include "unit/config/job_files.h"

namespace loratrain {
namespace {

CommandLine parse(std::vector<const char*> words) {
    words.insert(words.begin(), "loratrain");
    return parse_command_line(static_cast<int>(words.size()), words.data());
}

std::vector<Problem> problems_of(const std::vector<const char*>& words) {
    try {
        parse(words);
    } catch (const InputError& error) {
        return error.problems();
    }
    ADD_FAILURE() << "was accepted";
    return {};
}

TEST(CommandLineTrain, DefaultsAreThoseOfTheStruct) {
    const CommandLine line = parse({"tune.yaml"});
    EXPECT_EQ(line.command, Command::train);
    EXPECT_EQ(line.job_path, "tune.yaml");
    EXPECT_TRUE(line.overrides.empty());
    EXPECT_FALSE(line.dry_run);
    EXPECT_TRUE(line.ranks.empty());
    EXPECT_EQ(line.device + line.output, "");
    EXPECT_EQ(line.restart, Restart::automatic);
    EXPECT_EQ(line.restart_path, "");
    EXPECT_FALSE(line.stop_after);
}

TEST(CommandLineStop, NeedsRunAndAdapter) {
    const CommandLine line = parse({"stop", "runs/a", "math"});
    EXPECT_EQ(line.command, Command::stop);
    EXPECT_EQ(line.run_dir, "runs/a");
    EXPECT_EQ(line.adapter, "math");
    for (const auto& words :
         {std::vector<const char*>{"stop", "runs/a"}, {"stop", "runs/a", "math", "code"}}) {
        expect_only(problems_of(words), "stop",
                    "needs 2 arguments, got " + std::to_string(words.size() - 1),
                    "write loratrain stop RUN_DIR ADAPTER");
    }
    expect_only(problems_of({"stp"}), "command line", "unknown command 'stp'",
                "did you mean stop?");
}

TEST(CommandLineTrain, ReadsEveryOptionInAnyPlace) {
    const CommandLine line =
        parse({"--set", "run.dir=out", "--dry-run", "tune.yaml", "--ranks=16", "--set",
               "defaults.learning_rate=1e-4", "--stop-after", "3", "--set=a.b=c=d", "--set", "x="});
    EXPECT_EQ(line.job_path, "tune.yaml");
    EXPECT_TRUE(line.dry_run);
    EXPECT_EQ(line.ranks, std::vector<int>{16});
    EXPECT_EQ(line.stop_after, 3);
    ASSERT_EQ(line.overrides.size(), 4U);
    EXPECT_EQ(line.overrides[0].key, "run.dir");
    EXPECT_EQ(line.overrides[0].value, "out");
    EXPECT_EQ(line.overrides[1].key, "defaults.learning_rate");
    EXPECT_EQ(line.overrides[1].value, "1e-4");
    EXPECT_EQ(line.overrides[2].key, "a.b");
    EXPECT_EQ(line.overrides[2].value, "c=d");
    EXPECT_EQ(line.overrides[3].key, "x");
    EXPECT_EQ(line.overrides[3].value, "");
}

TEST(CommandLineTrain, ADryRunTakesADeviceAndAPlaceForItsFiles) {
    const CommandLine line = parse({"t.yaml", "--dry-run", "--device", "h200", "--out=pictures"});
    EXPECT_EQ(line.device, "h200");
    EXPECT_EQ(line.output, "pictures");
    expect_only(problems_of({"t.yaml", "--device", "h200"}), "--device", "only goes with --dry-run",
                "the GPUs and hosts that there are");
    expect_only(problems_of({"t.yaml", "--out", "x"}), "--out", "only goes with --dry-run",
                "run.dir");
    EXPECT_FALSE(line.compare);
    EXPECT_TRUE(parse({"t.yaml", "--dry-run", "--compare"}).compare);
    EXPECT_TRUE(parse({"t.yaml", "--dry-run", "--verbose"}).verbose);
    expect_only(problems_of({"t.yaml", "--verbose"}), "--verbose", "only goes with --dry-run",
                "training logs its plan");
    expect_only(problems_of({"t.yaml", "--compare"}), "--compare", "only goes with --dry-run",
                "schedule and parallel");
    expect_only(problems_of({"t.yaml", "--dry-run", "--device", ""}), "--device",
                "'' names no device", "--help");
}

TEST(CommandLineTrain, MaxHoursOverridesTheJob) {
    const CommandLine line = parse({"t.yaml", "--set", "run.max_hours=3", "--max-hours", "7.5"});
    ASSERT_EQ(line.overrides.size(), 2U);
    EXPECT_EQ(line.overrides[1].key, "run.max_hours");
    EXPECT_EQ(line.overrides[1].value, "7.5");
    expect_only(problems_of({"t.yaml", "--max-hours", "0"}), "--max-hours", "0 is out of range",
                "above 0");
    EXPECT_EQ(problems_of({"t.yaml", "--max-hours", "nan"}).size(), 1U);
    EXPECT_EQ(problems_of({"t.yaml", "--max-hours", "7:30"}).size(), 1U);
}

TEST(CommandLineTrain, Restart) {
    EXPECT_EQ(parse({"t.yaml", "--restart", "auto"}).restart, Restart::automatic);
    EXPECT_EQ(parse({"t.yaml", "--restart", "never"}).restart, Restart::never);
    const CommandLine line = parse({"t.yaml", "--restart", "out/ckpt/40"});
    EXPECT_EQ(line.restart, Restart::from_path);
    EXPECT_EQ(line.restart_path, "out/ckpt/40");
}

TEST(CommandLineTrain, NegativeValuesReachAnOverride) {
    EXPECT_EQ(parse({"t.yaml", "--set", "adapters.a.priority=-1"}).overrides[0].value, "-1");
}

TEST(CommandLineTrain, BadUsage) {
    expect_only(problems_of({}), "command line", "no job file given", "loratrain JOB.yaml");
    expect_only(problems_of({""}), "command line", "'' names no job file", "loratrain JOB.yaml");
    expect_only(problems_of({"--dry-run"}), "command line", "no job file given", "--help");
    expect_only(problems_of({"a.yaml", "b.yaml"}), "command line", "unexpected argument 'b.yaml'",
                "one job file");
    expect_only(problems_of({"a.yaml", "run.dir=x"}), "command line",
                "unexpected argument 'run.dir=x'", "write --set before");
    expect_only(problems_of({"a.yaml", "--set", "run.dir"}), "--set", "'run.dir' is not KEY=VALUE",
                "--set defaults.learning_rate=1e-4");
    expect_only(problems_of({"a.yaml", "--set", "=x"}), "--set", "'=x' is not KEY=VALUE", "--set");
    expect_only(problems_of({"a.yaml", "--ranks", "4"}), "--ranks", "only goes with --dry-run",
                "mpirun -np 4 loratrain a.yaml");
    expect_only(problems_of({"a.yaml", "--ranks-per-node", "4"}), "--ranks-per-node",
                "only goes with --dry-run", "training uses the GPUs and hosts that there are");
    EXPECT_EQ(parse({"a.yaml", "--dry-run", "--ranks", "8", "--ranks-per-node=4"}).ranks_per_node,
              4);
    for (const char* ranks : {"0", "", "-1", "2,", ",2", "1,,2", "4,x", "1.5", "99999999999"}) {
        expect_only(problems_of({"a.yaml", "--dry-run", "--ranks", ranks}), "--ranks",
                    cat("'", ranks, "' is not a number of ranks"), "at least 1");
    }
    EXPECT_EQ(parse({"a.yaml", "--dry-run", "--ranks", "1,2,8"}).ranks,
              (std::vector<int>{1, 2, 8}));
    expect_only(problems_of({"a.yaml", "--dry-run", "--ranks", "1,2", "--compare"}), "--compare",
                "goes with one number of --ranks", "leave it out");
    expect_only(problems_of({"a.yaml", "--dry-run", "--ranks", "1,2", "--out=x"}), "--out",
                "goes with one number of --ranks", "leave it out");
    expect_only(problems_of({"a.yaml", "--stop-after", "-2"}), "--stop-after", "-2 is out of range",
                "at least 1");
    expect_only(problems_of({"a.yaml", "--restart", ""}), "--restart", "'' names no checkpoint",
                "auto, never or a path");
}

TEST(CommandLineTrain, ProblemsAreCollected) {
    EXPECT_EQ(problems_of({"a.yaml", "b.yaml", "--set", "x", "--ranks", "0"}).size(), 4U);
}

TEST(CommandLineTrain, MalformedValues) {
    for (const char* value : {"x", "1.5", "99999999999"}) {
        const std::vector<Problem> found = problems_of({"a.yaml", "--stop-after", value});
        ASSERT_EQ(found.size(), 1U);
        EXPECT_EQ(found[0].where, "--stop-after");
        EXPECT_NE(found[0].what.find(value), std::string::npos);
    }
    const std::vector<Problem> missing = problems_of({"a.yaml", "--stop-after"});
    ASSERT_EQ(missing.size(), 1U);
    EXPECT_EQ(missing[0].where, "--stop-after");
    EXPECT_NE(missing[0].what.find("missing"), std::string::npos);
}

TEST(CommandLineUnknown, OptionsNameTheNearest) {
    expect_only(problems_of({"a.yaml", "--dryrun"}), "--dryrun", "unknown option",
                "did you mean --dry-run?");
    expect_only(problems_of({"a.yaml", "--dry"}), "--dry", "unknown option", "--help");
    expect_only(problems_of({"a.yaml", "--hepl"}), "--hepl", "unknown option",
                "did you mean --help?");
    expect_only(problems_of({"a.yaml", "--optimizer", "sgd"}), "--optimizer", "unknown option",
                "see loratrain --help");
    expect_only(problems_of({"a.yaml", "-x"}), "-x", "unknown option", "see loratrain --help");
}

TEST(CommandLineUnknown, OptionsOfOtherCommandsAreNamed) {
    expect_only(problems_of({"a.yaml", "--force"}), "--force", "unknown option",
                "it is an option of: loratrain import-hf");
    expect_only(problems_of({"bench", "--dry-run"}), "--dry-run", "unknown option",
                "it is an option of: loratrain JOB.yaml");
    expect_only(problems_of({"import-hf", "a", "b", "--hidden", "3"}), "--hidden", "unknown option",
                "it is an option of: loratrain bench");
}

TEST(CommandLineUnknown, CommandsNameTheNearest) {
    expect_only(problems_of({"bnech"}), "command line", "unknown command 'bnech'",
                "did you mean bench?");
    expect_only(problems_of({"import_hf", "a", "b"}), "command line", "unknown command 'import_hf'",
                "did you mean import-hf?");
    expect_only(problems_of({"help"}), "command line", "unknown command 'help'",
                "did you mean --help?");
    EXPECT_EQ(parse({"./bnech"}).job_path, "./bnech");
    EXPECT_EQ(parse({"bench.yaml"}).job_path, "bench.yaml");
}

TEST(CommandLineUnknown, TrainingNeedsNone) {
    for (const char* word : {"train", "trian", "tran"}) {
        expect_only(problems_of({word, "tune.yaml"}), "command line",
                    cat("unknown command '", word, "'"), "to train, write loratrain JOB.yaml");
    }
}

TEST(CommandLineUnknown, AWordThatIsNoFileIsNoJob) {
    const test::TempDir dir;
    const std::filesystem::path before = std::filesystem::current_path();
    std::filesystem::current_path(dir.path());
    expect_only(problems_of({"myjob"}), "command line",
                "unknown command 'myjob', and no file has this name", "or one of: status, report,");
    test::put("myjob", "run: {}");
    EXPECT_EQ(parse({"myjob"}).job_path, "myjob");
    std::filesystem::current_path(before);
}

TEST(CommandLineImport, ReadsArgumentsAndOptions) {
    const CommandLine plain = parse({"import-hf", "models/x", "base.h5"});
    EXPECT_EQ(plain.command, Command::import_hf);
    EXPECT_EQ(plain.hf_dir, "models/x");
    EXPECT_EQ(plain.output, "base.h5");
    EXPECT_FALSE(plain.force);
    EXPECT_FALSE(plain.store_bf16);
    const CommandLine full = parse({"import-hf", "--force", "x", "--dtype", "bf16", "y.h5"});
    EXPECT_EQ(full.hf_dir, "x");
    EXPECT_EQ(full.output, "y.h5");
    EXPECT_TRUE(full.force);
    EXPECT_TRUE(full.store_bf16);
}

TEST(CommandLineCheckExport, ReadsAndRefuses) {
    const CommandLine line = parse({"check-export", "runs/x/adapters/a", "--base", "base.h5"});
    EXPECT_EQ(line.command, Command::check_export);
    EXPECT_EQ(line.run_dir, "runs/x/adapters/a");
    EXPECT_EQ(line.base, "base.h5");
    expect_only(problems_of({"check-export", "x"}), "--base", "is missing",
                "loratrain check-export ADAPTER_DIR --base BASE.h5");
    expect_only(problems_of({"check-export", "--base", "b.h5"}), "check-export",
                "needs 1 argument, got 0", "ADAPTER_DIR");
}

TEST(CommandLineMerge, ReadsAndRefuses) {
    const CommandLine line = parse({"merge", "runs/x/adapters/a", "merged", "--base", "base.h5"});
    EXPECT_EQ(line.command, Command::merge);
    EXPECT_EQ(line.run_dir, "runs/x/adapters/a");
    EXPECT_EQ(line.output, "merged");
    EXPECT_EQ(line.base, "base.h5");
    expect_only(problems_of({"merge", "x", "y"}), "--base", "is missing",
                "loratrain merge ADAPTER_DIR OUT_DIR --base BASE.h5");
    expect_only(problems_of({"merge", "x", "--base", "b.h5"}), "merge", "needs 2 arguments, got 1",
                "OUT_DIR");
    EXPECT_EQ(line.quantize, "");
    for (const char* form : {"nf4", "int8", "fp8", "mxfp4"}) {
        EXPECT_EQ(parse({"merge", "a", "b", "--base", "b.h5", "--quantize", form}).quantize, form);
    }
    expect_only(problems_of({"merge", "a", "b", "--base", "b.h5", "--quantize", "int4"}),
                "--quantize", "'int4' is not known", "give one of: nf4, int8, fp8, mxfp4");
}

TEST(CommandLineImport, BadUsage) {
    expect_only(problems_of({"import-hf", "x"}), "import-hf", "needs 2 arguments, got 1",
                "loratrain import-hf HF_DIR OUT.h5");
    expect_only(problems_of({"import-hf", "x", "y", "z"}), "import-hf", "needs 2 arguments, got 3",
                "HF_DIR OUT.h5");
    expect_only(problems_of({"import-hf", "x", "y", "--dtype", "fp16"}), "--dtype",
                "'fp16' is not known here", "give bf16");
}

TEST(CommandLineBench, ReadsEveryOption) {
    const CommandLine plain = parse({"bench"});
    EXPECT_EQ(plain.command, Command::bench);
    EXPECT_EQ(plain.bench.hidden, CommandLine::Bench{}.hidden);
    EXPECT_FALSE(plain.bench.json);
    const CommandLine::Bench bench =
        parse({"bench", "--steps",         "1",  "--hidden", "64", "--intermediate",
               "3",     "--layers",        "4",  "--heads",  "2",  "--vocab",
               "6",     "--adapters",      "7",  "--rank",   "8",  "--samples",
               "9",     "--sample-tokens", "10", "--json"})
            .bench;
    EXPECT_EQ(bench.steps, 1);
    EXPECT_EQ(bench.hidden, 64);
    EXPECT_EQ(bench.intermediate, 3);
    EXPECT_EQ(bench.layers, 4);
    EXPECT_EQ(bench.heads, 2);
    EXPECT_EQ(bench.vocab, 6);
    EXPECT_EQ(bench.adapters, 7);
    EXPECT_EQ(bench.rank, 8);
    EXPECT_EQ(bench.samples, 9);
    EXPECT_EQ(bench.sample_tokens, 10);
    EXPECT_TRUE(bench.json);
}

TEST(CommandLineBench, PresetsHaveAllTheirLayersOrSoMany) {
    EXPECT_EQ(parse({"bench", "--model", "qwen3-235b-a22b"}).bench.layers, 94);
    EXPECT_EQ(parse({"bench", "--model", "qwen3-235b-a22b", "--layers", "8"}).bench.layers, 8);
    EXPECT_EQ(parse({"bench"}).bench.layers, 12);
}

TEST(CommandLineBench, RandomLengthsGoUpToALongerSample) {
    EXPECT_EQ(parse({"bench", "--lengths", "cnn"}).bench.sample_tokens, 4096);
    EXPECT_EQ(parse({"bench", "--lengths", "mix", "--sample-tokens", "64"}).bench.sample_tokens,
              64);
    EXPECT_EQ(parse({"bench", "--policy", "1f1b"}).bench.policy, "1f1b");
    EXPECT_TRUE(parse({"bench", "--mixed-ranks"}).bench.mixed_ranks);
}

TEST(CommandLineBench, BadUsage) {
    expect_only(problems_of({"bench", "--policy", "gpipe"}), "--policy", "'gpipe' is not known",
                "sequential, 1f1b, mlora, balanced");
    for (const char* residency : {"auto", "all", "stream", "0", "60"}) {
        EXPECT_EQ(parse({"bench", "--residency", residency}).bench.residency, residency);
    }
    for (const char* residency : {"some", "-1", "3x"}) {
        expect_only(problems_of({"bench", cat("--residency=", residency).c_str()}), "--residency",
                    cat("'", residency, "' is not known"), "give auto, all, stream");
    }
    for (const char* offload : {"none", "auto", "0", "8"}) {
        EXPECT_EQ(parse({"bench", "--offload", offload}).bench.offload, offload);
    }
    for (const char* offload : {"some", "-1", "3x"}) {
        expect_only(problems_of({"bench", cat("--offload=", offload).c_str()}), "--offload",
                    cat("'", offload, "' is not known"), "give none, auto");
    }
    expect_only(problems_of({"bench", "--offload", "8", "--recompute", "none"}), "--offload",
                "'8' does not go with --recompute none", "auto or layer");
    expect_only(problems_of({"bench", "--lengths", "x"}), "--lengths", "'x' is not known", "cnn");
    expect_only(problems_of({"bench", "--rank", "0"}), "--rank", "0 is out of range", "at least 1");
    expect_only(problems_of({"bench", "--hidden", "100", "--heads", "3"}), "--heads",
                "3 does not fit --hidden 100", "even whole number");
    expect_only(problems_of({"bench", "--hidden", "6", "--heads", "2"}), "--heads",
                "2 does not fit --hidden 6", "even whole number");
    expect_only(problems_of({"bench", "--heads", "2147483647"}), "--heads",
                "2147483647 is out of range", "at most 1000000");
    expect_only(problems_of({"bench", "--heads", "1000000"}), "--heads",
                "1000000 does not fit --hidden 768", "even whole number");
    expect_only(problems_of({"bench", "--dropout", "nan"}), "--dropout", "nan is out of range",
                "at least 0");
    expect_only(problems_of({"bench", "x"}), "bench", "unexpected argument 'x'", "--help");
}

TEST(CommandLineOther, HelpAndVersionWorkEverywhere) {
    EXPECT_EQ(parse({"--help"}).command, Command::help);
    EXPECT_EQ(parse({"-h"}).command, Command::help);
    EXPECT_EQ(parse({"bench", "--nonsense", "--help"}).command, Command::help);
    EXPECT_EQ(parse({"--version"}).command, Command::version);
}

TEST(CommandLineOther, EmptyArgumentVectorIsNoCrash) {
    EXPECT_THROW(parse_command_line(0, nullptr), InputError);
}

TEST(HelpText, FitsATerminal) {
    std::istringstream lines(help_text());
    std::string line;
    int count = 0;
    while (std::getline(lines, line)) {
        ++count;
        EXPECT_LE(line.size(), 80U) << line;
        EXPECT_EQ(line.find('\t'), std::string::npos);
        EXPECT_FALSE(line.ends_with(' ')) << line;
    }
    EXPECT_LE(count, 60);
    EXPECT_GE(count, 20);
    EXPECT_EQ(help_text().back(), '\n');
}

TEST(HelpText, NamesEveryOptionAndItsDefault) {
    const std::string text = help_text();
    const CommandLine::Bench bench;
    for (const std::string& word : {std::string("loratrain JOB.yaml"),
                                    std::string("import-hf HF_DIR OUT.h5"),
                                    std::string("--set KEY=VALUE"),
                                    std::string("--dry-run"),
                                    std::string("--ranks N"),
                                    std::string("--ranks-per-node N"),
                                    std::string("--device h200|h100|a100|..."),
                                    std::string("--out DIR"),
                                    std::string("--compare"),
                                    std::string("--verbose"),
                                    std::string("--restart auto"),
                                    std::string("--restart never"),
                                    std::string("--restart PATH"),
                                    std::string("--stop-after N"),
                                    std::string("--max-hours H"),
                                    std::string("--force"),
                                    std::string("--dtype bf16"),
                                    std::string("--json"),
                                    std::string("-h, --help"),
                                    std::string("--version"),
                                    cat("--steps ", bench.steps),
                                    cat("--hidden ", bench.hidden),
                                    cat("--intermediate ", bench.intermediate),
                                    cat("--layers ", bench.layers),
                                    cat("--heads ", bench.heads),
                                    cat("--vocab ", bench.vocab),
                                    cat("--adapters ", bench.adapters),
                                    cat("--rank ", bench.rank),
                                    cat("--samples ", bench.samples),
                                    cat("--sample-tokens ", bench.sample_tokens)}) {
        EXPECT_NE(text.find(word), std::string::npos) << word;
    }
    for (const ExitCode code : {ExitCode::done, ExitCode::error, ExitCode::bad_input,
                                ExitCode::some_adapters_failed, ExitCode::stopped_resume_me}) {
        EXPECT_NE(text.find(cat(" ", static_cast<int>(code), " ")), std::string::npos);
    }
}

TEST(HelpText, HasEveryCommandAndOptionOfTheParser) {
    const std::string text = help_text();
    for (const CommandWords& command : command_words()) {
        EXPECT_NE(text.find("loratrain " + command.word), std::string::npos) << command.word;
        for (const OptionWord& option : command.options) {
            EXPECT_NE(text.find(option.name), std::string::npos) << option.name;
        }
    }
}

TEST(CommandLineBench, TargetsExpertsOfAModelThatHasSome) {
    EXPECT_TRUE(
        parse({"bench", "--model", "qwen3-30b-a3b", "--target-experts"}).bench.target_experts);
    expect_only(problems_of({"bench", "--model", "llama-3.1-8b", "--target-experts"}),
                "--target-experts", "the model has no experts", "give --model qwen3-30b-a3b");
}

TEST(HelpText, SaysWhenADryRunWritesFiles) {
    EXPECT_NE(help_text().find("(default <run.dir>/dry_run)\n"), std::string::npos);
}

TEST(CommandLineRun, StatusAndReport) {
    const CommandLine status = parse({"status", "runs/a"});
    EXPECT_EQ(status.command, Command::status);
    EXPECT_EQ(status.run_dir, "runs/a");
    EXPECT_FALSE(status.follow);
    EXPECT_TRUE(parse({"status", "--follow", "runs/a"}).follow);
    EXPECT_EQ(problems_of({"report", "a", "--follow"}).at(0).hint,
              "it is an option of: loratrain status");
    const CommandLine report = parse({"report", "--out", "page.html", "runs/a"});
    EXPECT_EQ(report.command, Command::report);
    EXPECT_EQ(report.run_dir, "runs/a");
    EXPECT_EQ(report.output, "page.html");
    EXPECT_EQ(parse({"report", "runs/a"}).output, "");
    const CommandLine several = parse({"report", "runs/a", "runs/b", "runs/c"});
    EXPECT_EQ(several.run_dir, "runs/a");
    EXPECT_EQ(several.other_runs, (std::vector<std::string>{"runs/b", "runs/c"}));
}

TEST(CommandLineKeys, TakesAPartOfANameAndAForm) {
    EXPECT_EQ(parse({"--keys"}).command, Command::keys);
    EXPECT_EQ(parse({"--keys"}).keys, "");
    EXPECT_EQ(parse({"--keys", "lr"}).keys, "lr");
    EXPECT_FALSE(parse({"--keys", "lr"}).markdown);
    EXPECT_TRUE(parse({"--keys", "--markdown"}).markdown);
    expect_only(problems_of({"--keys", "lr", "eps"}), "--keys", "unexpected argument 'eps'",
                "give one part of a name");
}

TEST(CommandLineSelftest, TakesNothing) {
    EXPECT_EQ(parse({"selftest"}).command, Command::selftest);
    expect_only(problems_of({"selftest", "all"}), "selftest", "unexpected argument 'all'",
                "write loratrain selftest");
}

TEST(CommandLineRun, Misuse) {
    for (const char* command : {"status", "report"}) {
        EXPECT_EQ(problems_of({command}).size(), 1U);
    }
    EXPECT_EQ(problems_of({"status", "a", "b"}).size(), 1U);
    EXPECT_EQ(problems_of({"status", "a", "--out", "b"}).at(0).hint,
              "it is an option of: loratrain report");
    EXPECT_NE(problems_of({"stauts", "a"}).at(0).hint.find("did you mean status?"),
              std::string::npos);
}

}  // namespace
}  // namespace loratrain
