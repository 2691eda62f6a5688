"""scripts/prepare_data.py: what chat templates make of conversations, and what is trained of them."""
from __future__ import annotations

import json
import unittest
from unittest import mock

from prepare_case import CHATML, EOS, TALK, ChatCase, needs


@needs("jinja2")
class ChatWithBytes(ChatCase):
    def test_only_assistant_turns_are_trained(self) -> None:
        trained = self.chat(CHATML, {"messages": TALK})
        self.assertEqual(trained, ["4<|im_end|>\n|Yes, 4.<|im_end|>\n$"])

    def test_sharegpt_and_alpaca_and_columns_as_chat(self) -> None:
        sharegpt = {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]}
        alpaca = {"instruction": "Hi", "output": "Hello", "history": [["a", "b"]]}
        trained = self.chat(CHATML, sharegpt, alpaca, {"prompt": "Hi", "completion": "Hello"}, options=("--as-chat",))
        self.assertEqual(trained, ["Hello<|im_end|>\n$", "b<|im_end|>\n|Hello<|im_end|>\n$", "Hello<|im_end|>\n$"])

    def test_trailing_user_turn_is_left_out(self) -> None:
        trained = self.chat(CHATML, {"messages": TALK + [{"role": "user", "content": "Bye"}]})
        self.assertEqual(trained, ["4<|im_end|>\n|Yes, 4.<|im_end|>\n$"])

    def test_template_that_rewrites_earlier_turns_gives_a_sample_per_turn(self) -> None:
        rewriting = ("{% for m in messages %}{{ m.role[0] }}:{% if m.role == 'assistant' and not loop.last %}"
                     "{{ m.content.split('/')[-1] }}{% else %}{{ m.content }}{% endif %};{% endfor %}"
                     "{% if add_generation_prompt %}a:{% endif %}")
        talk = [{"role": "user", "content": "1"}, {"role": "assistant", "content": "think/one"},
                {"role": "user", "content": "2"}, {"role": "assistant", "content": "hm/two"}]
        self.assertEqual(self.chat(rewriting, {"messages": talk}), ["think/one;$", "hm/two;$"])

    def test_template_without_generation_prompt(self) -> None:
        plain = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
        self.assertEqual(self.chat(plain, {"messages": TALK[1:3]}), ["4\n$"])
        thinking = ("{% for m in messages %}[{{ m.role }}] {% if m.thinking %}({{ m.thinking }}) {% endif %}{{ m.content }}"
                    "{% for c in m.tool_calls or [] %}<{{ c.function.name }}>{% endfor %}\n{% endfor %}")
        for message, trained in (({"content": "X4"}, "X4"), ({"content": "4", "reasoning": "Xhm"}, "(Xhm) 4"), ({"content": "  "}, "  "),
                                 ({"tool_calls": [call({})]}, "<weather>"), ({"content": "so", "tool_calls": [call({})]}, "so<weather>")):
            self.assertEqual(self.chat(thinking, talk({"role": "assistant", **message})), [trained + "$"])

    def test_generation_prompt_with_more_than_the_turn_has(self) -> None:
        thinking = CHATML.replace("assistant\n{% endif", "assistant\n<think>\n{% endif")
        self.assertEqual(self.chat(thinking, {"messages": TALK[1:3]}), ["4<|im_end|>\n$"])

    def test_helpers_of_hugging_face(self) -> None:
        template = ("{{ bos_token }}{% for m in messages %}{% if m.role == 'tool' %}{% continue %}{% endif %}"
                    "{{ m.role }} {{ m.content | tojson }}{{ strftime_now('%%') }}{% endfor %}")
        self.assertEqual(self.chat(template, {"messages": [{"role": "user", "content": "ö"},
                                                           {"role": "assistant", "content": "x"}]}), ["x\"%$"])

    def test_content_in_parts(self) -> None:
        parts = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                 {"role": "assistant", "content": [{"type": "text", "text": "c"}]}]
        self.assertEqual(self.chat(CHATML, {"messages": parts}), ["c<|im_end|>\n$"])

    def test_template_refusal_and_syntax_are_reported_with_their_place(self) -> None:
        file = self.folder / "t.jinja"
        path = self.write({"messages": TALK[1:3]})
        for source, words in [("{{ raise_exception('roles must alternate') }}", "in.jsonl:1: .*roles must alternate"),
                              ("{% for %}", "t.jinja: "), ("{{ ''.__class__.__mro__ }}", "in.jsonl:1: .*unsafe")]:
            file.write_text(source)
            code, _, err = self.run_script(path, "-o", self.out, "--tokenizer", "bytes", "--chat-template", file)
            self.assertEqual(code, 2)
            self.assertRegex(err, words)

    def test_null_content_only_where_tool_calls_are_written(self) -> None:
        call = {"role": "assistant", "content": None,
                "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"a": None}}}]}
        tools = CHATML.replace("{{ m.content }}", "{{ m.content or '' }}{% for c in m.tool_calls %}"
                               "{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}")
        self.assertEqual(self.chat(tools, {"messages": [TALK[1], call, *TALK[3:]]}),
                         ['add{"a": null}<|im_end|>\n|Yes, 4.<|im_end|>\n$'])
        without = tools.replace(" or ''", "")  # null keys are left out, as transformers 5 does
        self.assertEqual(self.chat(without, {"messages": [TALK[1], call]}), ['add{"a": null}<|im_end|>\n$'])
        for template, turn in [(CHATML, {"role": "assistant"}), (CHATML, call), (tools, {**call, "tool_calls": []})]:
            file = self.folder / "t.jinja"
            file.write_text(template)
            path = self.write({"messages": [*TALK, TALK[1], turn]})
            code, _, err = self.run_script(path, "--show", 1, "--tokenizer", "bytes", "--chat-template", file)
            self.assertEqual(code, 2)
            self.assertIn(f"{path}:1: message 7 (assistant) has no content", err)

    def test_train_on(self) -> None:
        talk = {"messages": TALK}
        self.assertEqual(self.chat(CHATML, talk, options=("--train-on", "last-turn")), ["Yes, 4.<|im_end|>\n$"])
        [whole] = self.chat(CHATML, talk, options=("--train-on", "all"))
        self.assertTrue(whole.startswith("<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user"))
        self.assertTrue(whole.endswith("Yes, 4.<|im_end|>\n$"))
        self.assertEqual(whole.count("|im_start|"), 5)
        record = {"prompt": "Hi", "completion": "Hello"}
        for train_on, trained in (("assistant", "Hello$"), ("last-turn", "Hello$"), ("all", "HiHello$")):
            self.assertEqual(self.chat(CHATML, record, options=("--train-on", train_on)), [trained])
        code, _, err = self.run_script(self.write({"prompt": "a", "chosen": "b", "rejected": "c"}), "-o", self.out,
                                       "--tokenizer", "bytes", "--train-on", "all")
        self.assertEqual(code, 2)
        self.assertIn("in.jsonl:1: a preference compares completions", err)

    def test_weights_of_messages(self) -> None:
        def weighed(first, last, key="weight"):
            return {"messages": [*TALK[:2], {**TALK[2], key: first}, TALK[3], {**TALK[4], key: last}]}
        for key, off, on in (("weight", 0, 1), ("training", False, True)):
            self.assertEqual(self.chat(CHATML, weighed(off, on, key)), ["Yes, 4.<|im_end|>\n$"])
            self.assertEqual(self.chat(CHATML, weighed(on, off, key)), ["4<|im_end|>\n"])
            self.assertNotIn("weights", self.out.read_text())
        sharegpt = {"conversations": [{"from": "human", "value": "Hi", "weight": 0}, {"from": "gpt", "value": "A", "weight": 0},
                                      {"from": "human", "value": "Hi"}, {"from": "gpt", "value": "B"}]}
        self.assertEqual(self.chat(CHATML, sharegpt), ["B<|im_end|>\n$"])
        self.assertEqual(self.chat(CHATML, weighed(0.25, 2)), ["4<|im_end|>\n|Yes, 4.<|im_end|>\n$"])
        [sample] = [json.loads(line) for line in self.out.read_text().splitlines()]
        parts: dict[float, str] = {0: "", 0.25: "", 2: ""}
        for token, label, weight in zip(sample["input_ids"], sample["labels"], sample["weights"], strict=True):
            self.assertEqual(weight > 0, label != -100)
            parts[weight] += chr(token) if token < 256 else "$"
        self.assertEqual((parts[0.25], parts[2]), ("4<|im_end|>\n", "Yes, 4.<|im_end|>\n$"))

    def test_show_tells_weights(self) -> None:
        file = self.folder / "t.jinja"
        file.write_text(CHATML)
        talk = [TALK[1], {**TALK[2], "weight": 0.25}, TALK[3], TALK[4]]
        code, shown, err = self.run_script(self.write({"messages": talk}), "--show", 1, "--tokenizer", "bytes",
                                           "--chat-template", file)
        self.assertEqual(code, 0, err)
        self.assertIn("assistant\n[[4<|im_end|>\n]](x0.25)<|im_start|>user", shown)
        self.assertIn("assistant\n[[Yes, 4.<|im_end|>\n<EOS>]]", shown)

    def test_bad_weights(self) -> None:
        file = self.folder / "t.jinja"
        file.write_text(CHATML)
        for message, words in [({**TALK[2], "weight": -1}, "message 2 (assistant) has the weight -1"),
                               ({**TALK[2], "weight": "1"}, "message 2 (assistant) has the weight '1'"),
                               ({**TALK[2], "weight": float("nan")}, "message 2 (assistant) has the weight nan"),
                               ({**TALK[2], "weight": 0}, "every assistant turn has the weight 0"),
                               ({**TALK[2], "weight": 1, "training": True}, 'message 2 (assistant) has both "weight" and "training"')]:
            code, _, err = self.run_script(self.write({"messages": [TALK[1], message]}), "-o", self.out, "--tokenizer",
                                           "bytes", "--chat-template", file)
            self.assertEqual(code, 2)
            self.assertIn(f"in.jsonl:1: {words}", err)
        user = {"messages": [{**TALK[1], "weight": 1}, TALK[2]]}
        for record, options, words in [(user, (), "only assistant turns are trained"),
                                       ({"messages": [TALK[1], {**TALK[2], "weight": 1}]}, ("--train-on", "all"),
                                        "--train-on all ignores"),
                                       ({"chosen": [TALK[1], {**TALK[2], "weight": 1}], "rejected": TALK[1:3]}, (),
                                        'messages of a preference have no "weight"')]:
            code, _, err = self.run_script(self.write(record), "-o", self.out, "--tokenizer", "bytes", "--chat-template",
                                           file, *options)
            self.assertEqual(code, 2)
            self.assertIn(words, err)

    def test_thinking(self) -> None:
        def talk(*answers):
            return {"messages": [m for a in answers for m in ({"role": "user", "content": "2+2? <think>"},
                                                              {"role": "assistant", "content": a})]}
        thought, empty = "<think>\nhm, </ think>\n</think>\n\n4", "<think>\n\n</think>\n\n5"
        for thinking, trained in [("train", f"{thought}<|im_end|>\n|{empty}<|im_end|>\n$"),
                                  ("mask", "4<|im_end|>\n|5<|im_end|>\n$"),
                                  ("mask-empty", f"{thought}<|im_end|>\n|5<|im_end|>\n$")]:
            self.assertEqual(self.chat(CHATML, talk(thought, empty), options=("--thinking", thinking)), [trained])
        opened = CHATML.replace("assistant\n{% endif", "assistant\n<think>\n{% endif")
        self.assertEqual(self.chat(opened, talk(thought), options=("--thinking", "mask")), ["4<|im_end|>\n$"])
        record = {"prompt": "2+2?", "completion": "a<think>b</think>c<think>d</think>e"}
        self.assertEqual(self.chat(CHATML, record, options=("--thinking", "mask")), ["a|c|e$"])
        pair = self.prepare({"prompt": "p", "chosen": "<think>b</think> c", "rejected": "d"},
                            options=("--tokenizer", "bytes", "--thinking", "mask"))[0]
        self.assertEqual([i for i in pair["chosen_labels"] if i != -100], [ord("c"), EOS])

    def test_no_assistant_turn(self) -> None:
        file = self.folder / "t.jinja"
        file.write_text(CHATML)
        code, _, err = self.run_script(self.write({"messages": TALK[:2]}), "-o", self.out, "--tokenizer", "bytes",
                                       "--chat-template", file)
        self.assertEqual(code, 2)
        self.assertIn("no assistant turn", err)


# As templates of Qwen3's make: thinking is written in the last turn alone.
QWEN3 = ("{% for m in messages %}{% if m.role == 'assistant' and loop.last %}<|im_start|>assistant\n<think>\n"
         "{{ m.reasoning_content }}\n</think>\n\n{{ m.content }}<|im_end|>\n{% else %}<|im_start|>{{ m.role }}\n"
         "{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
# Several turns of an assistant in a row are one.
MERGING = ("{% for m in messages %}{% if loop.first or messages[loop.index0 - 1].role != m.role %}<{{ m.role }}>{% endif %}"
           "{{ m.content }}{% if loop.last or messages[loop.index0 + 1].role != m.role %}<end>{% endif %}{% endfor %}"
           "{% if add_generation_prompt %}<assistant>{% endif %}")
MARKED = ("{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' and (loop.last or not last_alone) %}"
          "{% generation %}{{ m.content }};{% endgeneration %}{% else %}{{ m.content }};{% endif %}{% endfor %}"
          "{% if add_generation_prompt %}<assistant>{% endif %}")
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
WITH_TOOLS = ("{% if tools %}<tools>{% for t in tools %}{{ t | tojson }}{% endfor %}{% endif %}{% for m in messages %}<{{ m.role }}>"
              "{{ m.content }}{% for c in m.tool_calls or [] %}[{{ c.function.name }} {{ c.function.arguments | tojson }}]"
              "{% endfor %};{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}")


def call(arguments: object, name: str = "weather") -> dict:
    return {"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}


def talk(*answers: object, **keys: object) -> dict:
    """A question before each answer; an answer that is no text is a message."""
    messages = []
    for answer in answers:
        messages += [{"role": "user", "content": "Q"}, answer if isinstance(answer, dict) else {"role": "assistant", "content": answer}]
    return {"messages": messages, **keys}


@needs("jinja2")
class TurnsInARow(ChatCase):
    def test_the_second_turn_alone_is_its_own(self) -> None:
        user, first, second = TALK[1], {"role": "assistant", "content": "b"}, {"role": "assistant", "content": "c"}
        for messages in ([user, first, second], [user, first, second, second], [*TALK[:3], first, second]):
            trained = self.chat(QWEN3, {"messages": messages})
            self.assertEqual(trained[-2:], [f"<think>\n\n</think>\n\n{text}<|im_end|>\n$" for text in
                                            (messages[-2]["content"], messages[-1]["content"])])
        pair = self.texts({"prompt": [user, first], "chosen": [second], "rejected": [first]}, options=self.template(QWEN3))[0]
        self.assertEqual((pair[1], pair[3]), tuple(f"<think>\n\n</think>\n\n{text}<|im_end|>\n" for text in "cb"))

    def test_turns_that_the_template_joins(self) -> None:
        messages = [TALK[1], {"role": "assistant", "content": "one."}, {"role": "assistant", "content": "Xtwo."}]
        self.assertEqual(self.chat(MERGING, {"messages": messages}), ["one.<end>$", "Xtwo.<end>$"])


@needs("jinja2")
class Marks(ChatCase):
    def test_marks_of_the_template_say_what_is_trained(self) -> None:
        record = talk("a", "b")
        self.assertEqual(self.chat(MARKED, record), ["a;|b;$"])
        self.assertEqual(self.chat(MARKED, {**record, "chat_template_kwargs": {"last_alone": True}}), ["b;$"])
        self.assertEqual(self.chat(MARKED, record, options=("--train-on", "last-turn")), ["b;$"])
        self.assertEqual(self.chat(MARKED, record, options=("--train-on", "all")), ["<user>Q;<assistant>a;<user>Q;<assistant>b;$"])
        weighed = talk({"role": "assistant", "content": "a", "weight": 0}, "b")
        self.assertEqual(self.chat(MARKED, weighed), ["b;$"])
        halves = {"prompt": record["messages"][:3], "completion": record["messages"][3:]}
        self.assertEqual(self.chat(MARKED, halves), ["b;$"])

    def test_marks_that_mark_nothing(self) -> None:
        template = MARKED.replace("m.role == 'assistant'", "m.role == 'model'")
        self.assertIn("marks nothing of this conversation", self.chat_refusal(template, talk("a")))

    @needs("transformers")
    def test_agrees_with_transformers(self) -> None:
        from transformers.utils.chat_template_utils import render_jinja_template
        messages = talk("a", "b")["messages"]
        [text], [marks] = render_jinja_template([messages], chat_template=MARKED, return_assistant_tokens_mask=True)
        self.assertEqual(self.text(MARKED, {"messages": messages}), text)
        self.assertEqual(self.chat(MARKED, {"messages": messages}), ["|".join(text[begin:end] for begin, end in marks) + "$"])


@needs("jinja2")
class Preparation(ChatCase):
    """Messages as transformers 5 prepares them, and OpenAI's ways."""

    def test_null_keys_are_left_out(self) -> None:
        template = "{% for m in messages %}{% if 'tool_calls' in m or 'name' in m %}BAD{% endif %}" + CHATML.split("%}", 1)[1]
        for empty in (None, []):
            messages = [{"role": "user", "content": "Q", "tool_calls": None, "name": None},
                        {"role": "assistant", "content": "A", "tool_calls": empty}]
            self.assertEqual(self.chat(template, {"messages": messages, "tools": empty}), ["A<|im_end|>\n$"])

    def test_reasoning_under_all_names(self) -> None:
        for read in ("reasoning_content", "thinking"):
            template = CHATML.replace("{{ m.content }}", f"{{% if m.{read} %}}<think>{{{{ m.{read} }}}}</think>{{% endif %}}{{{{ m.content }}}}")
            for name in ("reasoning", "thinking", "reasoning_content"):
                record = talk({"role": "assistant", name: "hm", "content": "A"})
                self.assertEqual(self.chat(template, record), ["<think>hm</think>A<|im_end|>\n$"])

    def test_reasoning_that_is_not_written(self) -> None:
        for message in ({"thinking": "hm", "content": "A"}, {"reasoning_content": "hm", "content": "A", "tool_calls": []}):
            self.assertIn("in.jsonl:1: message 2 (assistant): the chat template does not write its reasoning",
                          self.chat_refusal(CHATML, talk({"role": "assistant", **message})))
        cutting = CHATML.replace("m.content", "m.content.split('</think>')[-1]")
        self.assertIn("does not write its reasoning", self.chat_refusal(cutting, talk("<think>hm</think>A")))
        self.assertIn("its reasoning is not a text", self.chat_refusal(CHATML, talk({"role": "assistant", "content": "A", "reasoning": {"a": 1}})))

    def test_tools_of_every_spelling_are_one(self) -> None:
        expected = self.text(WITH_TOOLS, talk("A", tools=TOOLS))
        self.assertIn(f"<tools>{json.dumps(TOOLS[0])}<user>", expected)
        for keys in ({"tools": json.dumps(TOOLS)}, {"tools": [json.dumps(TOOLS[0])]}, {"functions": [TOOLS[0]["function"]]},
                     {"functions": json.dumps([TOOLS[0]["function"]]), "tools": None}):
            self.assertEqual(self.text(WITH_TOOLS, talk("A", **keys)), expected)
        for nothing in (None, [], "", "[]", "null"):
            self.assertEqual(self.text(WITH_TOOLS, talk("A", tools=nothing)), self.text(WITH_TOOLS, talk("A")))
        for bad in (TOOLS[0], json.dumps(TOOLS[0]), "weather", 3, [3], [[]], ["x"], [{}]):
            self.assertRegex(self.chat_refusal(WITH_TOOLS, talk("A", tools=bad)), r'in.jsonl:1: .*"tools" must be a list|a tool of "tools"')

    def test_tools_have_a_template_of_their_own(self) -> None:
        from dataprep.chat_template import ChatTemplate, find_template
        for name, content in (("tokenizer_config.json", {"chat_template": [{"name": "default", "template": CHATML},
                                                                             {"name": "tool_use", "template": WITH_TOOLS}]}),
                              ("chat_template.jinja", None)):
            (self.folder / name).write_text(json.dumps(content) if content else CHATML)
            if content is None:
                (self.folder / "additional_chat_templates").mkdir()
                (self.folder / "additional_chat_templates" / "tool_use.jinja").write_text(WITH_TOOLS)
            template = ChatTemplate(find_template(None, self.folder)[0], {})
            self.assertTrue(template.render(talk("A")["messages"], TOOLS).startswith("<tools>"))
            self.assertTrue(template.render(talk("A")["messages"]).startswith("<|im_start|>"))

    def test_arguments_are_json_however_they_are_given(self) -> None:
        writes_text = WITH_TOOLS.replace("c.function.arguments | tojson", "c.function.arguments")
        takes_objects = WITH_TOOLS.replace("c.function.arguments | tojson", "c.function.arguments.items() | list | tojson")
        in_braces = WITH_TOOLS.replace("{{ c.function.arguments | tojson }}", "{{ '{' }}{% set a = c.function.arguments %}{% if a is string %}"
                                       "{{ a }}{% else %}{% for k, v in a.items() %}{{ k }}:{{ v }},{% endfor %}{% endif %}{{ '}' }}")
        for given in ({"city": "Rome"}, '{"city": "Rome"}'):
            record = talk({"role": "assistant", "content": None, "tool_calls": [call(given)]})
            for template in (WITH_TOOLS, writes_text):
                self.assertEqual(self.chat(template, record), ['[weather {"city": "Rome"}];$'])
            self.assertEqual(self.chat(takes_objects, record), ['[weather [["city", "Rome"]]];$'])
            self.assertEqual(self.chat(in_braces, record), ['[weather {city:Rome,}];$'])
        for function in ({"arguments": ""}, {"arguments": None}, {}, {"parameters": {}}, {"arguments": {}}):
            calls = [{"function": {"name": "weather", **function}}]
            self.assertEqual(self.chat(WITH_TOOLS, talk({"role": "assistant", "tool_calls": calls})), ["[weather {}];$"])
        llama = [{"function": {"name": "weather", "parameters": {"a": 1}}}]
        self.assertEqual(self.chat(WITH_TOOLS, talk({"role": "assistant", "tool_calls": llama})), ['[weather {"a": 1}];$'])
        broken = talk({"role": "assistant", "tool_calls": [call('{"city": ')]})
        self.assertIn("does not write the arguments of its tool calls as JSON", self.chat_refusal(WITH_TOOLS, broken))

    def test_calls_of_older_forms(self) -> None:
        expected = self.chat(WITH_TOOLS, talk({"role": "assistant", "tool_calls": [call({"a": 1})]}))
        old = {"role": "assistant", "content": None, "function_call": {"name": "weather", "arguments": '{"a": 1}'}}
        self.assertEqual(self.chat(WITH_TOOLS, talk(old)), expected)
        sharegpt = {"conversations": [{"from": "human", "value": "Q"},
                                      {"from": "function_call", "value": '{"name": "weather", "arguments": {"a": 1}}'}]}
        self.assertEqual(self.chat(WITH_TOOLS.replace("c.function", "c"), sharegpt), expected)

    def test_content_that_is_no_text(self) -> None:
        image = [{"type": "image"}, {"type": "text", "text": "hi"}]
        for content in (image, ["a", "b"], {"text": "a"}, 3, True, None, [{"type": "text", "text": None}], [{"type": "text"}]):
            for role in ("user", "system", "tool"):
                record = {"messages": [{"role": role, "content": content}, *TALK[1:3]]}
                self.assertIn(f'in.jsonl:1: "messages": message 1 ({role})', self.chat_refusal(CHATML, record))
        self.assertIn("message 2 (assistant)", self.chat_refusal(CHATML, talk({"role": "assistant", "content": image})))
        parts = [{"type": "output_text", "text": "a"}, {"type": "text", "text": "b"}]
        self.assertEqual(self.chat(CHATML, talk({"role": "assistant", "content": parts})), ["ab<|im_end|>\n$"])


@needs("jinja2")
class NothingIsMissing(ChatCase):
    """What a template does not write of a conversation is an error."""

    def test_tools_and_calls(self) -> None:
        self.assertIn("the chat template does not write the tools", self.chat_refusal(CHATML, talk("A", tools=TOOLS)))
        calls = [call({"a": 1}), call({"a": 2})]
        for template, message in ((CHATML, {"content": "A", "tool_calls": calls[:1]}), (CHATML, {"tool_calls": calls[:1]}),
                                  (WITH_TOOLS.replace("m.tool_calls or []", "(m.tool_calls or [])[:1]"), {"content": "", "tool_calls": calls}),
                                  (WITH_TOOLS.replace(" {{ c.function.arguments | tojson }}", ""), {"tool_calls": calls[:1]})):
            err = self.chat_refusal(template, talk({"role": "assistant", **message}, "B"))
            self.assertRegex(err, r"in.jsonl:1: .*message 2 \(assistant\)|in.jsonl:1: .*the arguments of message 2")
        untrained = {"role": "assistant", "content": "A", "tool_calls": calls[:1], "weight": 0}
        self.assertIn("does not write", self.chat_refusal(CHATML, talk(untrained, "B")))

    def test_messages(self) -> None:
        template = CHATML.replace("{% for m in messages %}", "{% for m in messages if m.role in ['user', 'assistant'] %}")
        for role in ("system", "tool", "developer"):
            record = {"messages": [{"role": role, "content": "Be brief."}, *TALK[1:3]]}
            self.assertIn(f"in.jsonl:1: the chat template does not write message 1 ({role})", self.chat_refusal(template, record))
            self.assertEqual(self.chat(CHATML, record), ["4<|im_end|>\n$"])
        short = {"messages": [{"role": "system", "content": "u"}, *TALK[1:3]]}  # stands elsewhere by chance
        self.assertIn("does not write message 1 (system)", self.chat_refusal(template, short))
        pair = {"prompt": [TALK[0], TALK[1]], "chosen": [TALK[2]], "rejected": [TALK[4]]}
        self.assertIn("does not write message 1 (system)", self.chat_refusal(template, pair))

    def test_texts_that_a_template_changes_are_written(self) -> None:
        stripping = CHATML.replace("{{ m.content }}", "{{ m.content | trim | replace('a', 'b') }}")
        self.assertEqual(self.chat(stripping, talk("  aha ")), ["bhb<|im_end|>\n$"])


@needs("jinja2")
class Limits(ChatCase):
    ENDLESS = "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}"

    def test_a_template_that_does_not_end(self) -> None:
        with mock.patch("dataprep.chat_template.SECONDS", 0.2):
            err = self.chat_refusal(self.ENDLESS, talk("A"))
        self.assertEqual(err.count("\n"), 1)
        self.assertRegex(err, "in.jsonl:1: .*template.jinja: rendering takes longer than 0.2 s")

    def test_a_text_that_does_not_end(self) -> None:
        with mock.patch("dataprep.chat_template.LONGEST", 10**6):
            err = self.chat_refusal(self.ENDLESS.replace("%}{% endfor", "%}aaaaaaaa{% endfor", 1), talk("A"))
        self.assertRegex(err, "in.jsonl:1: .*template.jinja: the text is longer than 1000000 characters")

    def test_a_template_that_asks_for_too_much(self) -> None:
        for source in ("{{ 'a' * 10 ** 12 }}", "{{ 9 ** (9 ** 9) }}", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{{ 1 / 0 }}",
                       "{{ messages[9].content }}", "{{ undefined.x }}"):
            self.assertRegex(self.chat_refusal(source, talk("A")), "in.jsonl:1: .*template.jinja: |template.jinja: ")

    def test_templates_that_are_no_text(self) -> None:
        from dataprep.chat_template import find_template
        from dataprep.records import InputError
        for source in (5, ["x"], [{"name": "default"}], {"default": 3}):
            (self.folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": source}))
            with self.assertRaisesRegex(InputError, "tokenizer_config.json: chat_template: neither"):
                find_template(None, self.folder)


if __name__ == "__main__":
    unittest.main()
