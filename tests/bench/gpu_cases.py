"""The cases of the GPU table: what `loratrain bench` and the peers run on 1, 2 and 4 GPUs, and the
bars that results are held against. Only data; run_gpu_cases.py runs them, gpu_table.py prints them."""
from __future__ import annotations

from dataclasses import dataclass, field

# PEFT trains several adapters one after another, at the same rate.
PEFT_8B = "peer_peft.py --model llama-3.1-8b"
PEFT_1B = "peer_peft.py --model tinyllama-1.1b"


@dataclass(frozen=True)
class Case:
    """`options` are those of `loratrain bench`; `peers` are scripts of this folder with options, the
    most important first. `bars` say what passes: a key of the result line, "peer" (rate over the
    fastest peer's), "waiting" (largest share of a stage's time) or "rate..." (over another case's)
    -> ("at least" | "at most" | "within", value) or ("share of", case, value); within: not further
    from zero."""
    name: str
    options: str
    peers: tuple[str, ...] = ()
    bars: dict[str, tuple] = field(default_factory=dict)


def equal_tokens(adapters: int, share: float | None = None, mixed: bool = False, eight: bool = False) -> Case:
    """16384 tokens per step in samples of 512, shared by so many adapters, of rank 16 or of ranks 8 to
    128, perhaps with moments in 8 bits; at least this share of the rate of one adapter of rank 16.
    On 80 GB, 32 adapters of ranks 8 to 128 fit only recomputing, 16 with moments in 8 bits without."""
    bars = {"rate": ("share of", "8B, 1 adapter x 32 x 512", share)} if share else {}
    plural = "" if adapters == 1 else "s"
    return Case(f"8B, {adapters} adapter{plural} x {32 // adapters} x 512" + (", ranks 8 to 128" if mixed else "")
                + (", adamw_8bit" if eight else ""),
                f"--model llama-3.1-8b --adapters {adapters} --samples {32 // adapters} --sample-tokens 512 "
                f"--microbatch-tokens 8192 --steps 2{' --mixed-ranks' if mixed else ''}"
                f"{' --optim adamw_8bit' if eight else ''}", bars=bars)


MAIN = "8B, 4 adapters x 2 x 2048"


def mixture_30b(precision: str, tokens_per_second: int) -> Case:
    """30B-A3B with LoRA on attention; bf16 where nothing is said."""
    return Case("30B-A3B, 4 adapters x 2 x 2048" + (f", {precision}" if precision else ""),
                "--model qwen3-30b-a3b --adapters 4 --samples 2 --sample-tokens 2048 --microbatch-tokens 8192 "
                f"--steps 3{f' --precision {precision}' if precision else ''}",
                bars={"tokens_per_second": ("at least", tokens_per_second)})


ONE_GPU = (
    Case(MAIN,
         "--model llama-3.1-8b --adapters 4 --samples 2 --sample-tokens 2048 --microbatch-tokens 8192 --steps 3",
         (f"{PEFT_8B} --batch 4 --sequence 2048 --compile", f"{PEFT_8B} --batch 4 --sequence 2048"),
         {"tokens_per_second": ("at least", 16800), "lora_overhead": ("at most", 0.10),
          "peer": ("at least", 1.0)}),
    Case("8B, 4 x 2 x 2048, dropout 0.1",
         "--model llama-3.1-8b --adapters 4 --samples 2 --sample-tokens 2048 --microbatch-tokens 8192 "
         "--dropout 0.1 --steps 3",
         (f"{PEFT_8B} --batch 4 --sequence 2048 --dropout 0.1 --compile",),
         {"peer": ("at least", 1.0), "rate": ("share of", MAIN, 0.92)}),
    equal_tokens(1), equal_tokens(4, 0.97), equal_tokens(16, 0.92), equal_tokens(32, 0.95),
    equal_tokens(32, 0.90, mixed=True), equal_tokens(16, 0.90, mixed=True, eight=True),
    Case("8B, 4 adapters x 1 x 8192",
         "--model llama-3.1-8b --adapters 4 --samples 1 --sample-tokens 8192 --microbatch-tokens 8192 --steps 2",
         (f"{PEFT_8B} --batch 1 --sequence 8192 --compile",),
         {"peer": ("at least", 1.0), "tokens_per_second": ("at least", 13000)}),
    mixture_30b("", 28000), mixture_30b("fp8", 32000),
    Case("1.1B, 1 adapter x 8 x 512",
         "--model tinyllama-1.1b --adapters 1 --samples 8 --sample-tokens 512 --steps 16",
         (f"{PEFT_1B} --batch 8 --sequence 512 --compile", f"{PEFT_1B} --batch 8 --sequence 512"),
         {"peer": ("at least", 1.0), "tokens_per_second": ("at least", 80000)}),
    Case("1.1B, 32 adapters x 1 x 512",
         "--model tinyllama-1.1b --adapters 32 --samples 1 --sample-tokens 512 --steps 10",
         (f"{PEFT_1B} --batch 1 --sequence 512",), {"peer": ("at least", 8.0)}),
)


def pipeline_8b(adapters: int, peers: tuple[str, ...] = ()) -> Case:
    """131072 tokens per step."""
    bars = {"waiting": ("at most", 0.11)}
    if peers:
        bars["peer"] = ("at least", 1.0)
    return Case(f"8B, {adapters} adapters x {64 // adapters} x 2048",
                f"--model llama-3.1-8b --adapters {adapters} --samples {64 // adapters} --sample-tokens 2048 "
                "--microbatch-tokens 8192 --steps 2", peers, bars)


def pipeline_70b(microbatch: int, peers: tuple[str, ...] = ()) -> Case:
    return Case(f"70B, 4 adapters x 8 x 2048 by {microbatch}",
                "--model llama-3-70b --adapters 4 --samples 8 --sample-tokens 2048 "
                f"--microbatch-tokens {microbatch} --steps 2", peers,
                {"tokens_per_second": ("at least", 6000), **({"peer": ("at least", 1.0)} if peers else {})})


def policies(label: str, options: str, over_mlora: float | None = None,
             over_1f1b: float | None = None) -> tuple[Case, ...]:
    """Four adapters whose samples differ in length, under every policy; what was predicted before
    the run, and what memory was planned. The figures are those that `balanced` must gain."""
    def name(policy: str) -> str:
        return f"{label} mixed lengths, {policy}"

    def case(policy: str) -> Case:
        bars: dict[str, tuple] = {"prediction_error": ("within", 0.10), "memory_error": ("within", 0.03)}
        if policy == "balanced" and over_mlora and over_1f1b:
            bars |= {"rate over mlora": ("share of", name("mlora"), over_mlora),
                     "rate over 1f1b": ("share of", name("1f1b"), over_1f1b)}
        return Case(name(policy), f"{options} --adapters 4 --lengths mix --sample-tokens 4096 "
                    f"--microbatch-tokens 7168 --policy {policy} --predict --quick", bars=bars)

    return tuple(case(policy) for policy in ("balanced", "mlora", "1f1b", "sequential"))


FSDP_8B = ("peer_fsdp.py --model llama-3.1-8b --batch 4 --keep-activations",)
FSDP_70B = ("peer_fsdp.py --model llama-3-70b --batch 4 --steps 3",)
CASES = {
    1: ONE_GPU,
    2: (pipeline_8b(4, FSDP_8B), pipeline_8b(8),
        *policies("8B", "--model llama-3.1-8b --samples 8 --steps 32")),
    4: (pipeline_8b(4, FSDP_8B), pipeline_8b(8), pipeline_70b(2048, FSDP_70B), pipeline_70b(4096),
        *policies("8B", "--model llama-3.1-8b --samples 8 --steps 32", 1.25, 1.45),
        *policies("70B", "--model llama-3-70b --samples 8 --steps 4", 1.25, 1.45)),
}
