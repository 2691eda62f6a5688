"""fetch_real_model.py on a tiny GGUF file: every weight in its place, RoPE's order, tokenizer, messages."""

import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "fetch_real_model.py"
sys.path.insert(0, str(SCRIPT.parent))

try:
    import fetch_real_model
    import gguf
    import numpy as np
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM, AutoTokenizer
    MISSING = None
except ImportError as error:
    MISSING = str(error)

LAYERS, HIDDEN, HEADS, KV_HEADS, WIDE = 2, 16, 4, 2, 24
TOKENS = ["<|end|>", "<|start|>", "a", "b", "ab", "Ġ"]


def exact(rows, columns, seed):
    """Numbers that bf16 holds exactly."""
    return (np.random.default_rng(seed).integers(-64, 64, (rows, columns)) / 32).astype(np.float32)


def interleaved(weight, heads):
    """GGUF's order of q and k: row 2i of a head is its row i, row 2i + 1 its row i + half."""
    size = weight.shape[0] // heads
    order = [head * size + part * size // 2 + i
             for head in range(heads) for i in range(size // 2) for part in (0, 1)]
    return weight[order]


@unittest.skipIf(MISSING, MISSING)
class FetchRealModel(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)
        self.weights = {}

    def add(self, writer, name, hf_name, rows, columns=None, heads=None):
        weight = exact(rows, columns or 1, len(self.weights))
        weight = weight[:, 0] if columns is None else weight
        self.weights[hf_name] = weight
        writer.add_tensor(name, interleaved(weight, heads) if heads else weight)

    def write_gguf(self, architecture="llama", tokenizer="gpt2", tied=True):
        path = self.dir / "tiny.gguf"
        writer = gguf.GGUFWriter(path, architecture)
        writer.add_context_length(64)
        writer.add_embedding_length(HIDDEN)
        writer.add_block_count(LAYERS)
        writer.add_feed_forward_length(WIDE)
        writer.add_head_count(HEADS)
        writer.add_head_count_kv(KV_HEADS)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_freq_base(10000.0)
        writer.add_tokenizer_model(tokenizer)
        writer.add_token_list(TOKENS)
        writer.add_token_types([3, 3, 1, 1, 1, 1])
        writer.add_token_merges(["a b"])
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(0)
        writer.add_chat_template("{% for m in messages %}<|start|>{{ m['content'] }}<|end|>{% endfor %}")
        self.add(writer, "token_embd.weight", "model.embed_tokens.weight", len(TOKENS), HIDDEN)
        self.add(writer, "output_norm.weight", "model.norm.weight", HIDDEN)
        if not tied:
            self.add(writer, "output.weight", "lm_head.weight", len(TOKENS), HIDDEN)
        head = HIDDEN // HEADS
        for i in range(LAYERS):
            here, there = f"blk.{i}.", f"model.layers.{i}."
            self.add(writer, here + "attn_norm.weight", there + "input_layernorm.weight", HIDDEN)
            self.add(writer, here + "ffn_norm.weight", there + "post_attention_layernorm.weight", HIDDEN)
            self.add(writer, here + "attn_q.weight", there + "self_attn.q_proj.weight", HIDDEN, HIDDEN, HEADS)
            self.add(writer, here + "attn_k.weight", there + "self_attn.k_proj.weight", KV_HEADS * head, HIDDEN,
                     KV_HEADS)
            self.add(writer, here + "attn_v.weight", there + "self_attn.v_proj.weight", KV_HEADS * head, HIDDEN)
            self.add(writer, here + "attn_output.weight", there + "self_attn.o_proj.weight", HIDDEN, HIDDEN)
            self.add(writer, here + "ffn_gate.weight", there + "mlp.gate_proj.weight", WIDE, HIDDEN)
            self.add(writer, here + "ffn_up.weight", there + "mlp.up_proj.weight", WIDE, HIDDEN)
            self.add(writer, here + "ffn_down.weight", there + "mlp.down_proj.weight", HIDDEN, WIDE)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    def fetch(self, path, out=None):
        """The script in this process, which has read torch once for all tests."""
        output, errors = io.StringIO(), io.StringIO()
        arguments = [str(SCRIPT), str(out or self.dir / "model"), "--gguf", str(path)]
        with (unittest.mock.patch.object(sys, "argv", arguments), contextlib.redirect_stdout(output),
              contextlib.redirect_stderr(errors)):
            code = fetch_real_model.main()
        return subprocess.CompletedProcess(arguments, code, output.getvalue(), errors.getvalue())

    def refusal(self, path, out=None):
        process = self.fetch(path, out)
        self.assertEqual(process.returncode, 2, process.stderr)
        self.assertEqual(process.stderr.count("\n"), 1, process.stderr)
        self.assertFalse(list(self.dir.glob("model*/part")))
        return process.stderr

    def check_weights(self, tied):
        process = self.fetch(self.write_gguf(tied=tied))
        self.assertEqual(process.returncode, 0, process.stderr)
        found = load_file(self.dir / "model/model.safetensors")
        self.assertEqual(found.keys(), self.weights.keys())
        for name, weight in self.weights.items():
            self.assertEqual(found[name].dtype, torch.bfloat16)
            np.testing.assert_array_equal(found[name].float().numpy(), weight, name)
        self.assertEqual(json.loads((self.dir / "model/config.json").read_text())["tie_word_embeddings"], tied)

    def test_every_weight_is_in_its_place(self):
        self.check_weights(tied=True)

    def test_a_head_of_its_own(self):
        self.check_weights(tied=False)

    def test_transformers_loads_it(self):
        self.fetch(self.write_gguf())
        model = AutoModelForCausalLM.from_pretrained(self.dir / "model")
        self.assertEqual((model.config.num_key_value_heads, model.config.head_dim), (KV_HEADS, HIDDEN // HEADS))
        self.assertEqual(model.config.rms_norm_eps, 1e-5)
        tokenizer = AutoTokenizer.from_pretrained(self.dir / "model")
        text = tokenizer.apply_chat_template([{"role": "user", "content": "ab a"}], tokenize=False)
        self.assertEqual(tokenizer(text)["input_ids"], [1, 4, 5, 2, 0])
        self.assertEqual(tokenizer.decode([1, 4, 5, 2, 0], skip_special_tokens=True), "ab a")

    def test_as_a_program(self):
        process = subprocess.run([sys.executable, SCRIPT, self.dir, "--gguf", self.dir / "none.gguf"],
                                 capture_output=True, text=True, check=False)
        self.assertEqual((process.returncode, process.stdout), (2, ""))
        self.assertTrue(process.stderr.startswith("fetch_real_model: "), process.stderr)

    def test_messages(self):
        self.assertIn("general.architecture is gemma, only llama is read",
                      self.refusal(self.write_gguf(architecture="gemma")))
        (self.dir / "no.gguf").write_bytes(b"text")
        self.assertIn("no.gguf: not a GGUF file", self.refusal(self.dir / "no.gguf"))
        self.assertIn("none.gguf", self.refusal(self.dir / "none.gguf"))
        self.assertIn("tokenizer.ggml.model is llama, only gpt2",
                      self.refusal(self.write_gguf(tokenizer="llama")))
        self.assertIn("exists; remove it", self.refusal(self.write_gguf(), self.dir))
        self.assertFalse((self.dir / "model").exists())


class WithoutNumpy(unittest.TestCase):
    def test_a_missing_package_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "numpy.py").write_text("raise ImportError(\"No module named 'numpy'\")")
            process = subprocess.run([sys.executable, SCRIPT, "out"], capture_output=True, text=True, check=False,
                                     env={**os.environ, "PYTHONPATH": folder})
        self.assertEqual((process.returncode, process.stderr.count("\n")), (2, 1), process.stderr)
        self.assertIn("needs the Python packages numpy", process.stderr)
        self.assertIn("scripts/requirements.txt", process.stderr)


if __name__ == "__main__":
    unittest.main()
