#include "config/command_line.h"

namespace loratrain {

std::string help_text() {
    return R"(loratrain - fine-tune many LoRA adapters of one frozen base at once

Usage:
  [mpirun -np N] loratrain JOB.yaml [options]  train all adapters of the job
  loratrain import-hf HF_DIR OUT.h5 [options]  convert Hugging Face weights
  [mpirun -np N] loratrain bench [options]     measure speed, random weights
  loratrain status RUN_DIR [--follow]          show a run; --follow: to its end
  loratrain report RUN_DIR... [--out FILE]     write curves, tables: a web page
  loratrain stop RUN_DIR ADAPTER               end and export one adapter
  loratrain check-export DIR --base BASE.h5    say which programs can load it
  loratrain merge DIR OUT --base BASE.h5       write base and adapter as a model
  loratrain selftest                           check this installation, 1 minute

Options for training:
  --set KEY=VALUE   set any key (--keys); paths count from the job file
  --restart auto    continue from the newest checkpoint in run.dir (default)
  --restart never   start anew; old files move to <run.dir>/before-TIME
  --restart PATH    continue from this checkpoint
  --stop-after N    write a checkpoint, exit 75 soon after round N
  --max-hours H     write a checkpoint, exit 75 within H hours (run.max_hours)

Options for planning:
  --dry-run         say if the job fits, its time, what to change; no training
  --verbose         with --dry-run: also data, plan, memory and prediction
  --compare         with --dry-run: also other deployments and policies
  --ranks N[,N..]   with --dry-run: plan for N ranks; several N: a table
  --ranks-per-node N  with --dry-run: put N of the ranks on each host
  --device h200|h100|a100|...  plan for this GPU, or cpu; draw a timeline
  --out DIR         folder of the timeline (default <run.dir>/dry_run)

Options for import-hf, --quantize also for merge:
  --force --dtype bf16 --base-model-name --quantize nf4|int8|fp8 (merge: mxfp4)

Options for bench, with their defaults:
  --steps 5  --layers 12  --hidden 768  --intermediate 2048  --heads 12
  --vocab 32000  --model PRESET  --adapters 4  --rank 16  --mixed-ranks
  --samples 8 (of each a step)  --sample-tokens 256  --microbatch-tokens N
  --lengths fixed|xsum|cnn|wikisum|mix  --dora|--vera  --dropout 0
  --optim adamw_8bit  --policy, --packing  --recompute auto|none|layer
  --backend cpu|cuda  --precision auto|fp32|bf16|fp8  --weights nf4|int8|fp8
  --residency auto|all|stream|LAYERS  --offload none|auto|LAYERS
  --target-experts (LoRA in experts too)  --predict  --quick  --json

Other options:
  -h, --help
  --keys [NAME]     print the keys of a job, or those with NAME in their names,
                    as in --keys lr; --markdown prints them as a table
  --version         print the version and how it was built

Exit codes:
  0   done
  1   error
  2   bad job or usage
  3   some adapters failed, the others were exported
  75  stopped cleanly; the same command continues

Examples:
  loratrain import-hf models/Llama-3.2-1B base.h5
  loratrain tune.yaml --dry-run --ranks 8 --ranks-per-node 4 --device h200
  mpirun -np 8 loratrain tune.yaml --set run.dir=runs/b --set defaults.r=32
)";
}

}  // namespace loratrain
