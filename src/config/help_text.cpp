#include "config/command_line.h"

namespace loratrain {

std::string help_text() {
    return R"(loratrain - fine-tune many LoRA adapters of one frozen base model at once

Usage:
  [mpirun -np N] loratrain JOB.yaml [options]   train all adapters of the job
  loratrain import-hf HF_DIR OUT.h5 [options]   convert Hugging Face weights, once
  [mpirun -np N] loratrain bench [options]      measure the speed, with random weights
  loratrain status RUN_DIR [--follow]           how a run is doing (until it ends)
  loratrain report RUN_DIR... [--out FILE]      curves and tables as a web page
  loratrain stop RUN_DIR ADAPTER                end one adapter of a run; it is exported
  loratrain check-export DIR --base BASE.h5     which programs load it, why others do not
  loratrain merge DIR OUT --base BASE.h5        a Hugging Face folder, the adapter in it
  loratrain selftest                            check this installation, within a minute

Options for training:
  --set KEY=VALUE     override any key (--keys); paths count from the job file, as in it
  --dry-run           print plan and speed; --compare  --ranks N[,N..]  --ranks-per-node N
    --device h200|h100|a100|... (timeline in <run.dir>/dry_run)  --out DIR
  --restart auto      continue from the newest checkpoint in run.dir, if any (default)
  --restart never     start anew; what is there goes to <run.dir>/before-TIME
  --restart PATH      continue from this checkpoint
  --stop-after N      checkpoint, exit 75 where a packing block ends from step N on
  --max-hours H       the same before H hours are over (run.max_hours)

Options for import-hf: --force  --dtype bf16  --quantize nf4|int8|fp8  --base-model-name

Options for bench, with their defaults:
  --steps 5  --layers 12  --hidden 768  --intermediate 2048  --heads 12  --vocab 32000
  --adapters 4  --rank 16  --samples 8 (each a step)  --sample-tokens 256  --mixed-ranks
  --model PRESET  --dora|--vera  --optim adamw_8bit  --dropout 0  --microbatch-tokens N
  --backend cpu|cuda  --precision auto|fp32|bf16|fp8  --weights nf4|int8|fp8  --predict
  --lengths fixed|xsum|cnn|wikisum|mix  --policy, --packing  --recompute auto|none|layer
  --residency auto|all|stream|LAYERS  --offload none|auto|LAYERS  --json  --quick

Other options: -h, --help, --keys (all keys of a job file), --version (and build)

Exit codes:
  0 done, 1 error, 2 bad job or usage, 3 some adapters failed and the rest were exported,
  75 stopped cleanly; the same command continues

Examples:
  loratrain import-hf models/Llama-3.2-1B base.h5
  loratrain tune.yaml --dry-run --ranks 8 --ranks-per-node 4 --device h200    (two hosts)
  mpirun -np 8 loratrain tune.yaml --set run.dir=runs/b --set adapters.math-r8.r=32
)";
}

}  // namespace loratrain
