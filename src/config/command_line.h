#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/job_yaml.h"

namespace loratrain {

enum class Command : std::uint8_t {
    train,
    import_hf,
    bench,
    status,
    report,
    stop,
    check_export,
    merge,
    selftest,
    help,
    keys,
    version
};
enum class Restart : std::uint8_t { automatic, never, from_path };

struct CommandLine {
    Command command = Command::train;
    std::vector<std::string> arguments;  ///< as given, for the records

    // train: loratrain JOB.yaml
    std::string job_path;
    std::vector<Override> overrides;       ///< --set key=value, repeatable; --max-hours
    bool dry_run = false;                  ///< --dry-run
    bool verbose = false;                  ///< --verbose, with --dry-run: also plan and memory
    bool compare = false;                  ///< --compare, with --dry-run: also other ways to train
    Restart restart = Restart::automatic;  ///< --restart auto|never|PATH
    std::string restart_path;
    /// --ranks N[,N...], with --dry-run: plans for N ranks instead of the ranks at hand;
    /// several numbers: prints what each of them would take.
    std::vector<int> ranks;
    std::optional<int> ranks_per_node;  ///< --ranks-per-node N, with --dry-run: on hosts of N
    std::string device;  ///< --device NAME, with --dry-run: plans for such devices; "" = those here
    /// --stop-after N: exit 75 at the end of the packing block that has round N.
    std::optional<int> stop_after;

    // keys: loratrain --keys [NAME] [--markdown]
    std::string keys;       ///< part of a name, or a glob; "" = all keys
    bool markdown = false;  ///< --markdown: a table in Markdown

    // import-hf: loratrain import-hf HF_DIR OUT.h5
    std::string hf_dir;
    /// OUT.h5. Also --out of report; "" = RUN_DIR/report.html, or ./comparison.html for several
    /// runs. Also --out of a dry run, a directory; "" = <run.dir>/dry_run with --device, no files
    /// without it.
    std::string output;
    bool force = false;           ///< --force: replace an existing OUT.h5
    bool store_bf16 = false;      ///< --dtype bf16: convert fp32 and fp16 weights to bf16
    std::string base_model_name;  ///< --base-model-name: of exported adapters; "" = the folder's

    /// --quantize nf4|int8|fp8, of the linears of the layers; also of merge, which knows mxfp4 too
    /// (config/merged_form.h); "" = none
    std::string quantize;

    // status, report, stop: loratrain status RUN_DIR [--follow],
    // loratrain report RUN_DIR... [--out FILE], loratrain stop RUN_DIR ADAPTER
    bool follow = false;  ///< status --follow: until the run ends
    std::string run_dir;
    std::vector<std::string> other_runs;  ///< report: runs that run_dir is compared with
    std::string adapter;

    // check-export: loratrain check-export DIR --base BASE.h5; DIR is run_dir
    // merge: loratrain merge DIR OUT_DIR --base BASE.h5; OUT_DIR is output
    std::string base;

    // bench: loratrain bench [--steps N] [--hidden H] [--layers L] [--adapters A] [--rank r]
    struct Bench {
        int steps = 5;
        int hidden = 768;
        int intermediate = 2048;
        int layers = 12;  ///< with --model by default the preset's
        int heads = 12;
        int vocab = 32000;
        int adapters = 4;
        int rank = 16;
        bool dora = false;                  ///< --dora: adapters are DoRA
        bool target_experts = false;        ///< --target-experts: LoRA in experts too
        bool vera = false;                  ///< --vera: adapters are VeRA
        std::string optim = "adamw_torch";  ///< --optim, as the adapters'
        bool mixed_ranks = false;           ///< --mixed-ranks: 8, 16, 32, 64, 128 in turn instead
        int samples = 8;                    ///< samples per adapter and step
        int sample_tokens = 256;            ///< the longest with --lengths, then 4096 by default
        std::string lengths = "fixed";      ///< --lengths fixed|xsum|cnn|wikisum|mix
        std::string policy = "balanced";    ///< --policy, as the job's schedule.policy
        std::string packing = "greedy";     ///< --packing, as the job's schedule.packing
        std::string model;   ///< --model: a preset (model_presets.h) instead of the other sizes
        double dropout = 0;  ///< --dropout: lora_dropout of every adapter
        int microbatch_tokens = 0;       ///< --microbatch-tokens; 0 = as the plan chooses
        std::string backend = "cpu";     ///< --backend cpu|cuda
        std::string precision = "auto";  ///< --precision auto|fp32|bf16
        std::string weights;             ///< --weights nf4|int8|fp8: linears quantised; "" = dense
        std::string recompute = "auto";  ///< --recompute auto|none|layer
        std::string residency = "auto";  ///< --residency auto|all|stream|N, as model.residency
        std::string offload = "none";    ///< --offload none|auto|N, as parallel.offload
        bool predict = false;            ///< --predict: simulate the window with measured costs
        bool quick = false;              ///< --quick: only the simulated window
        bool json = false;               ///< --json: one JSON line per case
    } bench;
};

/// The command line: commands, options, and the text of --help.

/// Parses the command line. Throws InputError on bad usage. Only command_options.h and files that
/// include it use Boost.Program_options.
CommandLine parse_command_line(int argc, const char* const* argv);

/// An option of the command line.
struct OptionWord {
    std::string name;  ///< "--set"
    bool takes_value;
};
/// A command, and the options that may follow it.
struct CommandWords {
    std::string word;                 ///< "" = a job file, or an option without a command (--help)
    std::vector<OptionWord> options;  ///< as the parser knows them
};
/// All commands with their options.
std::vector<CommandWords> command_words();

/// The text of `loratrain --help`, at most 80 columns wide.
std::string help_text();

}  // namespace loratrain
