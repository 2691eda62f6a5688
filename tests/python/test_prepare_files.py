"""scripts/prepare_data.py: files that are damaged, odd or of Hugging Face datasets, each problem one line with its place;
and what a tokenizer directory says beside tokenizer.json."""
from __future__ import annotations

import bz2
import gzip
import json
import lzma
import unittest

from prepare_case import TALK, Case, needs

BYTES = ("--tokenizer", "bytes")


class Damaged(Case):
    def file(self, name: str, content: bytes | str):
        path = self.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def test_json_that_is_not_read(self) -> None:
        deep = "[" * 100000 + "]" * 100000
        for number, (line, words) in enumerate([('{"text": "a", "x": %s}' % deep, "nested too deeply"),
                                                ('{"text": "a", "x": %s}' % ("1" * 5000), "5000 digits"),
                                                ('{"text": "a"} x', "not JSON: Extra data at column 15"),
                                                ('{"text": [null]}', '"text" is not a string'),
                                                ('{"messages": [{"role": "user", "content": [{"type": "text", "text": null}]}]}', "message 1"),
                                                ('{"text": "a", "text": "b"}', 'names "text" twice'),
                                                ("[1]", "not a JSON object")]):
            path = self.file(f"{number}.jsonl", '{"text": "good"}\n' + line + "\n")
            err = self.refusal(path, *BYTES)
            self.assertEqual(err.count("\n"), 1)
            self.assertRegex(err, rf"{number}.jsonl:2: .*{words}")
        for name, content in (("deep.json", f"[{deep}]"), ("long.json", '[{"text": "a", "x": %s}]' % ("1" * 5000)), ("text.json", "hm"),
                              ("lines.json", '{"text": "a"}\n{"text": "b"}\n'), ("object.json", '{"data": []}'), ("empty.json", "")):
            self.assertRegex(self.refusal(self.file(name, content), *BYTES), f"{name}: .*ending .jsonl")

    def test_text_that_is_not_utf8(self) -> None:
        for name, content in (("a.jsonl", b'{"text": "\xff\xfe"}\n'), ("a.json", b'[{"text": "\xff"}]'), ("a.csv", b"text\n\xff\xfe\n")):
            self.assertRegex(self.refusal(self.file(name, content), *BYTES), f"{name}.*not UTF-8 text")
        self.assertEqual(len(self.prepare('\ufeff{"text": "a"}')), 1)

    def test_compressed_files(self) -> None:
        lines = b'{"text": "a"}\n' * 50
        for packed, pack in (("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)):
            code, out, err = self.run_script(self.file(f"a.jsonl.{packed}", pack(lines)), "-o", self.out, *BYTES)
            self.assertEqual((code, err), (0, ""))
            self.assertEqual(len(self.out.read_text().splitlines()), 50)
            self.assertRegex(self.refusal(self.file(f"b.jsonl.{packed}", pack(lines)[:-5]), *BYTES), f"b.jsonl.{packed}: ")
            self.assertRegex(self.refusal(self.file(f"c.jsonl.{packed}", b"no such file"), *BYTES), f"c.jsonl.{packed}: ")
        self.assertIn("decompress it", self.refusal(self.file("a.jsonl.zst", b"x"), *BYTES))

    def test_control_characters_are_not_passed_on(self) -> None:
        """To the terminal; data keep theirs."""
        samples = self.prepare({"prompt": "a\x1b[31m", "completion": "b\x07"})
        self.assertIn(27, samples[0]["input_ids"])
        path = self.write({"prompt": "a\x1b[31m", "completion": "b\u202e\x9bc\u00e9"})
        code, out, _ = self.run_script(path, "--show", 1, "--tokenizer", "bytes")
        self.assertEqual(code, 0)
        self.assertIn("a\\x1b[31m", out)
        self.assertIn("b\\u202e\\x9bc\u00e9", out)
        code, _, err = self.run_script(self.folder / "no\x1b[31m.jsonl", "-o", self.out, "--tokenizer", "bytes")
        self.assertEqual(code, 2)
        self.assertIn("no\\x1b[31m.jsonl", err)
        self.assertNotIn("\x1b", out + err)

    def test_csv(self) -> None:
        self.assertIn('a.csv:1: names the column "text" twice', self.refusal(self.file("a.csv", "text,text\na,b\n"), *BYTES))
        code, _, err = self.run_script(self.file("b.csv", "text\n" + "x" * 200000 + "\n"), "-o", self.out, *BYTES)
        self.assertEqual((code, err), (0, ""))

    def test_empty_files(self) -> None:
        for name in ("a.jsonl", "a.csv", "a.tsv", "a.jsonl.gz"):
            self.assertIn("no samples in the input", self.refusal(self.file(name, ""), *BYTES))

    def test_folders_with_files_of_several_splits(self) -> None:
        for name in ("train-0.jsonl", "train-1.jsonl", "trainer.jsonl", "test.jsonl"):
            self.file(name, '{"text": "%s"}' % name)
        self.out = self.folder / "made" / "out.jsonl"
        self.assertRegex(self.refusal(self.folder, *BYTES), "has files called test and train; give those that are to be trained")
        self.assertEqual(self.run_script(f"{self.folder}/train-*", "-o", self.out, *BYTES)[0], 0)
        self.assertEqual(len(self.out.read_text().splitlines()), 2)

    def test_output_that_is_input(self) -> None:
        path = self.write({"text": "a"})
        code, _, err = self.run_script(path, "-o", self.folder / ".." / self.folder.name / "in.jsonl", *BYTES)
        self.assertEqual((code, path.read_text()), (2, '{"text": "a"}\n'))
        self.assertIn("in.jsonl: is input and output", err)

    @needs("jinja2")
    def test_what_nobody_thought_of_is_reported_with_its_place(self) -> None:
        from unittest import mock
        with mock.patch("dataprep.formats.detect", side_effect=KeyError("hm")):
            self.assertIn("in.jsonl:1: cannot be rendered: KeyError", self.refusal(self.write({"text": "a"}), *BYTES))


@needs("pyarrow")
class Tables(Case):
    def parquet(self, name: str, **columns: object):
        import pyarrow
        import pyarrow.parquet
        path = self.folder / name
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
        return path

    def test_values_that_are_not_read(self) -> None:
        import pyarrow
        offsets, data = pyarrow.py_buffer(b"\0\0\0\0\1\0\0\0\3\0\0\0"), pyarrow.py_buffer(b"a\xff\xfe")
        broken = pyarrow.Array.from_buffers(pyarrow.string(), 2, [None, offsets, data])
        self.assertIn('a.parquet:#2: "text": not UTF-8 text', self.refusal(self.parquet("a.parquet", text=broken), *BYTES))
        late = pyarrow.array([2**62], pyarrow.timestamp("us"))
        self.assertIn('b.parquet:#1: "t": cannot be read', self.refusal(self.parquet("b.parquet", text=["a"], t=late), *BYTES))
        self.assertIn('c.parquet:#1: "text" is not a string', self.refusal(self.parquet("c.parquet", text=[b"a"]), *BYTES))

    def test_tokens(self) -> None:
        path = self.parquet("a.parquet", input_ids=[[1, 2], [3]], labels=[[1, 2], [3]], attention_mask=[[1, 1], [1]])
        err = self.refusal(path, *BYTES)
        self.assertEqual(err.count("a.parquet:#"), 2)
        self.assertIn("a.parquet:#1: already tokenised; a job takes such data as .jsonl lines", err)

    @needs("jinja2")
    def test_columns_of_json(self) -> None:
        import pyarrow
        if not hasattr(pyarrow, "json_"):
            self.skipTest("this pyarrow has no type arrow.json")
        (self.folder / "t.jinja").write_text("{{ tools | tojson }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}")
        options = ("--chat-template", self.folder / "t.jinja")
        tools = [{"name": "weather", "parameters": {"type": "object", "default": None}}]
        expected = self.prepare({"messages": TALK[:3], "tools": tools}, options=(*BYTES, *options))
        for name, columns in (("whole", {"tools": pyarrow.array([json.dumps(tools)], pyarrow.json_())}),
                              ("list", {"tools": pyarrow.ListArray.from_arrays([0, 1], pyarrow.array([json.dumps(tools[0])], pyarrow.json_()))}),
                              ("text", {"tools": [json.dumps(tools)]})):
            path = self.parquet(f"{name}.parquet", messages=[TALK[:3]], **columns)
            code, _, err = self.run_script(path, "-o", self.out, *BYTES, *options)
            self.assertEqual((code, err), (0, ""))
            self.assertEqual([json.loads(line) for line in self.out.read_text().splitlines()], expected, name)

    def dataset(self, folder, *texts: str) -> None:
        """As save_to_disk writes it, with what map() and select() leave there."""
        import pyarrow
        folder.mkdir(parents=True)
        for name, rows in (("data-00000-of-00001.arrow", texts), ("cache-0123.arrow", ["cached"]), ("indices-45.arrow", ["index"])):
            table = pyarrow.table({"text": rows})
            with pyarrow.ipc.new_stream(str(folder / name), table.schema) as stream:
                stream.write_table(table)
        (folder / "dataset_info.json").write_text("{}")
        (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))

    def test_folders_of_save_to_disk(self) -> None:
        self.dataset(self.folder / "disk", "a", "b")
        for name in (self.folder / "disk", f"{self.folder}/disk/*.arrow", f"{self.folder}/disk/*"):
            code, _, err = self.run_script(name, "-o", self.out, *BYTES)
            self.assertEqual(code, 0, err)
            self.assertEqual(len(self.out.read_text().splitlines()), 2)
            self.assertRegex(err, "left out, as no data of their own: .*cache-0123.arrow")
        (self.folder / "disk" / "state.json").unlink()  # as in the cache of load_dataset
        self.assertEqual(self.run_script(self.folder / "disk", "-o", self.out, *BYTES)[0], 0)
        self.assertEqual(len(self.out.read_text().splitlines()), 2)
        code, _, err = self.run_script(self.folder / "disk" / "cache-0123.arrow", "-o", self.out, *BYTES)
        self.assertEqual((code, err), (0, ""))  # by its own name

    def test_folders_of_several_splits(self) -> None:
        self.dataset(self.folder / "disk" / "train", "a")
        (self.folder / "disk" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
        self.assertRegex(self.refusal(self.folder / "disk", *BYTES), "disk: holds the splits .*disk/train, .*disk/test; give the folder of one")


@needs("tokenizers")
class TokenizerFiles(Case):
    """Tokens that stand beside tokenizer.json, as transformers 5 reads them."""

    def setUp(self) -> None:
        super().setUp()
        self.tokenizer = self.folder / "tokenizer"
        code, _, err = self.run_script(self.write({"text": "the weather is fine"}), "--train-tokenizer", 270, self.tokenizer)
        self.assertEqual(code, 0, err)
        self.size = len(json.loads((self.tokenizer / "tokenizer.json").read_text())["model"]["vocab"])
        self.config = json.loads((self.tokenizer / "tokenizer_config.json").read_text())

    def place(self, name: str, content: dict) -> None:
        (self.tokenizer / name).write_text(json.dumps(content))

    def change(self, **keys: object) -> None:
        """Of tokenizer.json."""
        path = self.tokenizer / "tokenizer.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))

    def ids(self, text: str) -> list[int]:
        return self.prepare({"text": text}, options=("--tokenizer", self.tokenizer))[0]["input_ids"]

    def reference(self, text: str) -> list[int]:
        from transformers import AutoTokenizer
        return AutoTokenizer.from_pretrained(self.tokenizer)(text)["input_ids"]

    CASES = ({"added_tokens.json": {"<tool>": 0}}, {"tokenizer_config.json": {"added_tokens_decoder": {"0": {"content": "<tool>", "special": True}}}},
             {"tokenizer_config.json": {"additional_special_tokens": ["<tool>"]}}, {"tokenizer_config.json": {"extra_special_tokens": {"tool": "<tool>"}}},
             {"tokenizer_config.json": {"pad_token": "<tool>"}}, {"tokenizer_config.json": {"eos_token": "<tool>"}},
             {"tokenizer_config.json": {"pad_token": {"__type": "AddedToken", "content": "<tool>", "lstrip": True, "rstrip": True,
                                                     "single_word": False, "normalized": False}}}, {"special_tokens_map.json": {"additional_special_tokens": ["<tool>"]}})

    def numbered(self, content: dict) -> dict:
        """With the number of the first token behind the vocabulary."""
        content = {key: self.size if value == 0 else value for key, value in content.items()}
        decoder = content.get("added_tokens_decoder")
        return {**content, "added_tokens_decoder": {str(self.size): decoder["0"]}} if decoder else content

    def lay(self, files: dict) -> None:
        for name in ("added_tokens.json", "special_tokens_map.json"):
            (self.tokenizer / name).unlink(missing_ok=True)
        self.place("tokenizer_config.json", self.config)
        for name, content in files.items():
            content = self.numbered(content)
            self.place(name, {**self.config, **content} if name == "tokenizer_config.json" else content)

    def test_tokens_that_other_files_name(self) -> None:
        for files in self.CASES:
            self.lay(files)
            self.assertIn(self.size, self.ids("is <tool> fine"), files)
        self.lay({})
        self.assertNotIn(self.size, self.ids("is <tool> fine"))

    def test_a_piece_of_the_vocabulary_that_is_named(self) -> None:
        self.lay({"tokenizer_config.json": {"pad_token": "e"}})
        self.assertEqual(self.library_tokens("wer"), ["w", "e", "r"])

    def library_tokens(self, text: str) -> list[str]:
        from tokenizers import Tokenizer
        library = Tokenizer.from_file(str(self.tokenizer / "tokenizer.json"))
        return [library.id_to_token(i) for i in self.ids(text)[:-1]]

    @needs("transformers")
    def test_tokens_agree_with_transformers(self) -> None:
        for files in (*self.CASES, {"tokenizer_config.json": {"pad_token": "e"}}, {}):
            self.lay(files)
            self.assertEqual(self.ids("is <tool> fine")[:-1], self.reference("is <tool> fine"), files)

    def test_numbers_that_contradict_tokenizer_json(self) -> None:
        for name, content in (("added_tokens.json", {"<tool>": self.size + 5}), ("added_tokens.json", {"<tool>": 3}),
                              ("tokenizer_config.json", {**self.config, "added_tokens_decoder": {"2": {"content": "<tool>"}}}),
                              ("tokenizer_config.json", {**self.config, "added_tokens_decoder": {"x": {"content": "<tool>"}}}),
                              ("tokenizer_config.json", {**self.config, "added_tokens_decoder": {"2": 3}}),
                              ("tokenizer_config.json", {**self.config, "added_tokens_decoder": [3]})):
            self.lay({})
            self.place(name, content)
            self.assertIn(f"{self.tokenizer / name}: ", self.refusal(self.write({"text": "a"}), "--tokenizer", self.tokenizer))

    def test_files_that_are_no_objects(self) -> None:
        for name in ("tokenizer_config.json", "added_tokens.json", "special_tokens_map.json"):
            self.lay({})
            self.place(name, [1])
            self.assertIn(f"{name}: must hold a JSON object", self.refusal(self.write({"text": "a"}), "--tokenizer", self.tokenizer))

    BOS_FIRST = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                 "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                 "special_tokens": {"<|im_start|>": {"id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"]}}}

    def test_tokenizer_json_says_which_tokens_are_added(self) -> None:
        plain = self.ids("fine")
        self.config |= {"add_bos_token": True, "bos_token": "<|im_start|>"}
        self.lay({})
        self.assertEqual(self.ids("fine"), plain)
        code, _, err = self.run_script(self.folder / "in.jsonl", "-o", self.out, "--tokenizer", self.tokenizer)
        self.assertEqual(code, 0)
        self.assertIn("add_bos_token in tokenizer_config.json is without effect, as in transformers 5", err)
        self.change(post_processor=self.BOS_FIRST)
        self.assertEqual(self.ids("fine"), [1, *plain])
        code, _, err = self.run_script(self.folder / "in.jsonl", "-o", self.out, "--tokenizer", self.tokenizer)
        self.assertEqual((code, err), (0, ""))

    def test_bos_and_eos_are_there_once(self) -> None:
        self.change(post_processor=self.BOS_FIRST)
        plain = self.ids("fine")
        code, _, err = self.run_script(self.write({"text": "<|im_start|>fine"}), "-o", self.out, "--tokenizer", self.tokenizer)
        [sample] = [json.loads(line) for line in self.out.read_text().splitlines()]
        self.assertEqual((code, sample["input_ids"], sample["labels"][0]), (0, plain, -100))
        self.assertIn("in.jsonl:1: the text has the BOS that the tokenizer adds", err)
        last = json.loads(json.dumps(self.BOS_FIRST).replace("<|im_start|>", "<|endoftext|>").replace("[1]", "[0]"))
        last["single"].reverse()
        self.change(post_processor=last)
        self.assertEqual(self.ids("fine<|endoftext|>"), self.ids("fine"))
        self.assertEqual(self.ids("fine").count(0), 1)


if __name__ == "__main__":
    unittest.main()
