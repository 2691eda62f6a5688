"""scripts/prepare_data.py: formats, masks, lengths, splits, errors. Uses only the standard library, and
skips what needs a Python package that is not installed."""
from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import unittest

from prepare_case import BOS, CHATML, EOS, ROOT, TALK, Case, needs


class Bytes(Case):
    def test_prompt_and_completion(self) -> None:
        [sample] = self.prepare({"prompt": "é?", "completion": "ok"})
        prompt = list("é?".encode())
        self.assertEqual(sample["input_ids"], [BOS, *prompt, *b"ok", EOS])
        self.assertEqual(sample["labels"], [-100] * (1 + len(prompt)) + [*b"ok", EOS])

    def test_text_trains_all_but_bos(self) -> None:
        [sample] = self.prepare({"text": "abc"})
        self.assertEqual(sample, {"input_ids": [BOS, *b"abc", EOS], "labels": [-100, *b"abc", EOS]})

    def test_alpaca_with_and_without_input(self) -> None:
        samples = self.prepare({"instruction": "Add.", "input": "1 2", "output": "3"},
                               {"instruction": "Sing.", "input": "", "output": "La"})
        self.assertEqual([self.trained_text(sample) for sample in samples], ["3$", "La$"])
        texts = [bytes(i for i in sample["input_ids"] if i < 256).decode() for sample in samples]
        self.assertIn("### Input:\n1 2\n\n### Response:\n3", texts[0])
        self.assertNotIn("### Input", texts[1])

    def test_column_names_and_prompt_template(self) -> None:
        [sample] = self.prepare({"question": "Q", "answer": "A", "text": "x"}, options=(
            "--tokenizer", "bytes", "--prompt-field", "question", "--completion-field", "answer",
            "--prompt-template", r"<{prompt}>\n"))
        self.assertEqual(sample["input_ids"], [BOS, *b"<Q>\nA", EOS])

    def test_json_array(self) -> None:
        path = self.folder / "in.json"
        path.write_text(json.dumps([{"text": "a"}, {"text": "b"}]))
        code, _, err = self.run_script(path, "-o", self.out, "--tokenizer", "bytes")
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(len(self.out.read_text().splitlines()), 2)

    def test_show_marks_what_is_trained(self) -> None:
        path = self.write({"prompt": "p", "completion": "c"}, {"prompt": "q", "completion": "d"})
        code, out, _ = self.run_script(path, "--tokenizer", "bytes", "--show", 1)
        self.assertEqual(code, 0)
        self.assertIn("<BOS>p[[c<EOS>]]", out)
        self.assertNotIn("q", out.split("\n", 1)[1])

    def test_show_goes_on_where_nobody_reads(self) -> None:
        path = self.write({"text": "a"}, {"text": "b"})
        reader, writer = os.pipe()
        os.close(reader)
        process = subprocess.run([sys.executable, ROOT / "scripts" / "prepare_data.py", path, "-o", self.out,
                                  "--tokenizer", "bytes", "--show", "2"],
                                 stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
        os.close(writer)
        self.assertEqual((process.returncode, process.stderr), (0, ""))
        self.assertEqual(len(self.out.read_text().splitlines()), 2)

    def test_quickstart_rule_matches_the_demo_tasks(self) -> None:
        path = ROOT / "inputs" / "demo_tasks" / "sort" / "eval.jsonl"
        code, out, err = self.run_script(path, "-o", self.out, "--tokenizer", "bytes")
        self.assertEqual(code, 0, err)
        self.assertIn("96 samples", out)


class Lengths(Case):
    LONG, SHORT = {"prompt": "pppp", "completion": "cccc"}, {"prompt": "p", "completion": "c"}

    def options(self, policy: str, limit: int = 6) -> tuple:
        return ("--tokenizer", "bytes", "--max-seq-len", limit, "--over-length", policy)

    def test_error_names_the_line_and_writes_nothing(self) -> None:
        path = self.write(self.SHORT, self.LONG, self.LONG)
        code, _, err = self.run_script(path, "-o", self.out, *self.options("error"))
        self.assertEqual(code, 2)
        self.assertIn(f"{path}:2: 10 tokens, more than --max-seq-len 6", err)
        self.assertIn(f"2 samples have more, the longest, {path}:2, has 10; --max-seq-len 10 takes all", err)
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["in.jsonl"])

    def test_truncate(self) -> None:
        samples = self.prepare(self.SHORT, self.LONG, options=self.options("truncate"))
        self.assertEqual(samples[1], {"input_ids": [BOS, *b"ppppc"], "labels": [-100] * 5 + [*b"c"]})

    def test_truncate_drops_what_keeps_no_target(self) -> None:
        path = self.write(self.SHORT, self.LONG)
        code, out, _ = self.run_script(path, "-o", self.out, *self.options("truncate", 5))
        self.assertEqual(code, 0)
        self.assertIn("0 truncated, 0 dropped, 1 dropped because the cut left no target", out)

    def test_drop(self) -> None:
        path = self.write(self.SHORT, self.LONG)
        code, out, _ = self.run_script(path, "-o", self.out, *self.options("drop"))
        self.assertEqual(code, 0)
        self.assertIn("0 truncated, 1 dropped", out)
        self.assertEqual(len(self.out.read_text().splitlines()), 1)


class Preferences(Case):
    def test_texts_with_a_prompt_and_without(self) -> None:
        self.assertEqual(self.texts({"prompt": "q ", "chosen": "yes", "rejected": "no"},
                                    {"chosen": "Human: a\n\nAssistant: it is", "rejected": "Human: a\n\nAssistant: it was"}),
                         [("q yes", "yes", "q no", "no"),
                          ("Human: a\n\nAssistant: it is", "is", "Human: a\n\nAssistant: it was", "was")])

    @needs("jinja2")
    def test_conversations_train_their_last_turn(self) -> None:
        template = self.folder / "t.jinja"
        template.write_text(CHATML)
        options = ("--tokenizer", "bytes", "--chat-template", template)
        worse = [*TALK[:-1], {"role": "assistant", "content": "No."}]
        whole = self.texts({"chosen": TALK, "rejected": worse}, options=options)
        apart = self.texts({"prompt": TALK[:-1], "chosen": TALK[-1:], "rejected": worse[-1:]}, options=options)
        self.assertEqual(whole, apart)
        self.assertTrue(whole[0][1].startswith("Yes, 4.") and whole[0][3].startswith("No."), whole)
        self.assertIn("<|im_start|>assistant\n4<|im_end|>", whole[0][0])
        named = self.texts({"prompt": "2+2?", "chosen": TALK[1:3], "rejected": [TALK[1], worse[-1]]}, options=options)
        self.assertEqual(named[0][0].count("2+2?"), 1)
        as_chat = self.texts({"prompt": "2+2?", "chosen": "4", "rejected": "No."}, options=(*options, "--as-chat"))
        self.assertEqual(as_chat, named)

    def test_paraphrases_have_the_answer_twice(self) -> None:
        for record in ({"prompt": "a? ", "paraphrase": "b? ", "completion": "yes"},
                       {"original_instruction": "a? ", "paraphrased_instruction": "b? ", "targets": "yes"}):
            self.assertEqual(self.texts(record), [("a? yes", "yes", "b? yes", "yes")])
        alpaca = {"instruction": "Add.", "input": "1 2", "output": "3"}
        both = self.texts({**alpaca, "paraphrase": "Sum."},
                          {"instruction": "Add.", "instruction_paraphrased": "Sum.", "input": "1 2", "chosen": "3", "rejected": "4"})
        text = both[0][0]
        self.assertIn("### Instruction:\nAdd.\n\n### Input:\n1 2", text)
        self.assertEqual(both, [(text, "3", text.replace("Add.", "Sum."), "3")] * 2)
        source = self.write({**alpaca, "paraphrase": "Sum."})
        code, out, _ = self.run_script(source, "--tokenizer", "bytes", "--show", 1)
        self.assertEqual(code, 0)
        for side, what in (("instruction", "Add."), ("paraphrase", "Sum.")):
            self.assertRegex(out, rf"in.jsonl:1 \({side}\): \d+ tokens, 2 trained[^-]*{what}[^-]*\[\[3")

    def test_bad_paraphrases(self) -> None:
        for record, options, what in (({"paraphrase": "b", "completion": "c"}, (), r'in.jsonl:1: a paraphrase needs "instruction"'),
                                      ({"prompt": "a", "paraphrase": "b"}, (), "and an answer in one of completion, output"),
                                      ({"prompt": "a", "paraphrase": 3, "completion": "c"}, (), '"paraphrase" is not a string'),
                                      ({"prompt": "a", "paraphrase": "b", "completion": "c"}, ("--train-on", "all"),
                                       "leave --train-on all out")):
            code, _, err = self.run_script(self.write(record), "-o", self.out, "--tokenizer", "bytes", *options)
            self.assertEqual(code, 2)
            self.assertRegex(err, what)

    def test_a_pair_is_dropped_whole(self) -> None:
        pairs = self.texts({"prompt": "q", "chosen": "a", "rejected": "b" * 90}, {"prompt": "q", "chosen": "c", "rejected": "d"},
                           options=("--tokenizer", "bytes", "--max-seq-len", 9, "--over-length", "drop"))
        self.assertEqual(pairs, [("qc", "c", "qd", "d")])

    def test_counts_and_shows_pairs(self) -> None:
        source = self.write({"prompt": "q", "chosen": "a", "rejected": "b"})
        code, out, _ = self.run_script(source, "-o", self.out, "--tokenizer", "bytes", "--show", 1)
        self.assertEqual(code, 0)
        self.assertIn("in.jsonl:1 (chosen): 4 tokens", out)
        self.assertIn("in.jsonl:1 (rejected): 4 tokens", out)
        self.assertIn(": 1 pairs", out)

    def test_bad_pairs(self) -> None:
        pair = {"prompt": "q", "chosen": "a", "rejected": "b"}
        for records, what in ((({"chosen": "a", "rejected": 3, "prompt": "q"},), '"rejected" must be a list'),
                              ((pair, {"text": "t"}), "in.jsonl:2: a single sample, the records before"),
                              (({"text": "t"}, pair), r"in.jsonl:2 \(chosen\): a pair, the records before"),
                              (({"chosen": TALK[:2], "rejected": TALK},), "must end with an assistant turn")):
            code, _, err = self.run_script(self.write(*records), "-o", self.out, "--tokenizer", "bytes")
            self.assertEqual(code, 2)
            self.assertRegex(err, what)
            self.assertFalse(self.out.exists())

    def test_unpaired(self) -> None:
        good, bad = ({"prompt": "q ", "completion": text, "label": label} for text, label in (("yes", True), ("no", False)))
        lines = self.prepare(good, bad, options=("--tokenizer", "bytes"))
        self.assertEqual([line["label"] for line in lines], [True, False])
        self.assertEqual(lines[0]["labels"], [-100] * 3 + [*b"yes", 257])
        code, out, _ = self.run_script(self.write(good), "--show", 1, "--tokenizer", "bytes")
        self.assertEqual(code, 0)
        self.assertIn("7 tokens, 4 trained, label true", out)
        for records, what in (((good, {"prompt": "q", "completion": "c"}), "in.jsonl:2: no label of true or false, unlike"),
                              (({"text": "t"}, good), "in.jsonl:2: a label of true or false, unlike")):
            code, _, err = self.run_script(self.write(*records), "-o", self.folder / "bad.jsonl", "--tokenizer", "bytes")
            self.assertEqual(code, 2)
            self.assertIn(what, err)

    @needs("jinja2")
    def test_unpaired_conversations_are_trained_to_the_end(self) -> None:
        template = self.folder / "t.jinja"
        template.write_text(CHATML)
        options = ("--tokenizer", "bytes", "--chat-template", template)
        record = {"prompt": TALK[:-1], "completion": TALK[-1:], "label": True}
        line = self.prepare(record, options=options)[0]
        trained = line["labels"].index(next(label for label in line["labels"] if label >= 0))
        self.assertEqual(line["labels"][trained:], line["input_ids"][trained:])
        self.assertTrue(bytes(i for i in line["input_ids"][trained:] if i < 256).decode().startswith("Yes, 4."))

    @needs("h5py")
    def test_hdf5_has_no_pairs(self) -> None:
        source = self.write({"prompt": "q", "chosen": "a", "rejected": "b"})
        code, _, err = self.run_script(source, "-o", self.folder / "out.h5", "--tokenizer", "bytes")
        self.assertEqual(code, 2)
        self.assertIn("need the ending .jsonl", err)


class Split(Case):
    def split(self, seed: int) -> tuple[list[str], list[str]]:
        path = self.write(*({"text": f"sample {i}"} for i in range(40)))
        held_out = self.folder / "eval.jsonl"
        code, _, err = self.run_script(path, "-o", self.out, "--tokenizer", "bytes", "--eval-fraction", 0.25,
                                       "--eval-out", held_out, "--seed", seed)
        self.assertEqual(code, 0, err)
        return self.out.read_text().splitlines(), held_out.read_text().splitlines()

    def test_sizes_and_disjointness(self) -> None:
        train, held_out = self.split(1)
        self.assertEqual((len(train), len(held_out)), (30, 10))
        self.assertEqual(len(set(train) | set(held_out)), 40)

    def test_seed_decides(self) -> None:
        self.assertEqual(self.split(1), self.split(1))
        self.assertNotEqual(self.split(1)[1], self.split(2)[1])

    def test_no_file_without_samples(self) -> None:
        path = self.write({"text": "short"}, {"text": "long" * 9})
        for seed, words in [(1, "every sample went"), (0, "no sample went")]:
            code, _, err = self.run_script(path, "-o", self.out, "--tokenizer", "bytes", "--eval-fraction", 0.5,
                                           "--eval-out", self.folder / "eval.jsonl", "--seed", seed,
                                           "--max-seq-len", 10, "--over-length", "drop")
            self.assertEqual(code, 2)
            self.assertIn(words, err)
            self.assertEqual([file.name for file in self.folder.iterdir()], ["in.jsonl"])


class Errors(Case):
    def problems(self, *records: object, options: tuple = ()) -> list[str]:
        code, _, err = self.run_script(self.write(*records), "-o", self.out, "--tokenizer", "bytes", *options)
        self.assertEqual(code, 2)
        self.assertFalse(self.out.exists())
        return err.splitlines()

    def test_each_bad_line_is_one_line_of_text(self) -> None:
        lines = self.problems("{broken", {"text": 3}, "[1]", {"text": "good"}, {"foo": 1}, {"input_ids": [1]})
        self.assertEqual(len(lines), 5)
        text = "\n".join(lines)
        for number, words in [(1, "not JSON"), (2, "\"text\" is not a string"), (3, "not a JSON object"),
                              (5, "no known format in the keys foo"), (6, "already tokenised")]:
            self.assertRegex(text, rf"in\.jsonl:{number}: .*{words}")

    def test_half_of_a_surrogate_pair(self) -> None:
        lines = self.problems('{"text": "a\\ud83d"}', {"text": "\N{GRINNING FACE}"}, '{"text": "\\ude00b"}')
        self.assertEqual(len(lines), 2)
        self.assertRegex(lines[0], r"in\.jsonl:1: \\ud83d is half of a surrogate pair")
        self.assertRegex(lines[1], r"in\.jsonl:3: \\ude00 ")

    def test_output_that_is_a_directory(self) -> None:
        self.out.mkdir()
        code, _, err = self.run_script(self.write({"text": "a"}), "-o", self.out, "--tokenizer", "bytes")
        self.assertEqual((code, err), (2, f"prepare_data: {self.out}: is a directory\n"))

    def test_conversation_without_template(self) -> None:
        self.assertIn("needs a chat template", self.problems({"messages": TALK})[0])

    def test_missing_files_and_options(self) -> None:
        self.assertEqual(self.run_script("nowhere.jsonl", "-o", self.out, "--tokenizer", "bytes")[0], 2)
        path = self.write({"text": "a"})
        self.assertEqual(self.run_script(path, "-o", self.folder / "x.txt", "--tokenizer", "bytes")[0], 2)
        self.assertEqual(self.run_script(path, "-o", self.out)[0], 2)
        self.assertEqual(self.run_script(path, "-o", self.out, "--tokenizer", "bytes", "--eval-fraction", "0.1")[0], 2)

    def test_empty_input(self) -> None:
        self.assertIn("no samples", self.problems()[0])

    @needs("tokenizers")
    def test_tokenizer_directory_without_tokenizer(self) -> None:
        code, _, err = self.run_script(self.write({"text": "a"}), "-o", self.out, "--tokenizer", self.folder)
        self.assertEqual(code, 2)
        self.assertIn("tokenizer.json: no such file", err)
        self.assertNotIn("hf download", err)

    @needs("tokenizers", "numpy")
    def test_names_on_a_hub_are_to_be_downloaded(self) -> None:
        for arguments, download in ((("org/texts", "--tokenizer", "bytes"), "--repo-type dataset org/texts --local-dir texts"),
                                    ((self.write({"text": "a"}), "--tokenizer", "org/Model-1B"), "org/Model-1B --local-dir Model-1B")):
            code, _, err = self.run_script(*arguments, "--show", 1)
            self.assertEqual(code, 2)
            self.assertIn(f"download it first: hf download {download}, and give that folder", err)


@needs("tokenizers", "jinja2")
class HuggingFaceTokenizer(Case):
    TEXTS = [f"question {i}: what is {i} plus {i}?\nanswer: {2 * i}\n" for i in range(50)]

    def setUp(self) -> None:
        super().setUp()
        self.tokenizer = self.folder / "tokenizer"
        path = self.write(*({"text": text} for text in self.TEXTS), name="corpus.jsonl")
        code, _, err = self.run_script(path, "--train-tokenizer", 300, self.tokenizer)
        self.assertEqual(code, 0, err)
        from tokenizers import Tokenizer
        self.library = Tokenizer.from_file(str(self.tokenizer / "tokenizer.json"))

    def trained(self, sample: dict) -> str:
        return self.library.decode([label for label in sample["labels"] if label != -100], skip_special_tokens=False)

    def test_prompt_completion(self) -> None:
        [sample] = self.prepare({"prompt": "what is 3?\n", "completion": "6\n\n7"}, options=("--tokenizer", self.tokenizer))
        self.assertEqual(self.library.decode(sample["input_ids"], skip_special_tokens=False), "what is 3?\n6\n\n7<|endoftext|>")
        self.assertEqual(self.trained(sample), "6\n\n7<|endoftext|>")

    def test_chat_keeps_the_template_s_end_token_and_adds_no_other(self) -> None:
        [sample] = self.prepare({"messages": TALK}, options=("--tokenizer", self.tokenizer))
        self.assertEqual(self.trained(sample), "4<|im_end|>Yes, 4.<|im_end|>")
        self.assertTrue(self.library.decode(sample["input_ids"], skip_special_tokens=False).endswith("Yes, 4.<|im_end|>\n"))

    def test_eos_option(self) -> None:
        config = self.tokenizer / "tokenizer_config.json"
        config.write_text(json.dumps({"bos_token": {"content": "<|im_start|>"}}))
        path = self.write({"text": "answer"})
        code, _, err = self.run_script(path, "-o", self.out, "--tokenizer", self.tokenizer)
        self.assertEqual(code, 2)
        self.assertIn("--eos-token", err)
        [sample] = self.prepare({"text": "answer"}, options=("--tokenizer", self.tokenizer, "--eos-token", "<|im_end|>"))
        self.assertEqual(self.library.decode(sample["input_ids"], skip_special_tokens=False), "answer<|im_end|>")

    def test_many_batches_keep_their_order(self) -> None:
        samples = self.prepare(*({"text": f"{i}"} for i in range(2500)), options=("--tokenizer", self.tokenizer))
        self.assertEqual([self.library.decode(s["input_ids"]) for s in samples], [f"{i}" for i in range(2500)])

    def test_a_file_given_twice_keeps_its_order(self) -> None:
        path = self.write({"text": "1"}, {"messages": TALK}, {"text": "2"})
        code, _, err = self.run_script(path, path, "-o", self.out, "--tokenizer", self.tokenizer)
        self.assertEqual(code, 0, err)
        lines = self.out.read_text().splitlines()
        self.assertEqual(len(set(lines)), 3)
        self.assertEqual(lines[:3], lines[3:])

    def test_training_a_tokenizer_reports_bad_lines_and_writes_nothing(self) -> None:
        path = self.write({"text": "good"}, "{broken", '{"text": ["\\ud83d"]}')
        code, _, err = self.run_script(path, "--train-tokenizer", 300, self.folder / "new")
        self.assertEqual(code, 2)
        self.assertRegex(err, r"in\.jsonl:2: not JSON.*\n.*in\.jsonl:3: \\ud83d is half")
        self.assertFalse((self.folder / "new").exists())
        self.assertEqual(self.run_script("nowhere.jsonl", "--train-tokenizer", 300, self.folder / "new")[0], 2)
        self.assertEqual(self.run_script(self.write({"text": "a"}), "--train-tokenizer", 300, path)[0], 2)

    def test_weights_of_messages_are_those_of_their_tokens(self) -> None:
        talk = [*TALK[:2], {**TALK[2], "weight": 0.5}, TALK[3], {**TALK[4], "weight": 0}]
        [sample] = self.prepare({"messages": talk}, options=("--tokenizer", self.tokenizer))
        [plain] = self.prepare({"messages": TALK}, options=("--tokenizer", self.tokenizer))
        self.assertEqual(sample["input_ids"], plain["input_ids"])
        trained = [i for i, label in enumerate(sample["labels"]) if label != -100]
        self.assertEqual(self.library.decode([sample["input_ids"][i] for i in trained], skip_special_tokens=False),
                         "4<|im_end|>")
        self.assertEqual([w for w in sample["weights"] if w], [0.5] * len(trained))
        last = {"messages": [*TALK[:4], {**TALK[4], "weight": 0}]}
        [sample] = self.prepare(last, options=("--tokenizer", self.tokenizer))
        self.assertEqual(sample["input_ids"], plain["input_ids"])
        self.assertNotIn("weights", sample)

    @needs("transformers")
    def test_agrees_with_transformers(self) -> None:
        from transformers import AutoTokenizer
        reference = AutoTokenizer.from_pretrained(self.tokenizer)
        [sample] = self.prepare({"messages": TALK}, options=("--tokenizer", self.tokenizer))
        text = reference.apply_chat_template(TALK, tokenize=False)
        self.assertEqual(sample["input_ids"], reference(text, add_special_tokens=False)["input_ids"])


@needs("h5py")
class Hdf5Output(Case):
    def test_same_content_as_jsonl(self) -> None:
        import h5py
        records = [{"text": "x" * n} for n in range(1, 30)]
        lines = self.prepare(*records)
        path = self.folder / "out.h5"
        code, _, err = self.run_script(self.folder / "in.jsonl", "-o", path, "--tokenizer", "bytes")
        self.assertEqual(code, 0, err)
        with h5py.File(path) as file:
            self.assertEqual(file.attrs["format"], "loratrain-tokens-1")
            tokens, labels, offsets = (file[name][:] for name in ("tokens", "labels", "offsets"))
            self.assertEqual((tokens.dtype, labels.dtype, offsets.dtype), ("<i4", "<i4", "<i8"))
        self.assertEqual(len(offsets), len(lines) + 1)
        for line, begin, end in zip(lines, offsets, offsets[1:]):
            self.assertEqual(line, {"input_ids": tokens[begin:end].tolist(), "labels": labels[begin:end].tolist()})

    def test_damaged_data_are_noticed(self) -> None:
        import h5py
        path = self.folder / "out.h5"
        code, _, err = self.run_script(self.write({"text": "x" * 40}), "-o", path, "--tokenizer", "bytes")
        self.assertEqual(code, 0, err)
        whole = path.read_bytes()
        with h5py.File(path) as file:
            ids = file["tokens"][:].tobytes()
        for at in (whole.index(ids) + 8, whole.index(b"OHDR") + 20):
            damaged = bytearray(whole)
            damaged[at] ^= 1
            path.write_bytes(damaged)
            with self.assertRaises((KeyError, OSError)), h5py.File(path) as file:
                file["tokens"][:], file["labels"][:]

    @needs("jinja2")
    def test_weights_from_the_first_sample_that_has_any(self) -> None:
        import h5py
        (self.folder / "t.jinja").write_text(CHATML)
        path = self.folder / "out.h5"
        talks = [{"messages": [TALK[1], {**TALK[2], "weight": weight}]} for weight in (1, 0.5, 1)]
        code, _, err = self.run_script(self.write(*talks), "-o", path, "--tokenizer", "bytes", "--chat-template",
                                       self.folder / "t.jinja")
        self.assertEqual(code, 0, err)
        with h5py.File(path) as file:
            tokens, labels, weights, offsets = (file[name][:] for name in ("tokens", "labels", "weights", "offsets"))
        self.assertEqual((weights.dtype, len(weights)), ("<f4", len(tokens)))
        for sample, weight in enumerate((1, 0.5, 1)):
            trained = labels[offsets[sample]:offsets[sample + 1]] != -100
            self.assertEqual(set(weights[offsets[sample]:offsets[sample + 1]][trained]), {weight})


class Tables(Case):
    ROWS = [{"question": f"{i}+{i}?", "answer": str(2 * i), "note": None if i % 2 else "x"} for i in range(5)]
    COLUMNS = ("--prompt-field", "question", "--completion-field", "answer", "--tokenizer", "bytes")

    def lines(self, *inputs: object, options: tuple = COLUMNS) -> list[str]:
        code, _, err = self.run_script(*inputs, "-o", self.out, *options)
        self.assertEqual(code, 0, err)
        return self.out.read_text().splitlines()

    def test_csv_and_tsv_are_the_same_samples(self):
        expected = self.lines(self.write(*self.ROWS))
        for name, delimiter in (("rows.csv", ","), ("rows.tsv", "\t")):
            path = self.folder / name
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, ["question", "answer", "note"], delimiter=delimiter)
                writer.writeheader()
                writer.writerows(self.ROWS)
            self.assertEqual(self.lines(path), expected)

    def test_rows_with_other_numbers_of_values_are_named(self):
        path = self.folder / "rows.csv"
        path.write_text('question,answer\n1+1?,2\n"2+2?"\n3+3?,6,7\n')
        code, _, err = self.run_script(path, "-o", self.out, *self.COLUMNS)
        self.assertEqual(code, 2)
        self.assertIn(f"{path}:3: has fewer values than the 2 names of the first line", err)
        self.assertIn(f"{path}:4: has more values", err)

    @needs("pyarrow")
    def test_parquet_and_arrow_are_the_same_samples(self):
        import pyarrow
        import pyarrow.feather
        import pyarrow.parquet
        expected = self.lines(self.write(*self.ROWS))
        table = pyarrow.Table.from_pylist(self.ROWS)
        pyarrow.parquet.write_table(table, self.folder / "rows.parquet", row_group_size=2)
        pyarrow.feather.write_feather(table, str(self.folder / "rows.feather"))
        with pyarrow.ipc.new_stream(str(self.folder / "rows.arrow"), table.schema) as stream:
            stream.write_table(table)
        for name in ("rows.parquet", "rows.feather", "rows.arrow"):
            self.assertEqual(self.lines(self.folder / name), expected, name)

    @needs("pyarrow", "jinja2")
    def test_conversations_in_parquet(self):
        import pyarrow
        import pyarrow.parquet
        records = [{"messages": TALK}, {"messages": TALK[1:3]}]
        template = self.folder / "template.jinja"
        template.write_text(CHATML)
        options = ("--tokenizer", "bytes", "--chat-template", template)
        expected = self.lines(self.write(*records), options=options)
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), self.folder / "talk.parquet")
        self.assertEqual(self.lines(self.folder / "talk.parquet", options=options), expected)

    @needs("pyarrow")
    def test_a_damaged_table_is_one_line(self):
        for name in ("a.parquet", "a.arrow"):
            path = self.folder / name
            path.write_bytes(b"x" * 100)
            code, _, err = self.run_script(path, "-o", self.out, *self.COLUMNS)
            self.assertEqual((code, err.count("\n")), (2, 1), err)
            self.assertIn(str(path), err)

    def test_folders_and_patterns_are_files_by_name(self):
        folder = self.folder / "parts"
        folder.mkdir()
        for i in (1, 0, 2):
            (folder / f"part{i}.jsonl").write_text(json.dumps(self.ROWS[i]) + "\n")
        (folder / "notes.txt").write_text("no data")
        expected = self.lines(*(folder / f"part{i}.jsonl" for i in range(3)))
        self.assertEqual(len(expected), 3)
        self.assertEqual(self.lines(folder), expected)
        self.assertEqual(self.lines(f"{folder}/part?.jsonl"), expected)
        self.assertEqual(self.lines(f"{self.folder}/**/part*.jsonl"), expected)
        code, _, err = self.run_script(f"{folder}/*.csv", "-o", self.out, *self.COLUMNS)
        self.assertEqual(code, 2)
        self.assertIn("*.csv: matches no file", err)


class Cuts(Case):
    def test_chunks_predict_every_token_once(self):
        text = "The quick brown fox jumps over the lazy dog."
        whole = self.prepare({"text": text}, {"text": "short"})
        parts = self.prepare({"text": text}, {"text": "short"}, options=("--tokenizer", "bytes", "--chunk", "10"))
        self.assertEqual(len(whole), 2)
        self.assertEqual(parts[-1], whole[1])
        chunks = parts[:-1]
        self.assertTrue(all(2 <= len(part["input_ids"]) <= 10 for part in chunks))
        joined = chunks[0]["input_ids"] + [token for part in chunks[1:] for token in part["input_ids"][1:]]
        self.assertEqual(joined, whole[0]["input_ids"])
        targets = [label for part in chunks for label in part["labels"][1:]]
        self.assertEqual(targets, whole[0]["labels"][1:])

    def test_chunks_leave_prompts_alone(self):
        record = {"prompt": "a" * 30, "completion": "b" * 30}
        self.assertEqual(self.prepare(record, options=("--tokenizer", "bytes", "--chunk", "10")), self.prepare(record))
        code, _, err = self.run_script(self.write(record), "-o", self.out, "--tokenizer", "bytes", "--chunk", "10",
                                       "--max-seq-len", "9")
        self.assertEqual(code, 2)
        self.assertIn("--chunk 10 is more than --max-seq-len 9", err)

    @needs("jinja2")
    def test_conversations_are_cut_behind_a_turn(self):
        template = self.folder / "template.jinja"
        template.write_text(CHATML)
        options = ("--tokenizer", "bytes", "--chat-template", template)
        whole, = self.prepare({"messages": TALK}, options=options)
        first, = self.prepare({"messages": TALK[:3]}, options=options)
        end = len(first["input_ids"]) - 1  # without EOS
        for limit in (end, end + 1, len(whole["input_ids"]) - 2):
            cut, = self.prepare({"messages": TALK}, options=(*options, "--max-seq-len", limit, "--over-length", "turns"))
            self.assertEqual(cut["input_ids"], whole["input_ids"][:end])
            self.assertEqual(cut["labels"], whole["labels"][:end])
        code, out, _ = self.run_script(self.write({"messages": TALK}, {"messages": TALK[1:3]}), "-o", self.out, *options,
                                       "--max-seq-len", end - 1, "--over-length", "turns")
        self.assertEqual(code, 0)
        self.assertIn("1 dropped because the cut left no target", out)


class Workers(Case):
    @needs("jinja2")
    def test_workers_write_the_same_and_name_the_same_problems(self):
        template = self.folder / "template.jinja"
        template.write_text(CHATML)
        options = ("--tokenizer", "bytes", "--chat-template", template)
        records = [{"messages": [*TALK[1:4], {"role": "assistant", "content": f"It is {i}."}]} for i in range(2500)]
        expected = self.prepare(*records, options=options)
        self.assertEqual(self.prepare(*records, options=(*options, "--workers", "2")), expected)
        records[1700] = {"messages": "x"}
        source = self.write(*records)
        code, _, err = self.run_script(source, "-o", self.out, *options, "--workers", "2")
        self.assertEqual(code, 2)
        self.assertIn(f'{source}:1701: "messages" must be a list', err)


if __name__ == "__main__":
    unittest.main()
