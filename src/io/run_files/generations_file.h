#pragma once

namespace loratrain {

/// In an adapter's folder: the texts that it has written (train/generation.h), a line for each,
/// {"sample": 0, "prompt": [..], "generated": [..], "reference": [..], "stopped": true} with token
/// ids, "generated" with the stop token. scripts/exact_match.py adds, where a tokenizer is,
/// "prompt_text", "generated_text", "reference_text", "answer", "expected" and "match".
inline constexpr const char* generations_file_name = "generations.jsonl";

}  // namespace loratrain
