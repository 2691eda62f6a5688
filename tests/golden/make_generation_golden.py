"""What Hugging Face transformers + PEFT write by greedy decoding in float64 with final golden adapters: generations.json.
usage: make_generation_golden.py GOLDEN_DIR
Beside make_golden.py's and make_forms.py's, whose bases and adapters it takes. Prompts are of unlike lengths, and each is decoded alone,
without padding. `stop_tokens` has a token that the first text comes to, which ends texts beside the base's own eos_token_id. Prompts
whose texts hang on a difference of logits below 1e-3 are left out: rounding may decide them. Nothing is cached: every token comes from
its whole text."""
import json, os, sys, torch, transformers
import delta_float64
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
from peft import PeftModel
NEW, PROMPTS, MARGIN = 12, 5, 1e-3
ADAPTERS = {"llama": ("a_r4_all", "f_dora", "f_vera", "f_head", "f_embed", "f_patterns"), "qwen2_window": ("a_r4_all",),
            "gemma2": ("a_r4_all", "b_r8_attn", "f_head"), "gemma3_text": ("a_r4_all", "f_embed"), "olmo3": ("a_r4_all",), "qwen3_yarn": ("a_r4_all",),
            "granite": ("f_embed", "f_head"), "glm4": ("a_r4_all",), "apertus": ("a_r4_all",), "exaone4": ("a_r4_all",), "hunyuan_v1_dense": ("a_r4_all",),
            "qwen3_5": ("a_r4_all", "b_r8_attn", "c_r3_qv"), "qwen3_next": ("a_r4_all", "b_r8_attn"), "qwen3_5_moe": ("a_r4_all",),
            "gpt_oss": ("b_r8_attn",), "phi3_long": ("b_r8_attn",), "deepseek_v3": ("a_r4_all",), "glm4_moe_lite": ("a_r4_all",)}


def write_text(model, prompt, stops):
    """Tokens, and the least difference that decided one."""
    ids = torch.tensor([prompt])
    out = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NEW, eos_token_id=stops,
                         pad_token_id=0, return_dict_in_generate=True, output_logits=True, use_cache=False)
    tops = [torch.topk(logits[0].double(), 2).values for logits in out.logits]
    return out.sequences[0, len(prompt):].tolist(), min(float(top[0] - top[1]) for top in tops)


def main():
    golden = sys.argv[1]
    found = {}
    for family, names in ADAPTERS.items():
        delta_float64.switch(family in delta_float64.FAMILIES)
        config = json.load(open(f"{golden}/{family}/base/config.json"))
        auto = AutoModelForImageTextToText if "vision_config" in config else AutoModelForCausalLM
        own = config.get("text_config", config).get("eos_token_id")
        own = [] if own is None else own if isinstance(own, list) else [own]
        for name in names:
            base = auto.from_pretrained(f"{golden}/{family}/base", dtype=torch.float64, attn_implementation="eager")
            base.config.get_text_config()._experts_implementation = "eager"  # the others have no float64
            folder = f"{golden}/{family}/adapters/{name}"
            model = PeftModel.from_pretrained(base, f"{folder}/final", autocast_adapter_dtype=False).to(torch.float64).eval()
            model.generation_config = transformers.GenerationConfig()
            samples = [json.loads(line)["input_ids"] for line in open(f"{folder}/data.jsonl")]
            stops, texts = None, []
            for i, ids in enumerate(samples):
                if len(texts) == PROMPTS: break
                prompt = ids[:(5, 1, 17, 9, 30)[i % 5]]
                if stops is None:
                    text, margin = write_text(model, prompt, own or None)
                    if margin < MARGIN: continue
                    stops = [text[min(4, len(text) - 1)]]
                text, margin = write_text(model, prompt, own + stops)
                if margin >= MARGIN: texts.append({"prompt": prompt, "generated": text})
            assert len(texts) == PROMPTS, (family, name)
            found.setdefault(family, {})[name] = {"stop_tokens": stops, "max_new_tokens": NEW, "texts": texts}
            print(family, name, [len(t["generated"]) for t in texts], flush=True)
    with open(f"{golden}/generations.json", "w") as file: file.write(json.dumps(found) + "\n")


if __name__ == "__main__": main()
