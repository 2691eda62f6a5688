"""scripts/prepare_data.py: columns by the names that people give them, and what is printed of those that are not used."""
from __future__ import annotations

import json
import unittest

from prepare_case import CHATML, EOS, TALK, Case, ChatCase, needs


class PreferencePrompts(ChatCase):
    SIDES = {"chosen": "Rome", "rejected": "Paris"}

    def test_names_of_the_prompt(self) -> None:
        expected = [("Q?Rome", "Rome", "Q?Paris", "Paris")]
        for name in ("prompt", "question", "query", "input"):
            self.assertEqual(self.texts({name: "Q?", **self.SIDES}), expected)
        self.assertEqual(self.texts({"ask": "Q?", **self.SIDES}, options=("--tokenizer", "bytes", "--prompt-field", "ask")), expected)
        openai = {"input": "Q?", "preferred_output": "Rome", "non_preferred_output": "Paris"}
        lines = self.prepare(openai)
        self.assertEqual(bytes(lines[0]["chosen_input_ids"][1:-1]), b"Q?Rome")

    def test_instruction_and_input(self) -> None:
        for keys in ({"input": "1 2"}, {"input": ""}, {"input": None}, {}):
            record = {"instruction": "Add.", **keys, **self.SIDES}
            [(text, trained, _, _)] = self.texts(record)
            [sample] = self.prepare({"instruction": "Add.", **keys, "output": "Rome"})
            self.assertEqual((text, trained), (bytes(i for i in sample["input_ids"] if i < 256).decode(), "Rome"))

        self.assertEqual(self.texts({"instruction": "Add.", "context": "1 2", **self.SIDES}),
                         self.texts({"instruction": "Add.", "input": "1 2", **self.SIDES}))
        named = ("--tokenizer", "bytes", "--prompt-field", "instruction")  # that column, as it is
        self.assertEqual(self.texts({"instruction": "Add.", "input": "1 2", **self.SIDES}, options=named)[0][0], "Add.Rome")
        [sample] = self.prepare({"instruction": "Add.", "input": "1 2", "response": "3"}, options=(*named, "--completion-field", "response"))
        self.assertEqual(bytes(i for i in sample["input_ids"] if i < 256), b"Add.3")

    def test_no_prompt_is_refused_with_the_option(self) -> None:
        for record in (self.SIDES, {**self.SIDES, "ask": "Q?"}, {"chosen": "It is Rome.", "rejected": "It is Paris."},
                       {"chosen": [{"role": "assistant", "content": "a"}], "rejected": [{"role": "assistant", "content": "b"}]},
                       {**self.SIDES, "prompt": None}):
            self.assertRegex(self.refusal(self.write(record), "--tokenizer", "bytes"), "in.jsonl:1: no prompt .*--prompt-field")
        common = {"chosen": "It is Rome.", "rejected": "It is Paris."}
        self.assertEqual(self.texts(common, options=("--tokenizer", "bytes", "--prompt-field", "")),
                         [("It is Rome.", "Rome.", "It is Paris.", "Paris.")])

    def test_two_columns_that_may_be_the_prompt(self) -> None:
        record = {"prompt": "Translate.", "input": "ciao", **self.SIDES}
        self.assertIn('"prompt" and "input" may both be the prompt', self.refusal(self.write(record), "--tokenizer", "bytes"))
        self.assertEqual(self.texts({"prompt": "", "question": "Q?", **self.SIDES})[0][0], "Q?Rome")
        same = {"prompt": "Q? ", "question": "Q?", **self.SIDES}
        self.assertEqual(self.texts(same), [("Q? Rome", "Rome", "Q? Paris", "Paris")])

    def test_system_in_plain_text(self) -> None:
        record = {"system": "Be brief.", "question": "Q?", **self.SIDES}
        self.assertIn("--as-chat writes it as a message", self.refusal(self.write(record), "--tokenizer", "bytes"))
        where = ("--tokenizer", "bytes", "--prompt-template", r"{system}\n{prompt}\n")
        self.assertEqual(self.texts(record, options=where)[0][0], "Be brief.\nQ?\nRome")
        self.assertEqual(self.texts({"system": "Q?", **self.SIDES})[0][:2], ("Q?Rome", "Rome"))
        self.assertEqual(self.texts({"system": "", "question": "Q?", **self.SIDES})[0][0], "Q?Rome")

    @needs("jinja2")
    def test_as_conversations(self) -> None:
        options = (*self.template(CHATML), "--as-chat")
        messages = [TALK[0], TALK[1]]
        [expected] = self.texts({"prompt": messages, "chosen": "Rome", "rejected": "Paris"}, options=options)
        self.assertEqual(expected[1], "Rome<|im_end|>\n")
        self.assertIn("<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user\n2+2?", expected[0])
        answers = {"chosen": {"role": "assistant", "content": "Rome"}, "rejected": {"from": "gpt", "value": "Paris"}}
        whole = {side: [*messages, answer] for side, answer in answers.items()}
        for record in ({"system": "Be short.", "question": "2+2?", **self.SIDES},
                       {"system_prompt": "Be short.", "question": "2+2?", **self.SIDES},
                       {"conversations": [{"from": "system", "value": "Be short."}, {"from": "human", "value": "2+2?"}], **answers},
                       {"conversations": json.dumps(messages), **answers},
                       {"prompt": messages, **answers}, whole, {"prompt": messages, **whole}, {"prompt": "2+2?", **whole},
                       {"system": "Be short.", "chosen": whole["chosen"][1:], "rejected": whole["rejected"]},
                       {"input": {"messages": messages}, "preferred_output": [answers["chosen"]], "non_preferred_output": [answers["rejected"]]}):
            if "preferred_output" in record:
                line = self.prepare(record, options=options)[0]
                self.assertEqual(bytes(i for i in line["chosen_input_ids"] if i < 256).decode(), expected[0])
            else:
                self.assertEqual(self.texts(record, options=options), [expected], record)
        dialogue = {side: f"Human: hi\n\nAssistant: it {answer}" for side, answer in self.SIDES.items()}
        self.assertIn("dialogue in plain text; leave --as-chat out", self.chat_refusal(CHATML, dialogue, "--as-chat"))
        history = self.texts({"instruction": "2+2?", "history": [["a", "b"]], **self.SIDES}, options=options)[0][0]
        self.assertIn("user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\n2+2?", history)


class Labels(Case):
    def labels(self, *records: dict) -> list[bool]:
        return [line["label"] for line in self.prepare(*records)]

    def test_truth_in_all_spellings(self) -> None:
        for true, false in ((True, False), (1, 0), (1.0, 0.0), ("True", "False"), ("true", " FALSE "), ("1", "0")):
            for name in ("label", "kto_tag"):
                rows = [{"prompt": "q ", "completion": "c", name: value} for value in (true, false)]
                self.assertEqual(self.labels(*rows), [True, False])
        rows = [{"instruction": "q", "input": "", "output": "c", "kto_tag": value} for value in (True, False)]
        self.assertEqual(self.labels(*rows), [True, False])
        [line] = self.prepare({"question": "q ", "response": "c", "kto_tag": 1})
        self.assertEqual((line["label"], [i for i in line["labels"] if i != -100]), (True, [ord("c"), EOS]))

    def test_other_labels_are_refused(self) -> None:
        for value in (2, -1, 0.5, "good", [True], {}):
            err = self.refusal(self.write({"prompt": "q", "completion": "c", "label": value}), "--tokenizer", "bytes")
            self.assertRegex(err, 'in.jsonl:1: "label" is .*neither true nor false.*--format prompt-completion')
        [line] = self.prepare({"prompt": "q", "completion": "c", "label": "sports"},
                              options=("--tokenizer", "bytes", "--format", "prompt-completion"))
        self.assertNotIn("label", line)

    def printed(self, labels: list) -> str:
        rows = [{"prompt": "q", "completion": "c", "label": label} for label in labels]
        code, _, err = self.run_script(self.write(*rows), "-o", self.out, "--tokenizer", "bytes")
        self.assertEqual(code, 0)
        return err

    def test_files_of_one_label_or_sorted_by_it(self) -> None:
        self.assertIn("all 5 labels are true", self.printed([True] * 5))
        self.assertIn("all 5 labels are false", self.printed([0] * 5))
        self.assertIn("2 runs in 60 samples", self.printed([True] * 30 + [False] * 30))
        self.assertIn("5 runs in 50 samples", self.printed(([1] * 10 + [0] * 10) * 2 + [1] * 10))
        for mixed in ([1, 0], [1, 1, 0], [1, 0] * 30, [1, 1, 0, 0, 1, 0, 0, 1] * 6, [1] * 9 + [0]):
            self.assertEqual(self.printed(mixed), "")

    @needs("jinja2")
    def test_conversations(self) -> None:
        (self.folder / "t.jinja").write_text(CHATML)
        options = ("--tokenizer", "bytes", "--chat-template", self.folder / "t.jinja")
        expected = self.prepare({"prompt": TALK[:2], "completion": TALK[2:3], "label": True}, options=options)
        for record in ({"conversations": TALK[:3], "kto_tag": True}, {"messages": TALK[:3], "label": True},
                       {"system": TALK[0]["content"], "prompt": TALK[1:2], "completion": "4", "label": 1}):
            self.assertEqual(self.prepare(record, options=options), expected)


@needs("jinja2")
class Conversational(ChatCase):
    def test_prompt_and_completion_of_messages(self) -> None:
        expected = self.prepare({"messages": TALK[:3]}, options=self.template(CHATML))
        for record in ({"prompt": TALK[:2], "completion": TALK[2:3]}, {"prompt": TALK[:2], "completion": TALK[2]},
                       {"prompt": TALK[:2], "completion": "4"}, {"system": "Be short.", "prompt": "2+2?", "completion": TALK[2:3]}):
            self.assertEqual(self.prepare(record, options=self.template(CHATML)), expected)
        self.assertEqual(self.chat(CHATML, {"prompt": TALK[:4], "completion": TALK[4:]}), ["Yes, 4.<|im_end|>\n$"])
        self.assertEqual(self.chat(CHATML, {"prompt": TALK[:2], "completion": TALK[2:]}), ["4<|im_end|>\n|Yes, 4.<|im_end|>\n$"])
        self.assertIn("no assistant turn", self.chat_refusal(CHATML, {"prompt": TALK[:1], "completion": TALK[1:2]}))

    def test_system_beside_messages(self) -> None:
        text = self.text(CHATML, {"messages": TALK[1:3], "system": "Be short."})
        self.assertEqual(text, self.text(CHATML, {"messages": TALK[:3]}))
        self.assertEqual(text, self.text(CHATML, {"messages": TALK[:3], "system": "Be short."}))
        self.assertEqual(text, self.text(CHATML, {"instruction": "2+2?", "output": "4", "system": "Be short."}, ("--as-chat",)))
        self.assertIn("two system texts", self.chat_refusal(CHATML, {"messages": TALK[:3], "system": "Be long."}))
        self.assertIn('"system" is not a string', self.chat_refusal(CHATML, {"messages": TALK[:3], "system": ["Be long."]}))

    def test_variables_of_the_template(self) -> None:
        template = CHATML + "{% if quiet %}!{% endif %}"
        for value in ({"quiet": True}, '{"quiet": true}'):
            self.assertTrue(self.text(template, {"messages": TALK[:3], "chat_template_kwargs": value}).endswith("!"))
        self.assertIn("chat_template_kwargs", self.chat_refusal(template, {"messages": TALK[:3], "chat_template_kwargs": [1]}))

    def test_json_text_of_messages(self) -> None:
        self.assertEqual(self.text(CHATML, {"messages": json.dumps(TALK[:3])}), self.text(CHATML, {"messages": TALK[:3]}))

    def test_plain_text_has_no_place_for_them(self) -> None:
        for keys, words in (({"system": "s"}, "the system text has no place"), ({"history": [["a", "b"]]}, '"history"'),
                            ({"tools": [{"name": "f"}]}, '"tools" have no place')):
            for record in ({"instruction": "a", "output": "b"}, {"prompt": "a", "completion": "b"}):
                self.assertRegex(self.refusal(self.write({**record, **keys}), "--tokenizer", "bytes"), f"in.jsonl:1: .*{words}.*--as-chat")


class Printed(ChatCase):
    def printed(self, *records: dict, options: tuple = ("--tokenizer", "bytes")) -> str:
        code, _, err = self.run_script(self.write(*records), "-o", self.out, *options)
        self.assertEqual(code, 0, err)
        return err

    def test_columns_that_are_not_used(self) -> None:
        err = self.printed({"text": "a", "id": 1, "source": "x"}, {"text": "b", "id": 2, "source": None}, {"text": "c"})
        self.assertEqual(err, "prepare_data: note: not used: id (2 records), source (1 record)\n")
        self.assertIn("not used: question (1 record)", self.printed({"prompt": "a", "completion": "b", "question": "a"}))
        self.assertEqual(self.printed({"prompt": "a", "completion": "b", "score": float("nan"), "note": None}), "")

    @needs("jinja2")
    def test_keys_of_messages_that_are_not_used(self) -> None:
        parts = [{"type": "text", "text": "Q", "cache_control": 1}]
        record = {"messages": [{"role": "user", "content": parts, "name": "Bo", "value": "Q"}, {"role": "assistant", "content": "A"}],
                  "id": 3}
        err = self.printed(record, record, options=self.template(CHATML))
        self.assertEqual(err, "prepare_data: note: not used: id (2 records), messages[].content[].cache_control (2 records), "
                              "messages[].name (2 records), messages[].value (2 records)\n")
        for reads, is_printed in (("{% if messages[0].name %}{% endif %}", True), ("{{ messages[0].name }}", False)):
            err = self.printed({**record, "id": None}, options=self.template(CHATML + reads))
            self.assertEqual("messages[].name" in err, is_printed)
        self.assertIn("messages[].reasoning (1 record)", self.printed(
            {"messages": [{**TALK[1], "reasoning": "hm"}, TALK[2]]}, options=self.template(CHATML)))

    @needs("jinja2")
    def test_workers_tell_the_same(self) -> None:
        records = [{"text": str(i), "id": i} for i in range(1500)]
        self.assertEqual(self.printed(*records, options=("--tokenizer", "bytes", "--workers", 2)), self.printed(*records))

    @needs("jinja2")
    def test_answers_without_text_and_messages_behind_the_last_answer(self) -> None:
        blank = {"messages": [TALK[1], {"role": "assistant", "content": "  "}]}
        for record in (blank, {"prompt": TALK[:2], "completion": ""}):
            self.assertIn("1 record, first " + str(self.folder / "in.jsonl:1") + ": an answer has no text",
                          self.printed(record, options=self.template(CHATML)))
        self.assertIn("an answer has no text", self.printed({"prompt": "a", "completion": " "}))
        self.assertIn("messages behind the last assistant turn are left out", self.printed({"messages": TALK[:4]}, options=self.template(CHATML)))

    def test_pairs_of_equal_sides(self) -> None:
        self.assertIn("both sides of the pair are the same", self.printed({"prompt": "a", "chosen": "b", "rejected": "b"}))

    @needs("jinja2")
    def test_pairs_that_differ_before_their_last_turns(self) -> None:
        def side(*texts: str) -> list[dict[str, str]]:
            return [{"role": "assistant" if i % 2 else "user", "content": text} for i, text in enumerate(texts)]
        for rejected, differs in ((side("q", "c"), False), (side("p", "c"), True), (side("q", "a", "r", "c"), True)):
            err = self.printed({"chosen": side("q", "b"), "rejected": rejected}, options=self.template(CHATML))
            self.assertEqual("differ before their last turns" in err, differs, rejected)

    @needs("jinja2")
    def test_texts_beside_a_chat_template(self) -> None:
        for record in ({"prompt": "a", "completion": "b"}, {"instruction": "a", "output": "b"},
                       {"prompt": "a", "chosen": "b", "rejected": "c"}, {"prompt": "a", "completion": "b", "label": True}):
            self.assertIn("1 record, first " + str(self.folder / "in.jsonl:1") + ": the tokenizer has a chat template",
                          self.printed(record, options=self.template(CHATML)))
            self.assertNotIn("chat template", self.printed(record, options=(*self.template(CHATML), "--as-chat")))
            self.assertNotIn("chat template", self.printed(record))
        self.assertNotIn("chat template", self.printed({"text": "a"}, options=self.template(CHATML)))


class Tokenised(Case):
    def test_labels_that_are_shifted_already(self) -> None:
        shifted = {"input_ids": [1, 9, 8, 7], "labels": [9, 8, 7, -100]}
        self.assertIn("in.jsonl:1: already tokenised, and its labels are shifted by one", self.refusal(self.write(shifted), "--tokenizer", "bytes"))
        masked = {"input_ids": [1, 9, 8, 7], "labels": [-100, 8, 7, -100]}
        self.assertIn("shifted by one", self.refusal(self.write(masked), "--tokenizer", "bytes"))
        for good in ([1, 9, 8, 7], [-100, -100, 8, 7], [-100] * 4, None, "x", [None], [[1]], {"a": 1}):
            err = self.refusal(self.write({"input_ids": [1, 9, 8, 7], "labels": good}), "--tokenizer", "bytes")
            self.assertIn("in.jsonl:1: already tokenised; give this file to the job as it is", err)
        same = {"input_ids": [5, 5, 5], "labels": [5, 5, 5]}
        self.assertNotIn("shifted", self.refusal(self.write(same), "--tokenizer", "bytes"))


if __name__ == "__main__":
    unittest.main()
