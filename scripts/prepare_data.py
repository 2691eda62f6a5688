#!/usr/bin/env python3
"""Turns text for fine-tuning into files of tokens, which loratrain reads.

  prepare_data.py chat.jsonl -o train.jsonl --tokenizer models/Qwen3-0.6B --max-seq-len 2048
  prepare_data.py train.jsonl -o gsm8k.h5 --tokenizer models/Llama-3.2-1B \\
      --prompt-field question --completion-field answer --prompt-template 'Q: {prompt}\\nA:\\n' \\
      --eval-fraction 0.05 --eval-out gsm8k_eval.h5
  prepare_data.py chat.jsonl --tokenizer models/Qwen3-0.6B --show 3

Input:
  .jsonl, .json (an array)     also compressed: .gz, .bz2, .xz
  .csv, .tsv                   the first line names the columns
  .parquet, .arrow, .feather   need the package pyarrow
  folders of such files, also those that save_to_disk of the package datasets writes
  patterns in quotes, as in 'data/*.parquet'

Formats. The script recognises a record's format by its keys, unless --format names it:
  messages            {"messages": [{"role", "content"}, ...]}: through the chat template
  sharegpt            {"conversations": [{"from", "value"}, ...]}: through the chat template
  alpaca              {"instruction", "input", "output"}: in Alpaca's prompt; with --as-chat through the chat template
  prompt-completion   {"prompt", "completion"}: strings as they are, with --as-chat through the chat template; lists of
                      messages always through the chat template
  text                {"text"}: every token is trained
  preference          {"prompt", "chosen", "rejected"}: strings or lists of messages. The prompt may also be called
                      question, query, instruction (with input) or input, or be the first messages of both sides
  unpaired            {"prompt", "completion", "label"}: as preference, with a label of true or false (1 or 0), for
                      loss: kto. Also Alpaca's columns or conversations, with the label kto_tag
  paraphrase          {"instruction", "paraphrase", "output"}, with or without "input", or {"prompt", "paraphrase",
                      "completion"}: for loss: cit

A record may also have tools, chat_template_kwargs, Alpaca's history, and a system message (column system; in plain
text only if --prompt-template has {system}). The script lists unused columns and keys on standard error. It refuses a
record if the chat template leaves out a part of the conversation, such as a tool call or a message.

What is trained, unless --train-on says otherwise:
  a completion; of a preference both completions; of a paraphrase the answer in both samples
  of a conversation every assistant turn with its end token, or the text inside {% generation %} marks of the template
  of a preference between conversations only the last turn
  EOS, which the script appends to each text that does not end with it
Every other token has the label -100. The key "weight" of a message (OpenAI; 0 = not trained) or "training" (axolotl;
true or false) says how much the tokens of an assistant turn count in the loss.

Output:
  .jsonl   a line for each sample: {"input_ids", "labels"}, and "weights" if a message has a weight other than 0 and 1.
           Pairs have chosen_input_ids, chosen_labels, rejected_input_ids and rejected_labels; of a paraphrase the
           instruction is the chosen sample
  .h5      HDF5 with the datasets tokens, labels (int32), weights (float32) and offsets (int64)
A file appears under its name only when it is complete. Exit code 2: the input or the command line is wrong; the script
prints one line for each problem.
"""
from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import random
import sys
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from dataprep import formats
from dataprep.chat_template import ChatTemplate, TooSlow, find_template
from dataprep.output import Writer, open_writer
from dataprep.records import InputError, Record, check_characters, input_files, read_records
from dataprep.show import Notes, Problems, Progress, remarks_on_labels, say, shown
from dataprep.tokenizer import ByteTokenizer, HfTokenizer, Sample, Tokenizer, save_tokenizer, train_tokenizer

BATCH = 1000          # records tokenised at once


@dataclass
class Counts:
    """What happened, for the report."""

    samples: int = 0      # pairs count once
    pairs: int = 0
    labelled: int = 0
    tokens: int = 0
    targets: int = 0
    longest: int = 0
    too_long: int = 0     # samples that the policy refuses
    worst: tuple[int, str] = (0, "")  # of those: tokens, place
    first_too_long: tuple[int, str] = (0, "")
    truncated: int = 0
    dropped: int = 0
    emptied: int = 0      # truncation left no target
    straddling: int = 0
    weighted: int = 0
    eval_samples: int = 0
    desirable: int = 0    # of the labelled
    changes: int = 0      # between neighbours of the labelled
    last_label: bool | None = None


# --- records -> samples ------------------------------------------------------------------------------

def records_of(paths: list[Path], problems: Problems) -> Iterator[Record]:
    for path in paths:
        for record in read_records(path):
            if isinstance(record, InputError):
                problems.add(record)
            else:
                yield record


Encoded = tuple[list[tuple[int, Sample | InputError]], Notes]


class Encoder:
    """Records to samples; what cannot be rendered is an InputError among them."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.tokenizer, self.options = make_tokenizer(args)

    def __call__(self, records: list[tuple[int, Record]]) -> Encoded:
        rendered: list[tuple[int, formats.Rendered]] = []
        results: list[tuple[int, Sample | InputError]] = []
        notes = Notes()
        for number, record in records:
            try:
                rendered += [(number, one) for one in self._render(record)]
                notes.add(record.where, record.notes, record.unused())
            except TooSlow:
                raise
            except InputError as error:
                results.append((number, error))
        samples = self.tokenizer.encode([one for _, one in rendered])
        for (number, one), sample in zip(rendered, samples):
            notes.add(one.where, sample.notes)
            results.append((number, replace(sample, of_pair=one.of_pair, label=one.label, is_raw=one.is_raw)))
        return results, notes

    def _render(self, record: Record) -> list[formats.Rendered]:
        """What nobody thought of is reported with its place, as every other problem of the data."""
        try:
            return formats.render(record, self.options)
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"{record.where}: cannot be rendered: {type(error).__name__}: {error}") from error


def begin_worker(args: argparse.Namespace) -> None:
    global encode_in_worker  # of this process
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its own threads: workers are the processes
    encode_in_worker = Encoder(args)


def encode_batch(records: list[tuple[int, Record]]) -> Encoded:
    return encode_in_worker(records)


def encoded_batches(records: Iterator[Record], encoder: Encoder, args: argparse.Namespace) -> Iterator[Encoded]:
    """In order, whoever makes them."""
    numbered = enumerate(records)
    batches = iter(lambda: list(itertools.islice(numbered, BATCH)), [])
    if args.workers == 1:
        yield from map(encoder, batches)
        return
    with ProcessPoolExecutor(args.workers, multiprocessing.get_context("spawn"), begin_worker, (args,)) as pool:
        queued: deque = deque()
        for batch in batches:
            queued.append(pool.submit(encode_batch, batch))
            if len(queued) > 2 * args.workers:
                yield queued.popleft().result()
        while queued:
            yield queued.popleft().result()


def samples_of(records: Iterator[Record], encoder: Encoder, args: argparse.Namespace,
               problems: Problems) -> Iterator[tuple[int, Sample]]:
    """(record number, sample) in order; records that cannot be rendered go to `problems`."""
    for batch, notes in encoded_batches(records, encoder, args):
        problems.notes.merge(notes)
        for number, result in batch:
            if isinstance(result, InputError):
                problems.add(result)
                continue
            yield from ((number, part) for part in chunks_of(result, args.chunk))


def chunks_of(sample: Sample, tokens: int | None) -> list[Sample]:
    """Raw text in parts of at most so many tokens. Each begins with the last token of the one before, so that
    every token but the first is predicted once."""
    if tokens is None or not sample.is_raw or len(sample.input_ids) <= tokens:
        return [sample]
    return [replace(sample, input_ids=sample.input_ids[i:i + tokens], labels=sample.labels[i:i + tokens])
            for i in range(0, len(sample.input_ids) - 1, tokens - 1)]


def groups_of(samples: Iterator[tuple[int, Sample]]) -> Iterator[tuple[int, list[Sample]]]:
    """(record number, one sample or the two of a pair) in order."""
    for number, sample in samples:
        yield number, [sample, next(samples)[1]] if sample.of_pair else [sample]


def fit_all(group: list[Sample], limit: int | None, policy: str, counts: Counts) -> list[Sample]:
    """Each by fit(); empty where one of them is left out."""
    fitting = [fit(sample, limit, policy, counts) for sample in group]
    return [] if None in fitting else fitting


def fit(sample: Sample, limit: int | None, policy: str, counts: Counts) -> Sample | None:
    """The sample within `limit` tokens, or None where it is left out or, by policy, refused (counts.too_long)."""
    if sample.targets == 0:
        raise InputError(f"{sample.where}: nothing is trained in this sample")
    if limit is None or len(sample.input_ids) <= limit:
        return sample
    if policy == "error":
        refused = (len(sample.input_ids), sample.where)
        counts.first_too_long = counts.first_too_long if counts.too_long else refused
        counts.worst = max(counts.worst, refused, key=lambda one: one[0])
        counts.too_long += 1
        return None
    if policy == "drop":
        counts.dropped += 1
        return None
    if policy == "turns" and sample.turns:
        limit = max((end for end in sample.turns if end <= limit), default=0)
    cut = replace(sample, input_ids=sample.input_ids[:limit], labels=sample.labels[:limit],
                  weights=sample.weights and sample.weights[:limit])
    if cut.targets == 0:
        counts.emptied += 1
        return None
    counts.truncated += 1
    return cut


def too_long_error(counts: Counts, limit: int) -> InputError:
    (tokens, where), (longest, worst) = counts.first_too_long, counts.worst
    rest = f"; {counts.too_long} samples have more, the longest, {worst}, has {longest}" if counts.too_long > 1 else ""
    return InputError(f"{where}: {tokens} tokens, more than --max-seq-len {limit}{rest}; --max-seq-len {longest} "
                      "takes all, --over-length truncate, turns or drop cuts or leaves out")


def eval_records(count: int, fraction: float, seed: int) -> set[int]:
    """Numbers of the records that go to the eval file: round(count * fraction) of them, at least one."""
    if fraction == 0:
        return set()
    return set(random.Random(seed).sample(range(count), min(count, max(1, round(count * fraction)))))


# --- the run -----------------------------------------------------------------------------------------

def make_tokenizer(args: argparse.Namespace) -> tuple[Tokenizer, formats.Options]:
    """The tokenizer, and the options of rendering with the chat template found for it."""
    directory = None if args.tokenizer == "bytes" else Path(args.tokenizer)
    tokenizer: Tokenizer = HfTokenizer(directory, args.eos_token) if directory else ByteTokenizer()
    found = find_template(args.chat_template, directory)
    template = ChatTemplate(found[0], tokenizer.special_tokens, found[1]) if found else None
    if args.as_chat and template is None:
        raise InputError("--as-chat needs a chat template: --chat-template FILE")
    return tokenizer, formats.Options(
        format=args.format, prompt_field=args.prompt_field, completion_field=args.completion_field,
        text_field=args.text_field,
        prompt_template=args.prompt_template and args.prompt_template.replace("\\n", "\n"),
        as_chat=args.as_chat, template=template, end_tokens=tokenizer.end_tokens, train_on=args.train_on,
        thinking=args.thinking)


def convert(args: argparse.Namespace, problems: Problems) -> Counts:
    """Reads, tokenises, shows and writes. Nothing is written where there are problems."""
    encoder = Encoder(args)
    problems.remarks += encoder.tokenizer.notes
    held_out: set[int] = set()
    if args.eval_fraction:
        held_out = eval_records(sum(1 for _ in records_of(args.input, Problems())), args.eval_fraction, args.seed)
    counts, to_show, progress = Counts(), args.show, Progress()
    with ExitStack() as stack:
        main_writer = _writer(args.output, encoder.tokenizer, stack)
        eval_writer = _writer(args.eval_out, encoder.tokenizer, stack)
        stack.callback(progress.end)
        for number, wholes in groups_of(samples_of(records_of(args.input, problems), encoder, args, problems)):
            progress.tell(lambda done=number + 1: f"{done} records, {counts.tokens} tokens")
            try:
                group = fit_all(wholes, args.max_seq_len, args.over_length, counts)
                check_kind(wholes, counts)
            except InputError as error:
                problems.add(error)
                continue
            if not group:
                continue
            if to_show:
                for sample in group:
                    say(shown(sample, encoder.tokenizer, sys.stdout.isatty()))
                to_show -= 1
            count(group, number in held_out, counts)
            writer = eval_writer if number in held_out else main_writer
            if writer:
                (writer.add_pair if len(group) == 2 else writer.add)(*group)
            elif not to_show:
                break  # only showing
        if counts.too_long:
            problems.add(too_long_error(counts, args.max_seq_len))
        problems.remarks += remarks_on_labels(counts.labelled, counts.desirable, counts.changes)
        if not problems.lines:
            if counts.samples == 0:
                raise InputError("no samples in the input")
            if counts.eval_samples == counts.samples and args.output:
                raise InputError("every sample went to --eval-out; give more records or a smaller --eval-fraction")
            if counts.eval_samples == 0 and args.eval_out:
                raise InputError("no sample went to --eval-out: none of the records drawn for it is left; "
                                 "give more records or a larger --eval-fraction")
            for writer in (main_writer, eval_writer):
                if writer:
                    writer.commit()
            progress.end()
            stack.pop_all()  # complete: nothing to discard
    return counts


def _writer(path: Path | None, tokenizer: Tokenizer, stack: ExitStack) -> Writer | None:
    """A writer that is discarded on leaving the stack."""
    if path is None:
        return None
    writer = open_writer(path, tokenizer.digest)
    stack.callback(writer.discard)
    return writer


def check_kind(group: list[Sample], counts: Counts) -> None:
    """A file has pairs alone, or none; samples with a label alone, or none."""
    if counts.samples and (group[0].label is not None) != (counts.labelled > 0):
        raise InputError(f"{group[0].where}: {'no' if group[0].label is None else 'a'} label of true or false, unlike the "
                         "records before; make a file of each kind")
    if counts.samples and (len(group) == 2) != (counts.pairs > 0):
        raise InputError(f"{group[0].where}: {'a pair' if len(group) == 2 else 'a single sample'}, the records before are "
                         "not; make a file of each kind")


def count(group: list[Sample], is_eval: bool, counts: Counts) -> None:
    counts.samples += 1
    counts.pairs += len(group) == 2
    if (label := group[0].label) is not None:
        counts.changes += counts.labelled > 0 and label != counts.last_label
        counts.labelled += 1
        counts.desirable += label
        counts.last_label = label
    counts.eval_samples += is_eval
    for sample in group:
        counts.tokens += len(sample.input_ids)
        counts.targets += sample.targets
        counts.longest = max(counts.longest, len(sample.input_ids))
        counts.straddling += sample.straddles
        counts.weighted += sample.weights is not None


def report(counts: Counts, args: argparse.Namespace) -> None:
    """The summary on standard output."""
    kind = "pairs" if counts.pairs else "samples"
    say(f"{args.output}: {counts.samples - counts.eval_samples} {kind}"
        + (f"; {args.eval_out}: {counts.eval_samples} {kind}" if args.eval_out else ""))
    say(f"{counts.tokens} tokens, {counts.targets} of them trained, longest sample {counts.longest}"
        + (f"; {counts.weighted} samples with weights" if counts.weighted else ""))
    if args.max_seq_len:
        say(f"over {args.max_seq_len} tokens: {counts.truncated} truncated, {counts.dropped} dropped, "
            f"{counts.emptied} dropped because the cut left no target")
    if counts.straddling:
        say(f"note: in {counts.straddling} samples one token holds the end of the prompt and the start of the "
            "completion; it is trained. Ending prompts with a newline or starting completions with the blank avoids it")


def texts_for_tokenizer(args: argparse.Namespace, problems: Problems) -> Iterator[str]:
    """Every string in the records, however deep, for training a tokenizer."""
    def strings(value: object) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, (list, dict)):
            for part in value.values() if isinstance(value, dict) else value:
                yield from strings(part)

    for record in records_of(args.input, problems):
        try:
            for text in strings(record.fields):
                check_characters(record.where, text)
                yield text
        except InputError as error:
            problems.add(error)
        except RecursionError:
            problems.add(InputError(f"{record.where}: objects and lists in it are nested too deeply"))


# --- command line ------------------------------------------------------------------------------------

def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="prepare_data.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", nargs="+", help="files, folders, or patterns of files in quotes")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=".jsonl or .h5 file to write")
    parser.add_argument("--tokenizer", metavar="DIR|bytes", help="directory with tokenizer.json, or the word bytes")
    parser.add_argument("--format", choices=formats.FORMATS, help="format of all records (default: recognised by the keys of each)")
    fields = parser.add_argument_group("columns")
    fields.add_argument("--prompt-field", metavar="KEY",
                        help="column of the prompt (default prompt; preferences: see above). '': what both sides begin with")
    fields.add_argument("--completion-field", metavar="KEY", help="column of the completion (default completion)")
    fields.add_argument("--text-field", default="text", metavar="KEY", help="column of the text (default text)")
    fields.add_argument("--prompt-template", metavar="TEXT",
                        help=r"text around the prompt, as in 'Q: {prompt}\nA:'; {system} is the column system, \n a newline")
    chat = parser.add_argument_group("conversations")
    chat.add_argument("--chat-template", type=Path, metavar="FILE",
                      help="Jinja template instead of the tokenizer directory's own")
    chat.add_argument("--as-chat", action="store_true",
                      help="render texts (prompt-completion, alpaca, preferences) as user and assistant turns")
    chat.add_argument("--eos-token", metavar="TEXT", help="end token (default: eos_token of tokenizer_config.json)")
    trained = parser.add_argument_group("what is trained")
    trained.add_argument("--train-on", choices=formats.TRAIN_ON, default="assistant",
                         help="assistant: completions and all assistant turns (default); last-turn: of a conversation "
                              "only the last assistant turn; all: every token, prompts too")
    trained.add_argument("--thinking", choices=formats.THINKING, default="train",
                         help="blocks <think>...</think>: train: as other text (default); mask-empty: empty ones are not "
                              "trained; mask: none is trained")
    length = parser.add_argument_group("length")
    length.add_argument("--max-seq-len", type=int, metavar="N", help="most tokens of a sample (default: no limit)")
    length.add_argument("--over-length", choices=("error", "truncate", "turns", "drop"), default="error",
                        help="what happens to longer samples: error: they are refused (default); truncate; turns: a "
                             "conversation is truncated after the last assistant turn that fits, other samples as with truncate; drop")
    length.add_argument("--chunk", type=int, metavar="N",
                        help="split raw text (format text) into samples of at most N tokens")
    split = parser.add_argument_group("held-out samples")
    split.add_argument("--eval-fraction", type=float, default=0.0, metavar="F", help="share of the records that --eval-out gets")
    split.add_argument("--eval-out", type=Path, metavar="FILE", help="file of these records; the training file does not have them")
    split.add_argument("--seed", type=int, default=42, help="seed of the choice of these records (default 42)")
    parser.add_argument("--workers", type=int, default=1, metavar="N",
                        help="processes that render and tokenise; the output is the same (default 1)")
    parser.add_argument("--show", type=int, default=0, metavar="N",
                        help="print the first N samples with the trained parts between [[ and ]]")
    parser.add_argument("--train-tokenizer", nargs=2, metavar=("N", "DIR"),
                        help="first train a byte-level BPE tokenizer of N entries on the input and write it to DIR; "
                             "it is used if --tokenizer is not given")
    args = parser.parse_args(argv)
    check_arguments(parser, args)
    return args


def check_arguments(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Ends the program with exit code 2 and one line where options do not fit together."""
    if args.train_tokenizer:
        if not args.train_tokenizer[0].isdigit():
            parser.error(f"--train-tokenizer: {args.train_tokenizer[0]!r} is not a number of entries")
        args.tokenizer = args.tokenizer or args.train_tokenizer[1]
    elif not args.output and not args.show:
        parser.error("nothing to do: give -o FILE, --show N or --train-tokenizer N DIR")
    if not args.tokenizer:
        parser.error("--tokenizer is needed: a Hugging Face directory, or the word bytes")
    if not 0 <= args.eval_fraction < 1:
        parser.error("--eval-fraction must be at least 0 and below 1")
    if bool(args.eval_fraction) != bool(args.eval_out):
        parser.error("--eval-fraction and --eval-out go together")
    if args.eval_out and not args.output:
        parser.error("--eval-out needs -o too")
    if args.eval_out and args.output and args.eval_out.resolve() == args.output.resolve():
        parser.error("-o and --eval-out name the same file")
    if args.max_seq_len is not None and args.max_seq_len < 2:
        parser.error("--max-seq-len must be at least 2")
    if args.chunk is not None and args.chunk < 2:
        parser.error("--chunk must be at least 2")
    if args.chunk and args.max_seq_len and args.chunk > args.max_seq_len:
        parser.error(f"--chunk {args.chunk} is more than --max-seq-len {args.max_seq_len}")
    if args.workers < 1:
        parser.error("--workers must be at least 1")
    if args.prompt_template is not None and "{prompt}" not in args.prompt_template:
        parser.error("--prompt-template must contain {prompt}")


def main(argv: list[str] | None = None) -> int:
    args = parse_arguments(argv)
    problems = Problems()
    try:
        args.input, left_out = input_files(args.input)
        if left_out:
            problems.remarks.append(f"left out, as no data of their own: {', '.join(str(file) for file in left_out)}")
        if twice := {path.resolve() for path in (args.output, args.eval_out) if path} & {path.resolve() for path in args.input}:
            raise InputError(f"{min(twice)}: is input and output")
        if args.train_tokenizer:
            entries, directory = int(args.train_tokenizer[0]), Path(args.train_tokenizer[1])
            bpe = train_tokenizer(texts_for_tokenizer(args, problems), entries)
            if not problems.lines:
                save_tokenizer(bpe, directory)
                say(f"{directory}: tokenizer of at most {entries} entries trained")
        if not problems.lines and (args.output or args.show):
            counts = convert(args, problems)
            if args.output and not problems.lines:
                report(counts, args)
    except InputError as error:
        problems.add(error)
    except OSError as error:  # a full disk
        problems.add(InputError(f"{error.filename or args.output}: {error.strerror or error}"))
    except KeyboardInterrupt:
        return 130
    except BrokenProcessPool:
        problems.add(InputError("a process of --workers was killed; was memory short?"))
    problems.report()
    return 2 if problems.lines else 0


if __name__ == "__main__":
    sys.exit(main())
