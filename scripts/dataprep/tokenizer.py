"""Text -> token ids and labels, with Hugging Face `tokenizers` or as plain bytes."""
from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from .digest import xxh64
from .formats import Rendered, Span
from .hub import download_hint
from .records import InputError, at, read_json_object

IGNORE = -100
TWICE = "the text has the {} that the tokenizer adds; it is there once"


@dataclass(frozen=True)
class Sample:
    """Token ids and, for each, itself where it is trained and -100 where it is not; `weights` of their losses, or
    None where all trained ones have 1. `straddles`: some token holds both prompt and trained text. `of_pair`,
    `label`, `is_raw`: as Rendered's. `turns`: how many tokens there are up to the end of each assistant turn. `notes`: as
    Record's."""

    where: str
    input_ids: list[int]
    labels: list[int]
    straddles: bool = False
    of_pair: bool = False
    weights: list[float] | None = None
    label: bool | None = None
    is_raw: bool = False
    turns: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def targets(self) -> int:
        """How many predictions are trained; the first token is never one."""
        labels = self.labels
        return len(labels) - labels.count(IGNORE) - (1 if labels and labels[0] != IGNORE else 0)


def make_sample(where: str, ids: list[int], weights: list[float], straddles: bool = False) -> Sample:
    """A sample whose tokens of weight 0 are not trained."""
    plain = set(weights) <= {0, 1}
    return Sample(where, ids, [i if weight else IGNORE for i, weight in zip(ids, weights)], straddles,
                  weights=None if plain else [int(w) if w == int(w) else w for w in weights])


class Tokenizer(Protocol):
    vocab_size: int
    digest: str                     # what tells tokenizers apart
    special_tokens: dict[str, str]  # bos_token, eos_token, ... for chat templates
    end_tokens: list[str]           # texts of the tokens that can close a turn
    notes: list[str]                # what the user should know of it

    def encode(self, batch: list[Rendered]) -> list[Sample]: ...
    def decode(self, ids: list[int]) -> str: ...


class ByteTokenizer:
    """A token per byte of UTF-8; 256 = BOS in front, 257 = EOS at the end (trained)."""

    BOS, EOS = 256, 257
    vocab_size = 264
    digest = "bytes"
    special_tokens: dict[str, str] = {}
    end_tokens: list[str] = []
    notes: list[str] = []

    def encode(self, batch: list[Rendered]) -> list[Sample]:
        return [self._encode(rendered) for rendered in batch]

    def _encode(self, rendered: Rendered) -> Sample:
        ids, weights, position = [self.BOS], [0.0], 0
        for start, end, weight in rendered.spans:
            between, trained = rendered.text[position:start].encode(), rendered.text[start:end].encode()
            ids += [*between, *trained]
            weights += [0.0] * len(between) + [weight] * len(trained)
            position = end
        rest = rendered.text[position:].encode()
        sample = make_sample(rendered.where, [*ids, *rest, self.EOS], [*weights, *[0.0] * len(rest), rendered.end_weight])
        return replace(sample, turns=tuple(1 + len(rendered.text[:end].encode()) for end in rendered.turns))

    def decode(self, ids: list[int]) -> str:
        names = {self.BOS: b"<BOS>", self.EOS: b"<EOS>"}
        return b"".join(names.get(i) or bytes([i]) for i in ids).decode(errors="replace")


class HfTokenizer:
    """tokenizer.json of a Hugging Face directory, with the tokens that the files beside it name. As in transformers 5,
    tokenizer.json alone says which tokens are put around a text."""

    def __init__(self, directory: Path, eos_token: str | None = None) -> None:
        try:
            import numpy
            import tokenizers
        except ImportError as error:
            raise InputError("--tokenizer needs the Python packages tokenizers and numpy (see "
                             "scripts/requirements.txt); `--tokenizer bytes` needs none") from error
        self._numpy = numpy
        path = directory / "tokenizer.json"
        if not path.is_file():
            raise InputError(f"{path}: no such file; --tokenizer takes a Hugging Face directory, or the word bytes"
                             f"{download_hint(directory)}")
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises plain Exception
            raise InputError(f"{path}: {error}") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        named = NamedTokens(directory)
        named.add_to(self._tokenizer, tokenizers.AddedToken)
        self.special_tokens = named.special
        if eos_token:
            self.special_tokens["eos_token"] = eos_token
        added = self._tokenizer.get_added_tokens_decoder().values()
        self.end_tokens = [token.content for token in added if token.special]
        self._end_ids = {self._tokenizer.token_to_id(token) for token in self.end_tokens}
        self.vocab_size = self._tokenizer.get_vocab_size()
        self.digest = f"xxh64:{xxh64(path.read_bytes()):016x}"
        self._eos, self._bos = self._id("eos_token", path), self._id("bos_token", path)
        self.notes = []
        if named.adds_bos and self._tokenizer.encode("a").ids[:1] != [self._bos]:
            self.notes.append("add_bos_token in tokenizer_config.json is without effect, as in transformers 5: "
                              "tokenizer.json says which tokens are added, and it adds no BOS")

    def _id(self, name: str, path: Path) -> int | None:
        text = self.special_tokens.get(name)
        number = self._tokenizer.token_to_id(text) if text else None
        if text and number is None:
            raise InputError(f"{path}: {name} {text!r} is not in the vocabulary")
        return number

    def encode(self, batch: list[Rendered]) -> list[Sample]:
        result: dict[int, Sample] = {}
        for is_chat in (False, True):
            part = [i for i, rendered in enumerate(batch) if rendered.is_chat == is_chat]
            encodings = self._tokenizer.encode_batch([batch[i].text for i in part], add_special_tokens=not is_chat)
            result.update((i, self._sample(batch[i], encoding)) for i, encoding in zip(part, encodings))
        return [result[i] for i in range(len(batch))]

    def _sample(self, rendered: Rendered, encoding: Any) -> Sample:
        numpy, ids = self._numpy, list(encoding.ids)
        starts, ends = numpy.array(encoding.offsets, dtype=int).reshape(-1, 2).T
        weights, last, straddles = numpy.zeros(len(ids)), -1, False
        for span in rendered.spans:
            touched = _touched(starts, ends, span).nonzero()[0]
            weights[touched] = numpy.maximum(weights[touched], span.weight)
            last = max(last, *touched[-1:].tolist()) if touched.size else last
            straddles = straddles or bool(((starts < span.start) & (span.start < ends)).any())
        turns = tuple(int((starts < end).nonzero()[0][-1]) + 1 for end in rendered.turns)
        closed = rendered.is_chat and last >= 0 and ids[last] in self._end_ids
        weights, notes = weights.tolist(), []
        if not rendered.is_chat:
            notes = _without_twice(ids, weights, encoding.special_tokens_mask)
        if len(ids) > 1 and ids[0] == ids[1] == self._bos:
            notes.append("it begins with BOS twice")
        if ids and ids[-1] == self._eos:
            weights[-1] = rendered.end_weight
        elif not closed:
            if self._eos is None:
                raise InputError("the tokenizer directory names no eos_token; say which with --eos-token TEXT")
            ids.append(self._eos)
            weights.append(rendered.end_weight)
        sample = make_sample(rendered.where, ids, weights, straddles)
        return replace(sample, turns=turns, notes=tuple(notes))

    def decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False)


def _touched(starts: Any, ends: Any, span: Span) -> Any:
    """Which tokens hold characters of the span. Byte-level tokenizers trim blanks off their offsets, so a
    token of blanks only has an empty range at its end."""
    overlapping = (starts < span.end) & (ends > span.start)
    blank = (span.start < ends) & (ends <= span.end)
    return overlapping & (starts < ends) | blank & (starts == ends)


def _without_twice(ids: list[int], weights: list[float], added: list[int]) -> list[str]:
    """Takes away what the text has in front or at its end, where the tokenizer adds the same."""
    notes = []
    if len(ids) > 1 and ids[0] == ids[1] and added[0] and not added[1]:
        del ids[1], weights[1]
        notes.append(TWICE.format("BOS"))
    if len(ids) > 1 and ids[-1] == ids[-2] and added[-1] and not added[-2]:
        del ids[-1], weights[-1]
        notes.append(TWICE.format("EOS"))
    return notes


class NamedTokens:
    """Tokens that the files beside tokenizer.json name. `special`: {"eos_token": "</s>", ...}. As in transformers 5
    special_tokens_map.json and added_tokens.json count where tokenizer_config.json has no added_tokens_decoder."""

    FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")

    def __init__(self, directory: Path) -> None:
        config = read_json_object(directory / "tokenizer_config.json")
        self.adds_bos = config.get("add_bos_token") is True
        self._place, decoder = directory / "tokenizer_config.json", config.get("added_tokens_decoder")
        if decoder is None:
            config |= read_json_object(directory / "special_tokens_map.json")
        extra = config.get("extra_special_tokens") or config.get("additional_special_tokens") or []
        if isinstance(extra, dict):  # by name
            config, extra = {**config, **{f"{key.removesuffix('_token')}_token": text for key, text in extra.items()}}, []
        self.special = {key: text for key, value in config.items()
                        if key.endswith("_token") and isinstance(text := _content(value), str)}
        self._unnumbered = [*(config[key] for key in self.special), *(extra if isinstance(extra, list) else [])]
        if decoder is None:
            self._place = directory / "added_tokens.json"
            named = {_content(token) for token in self._unnumbered if isinstance(_content(token), str)}
            decoder = {number: {"content": text, "special": text in named, "normalized": text not in named}
                       for text, number in read_json_object(self._place).items()}
        with at(f"{self._place}"):
            if not isinstance(decoder, dict):
                raise InputError("\"added_tokens_decoder\" must be an object")
            self._numbered = sorted(((_number(number), token) for number, token in decoder.items()), key=lambda one: one[0])

    def add_to(self, tokenizer: Any, added_token: type) -> None:
        """Gives the tokenizer those that it lacks. InputError where one would get another number than it has here."""
        def made(token: Any, **flags: bool) -> Any:
            given = {flag: token[flag] for flag in self.FLAGS if flag in token} if isinstance(token, dict) else {}
            return added_token(_content(token), **{**given, **flags})

        if bad := [number for number, token in self._numbered if not isinstance(_content(token), str)]:
            raise InputError(f"{self._place}: token {bad[0]} has no content")
        tokenizer.add_tokens([made(token) for _, token in self._numbered])
        for number, token in self._numbered:
            if (found := tokenizer.token_to_id(_content(token))) != number:
                raise InputError(f"{self._place}: {_content(token)!r} has the number {number}, with tokenizer.json it "
                                 f"would be {found}; these files are not of one model")
        present = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
        tokenizer.add_tokens([made(token, special=True) for token in self._unnumbered
                              if isinstance(_content(token), str) and _content(token) and _content(token) not in present])


def _content(token: Any) -> Any:
    """A token's text; it may be given as an object."""
    return token.get("content") if isinstance(token, dict) else token


def _number(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"{value!r} is not a number of a token") from error


# --- training a tokenizer ----------------------------------------------------------------------------

CHATML = ("{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
          "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def train_tokenizer(texts: Iterable[str], entries: int) -> Any:
    """A byte-level BPE of at most `entries` tokens, as a tokenizers.Tokenizer."""
    try:
        from tokenizers import Tokenizer as Bpe, decoders, models, pre_tokenizers, trainers
    except ImportError as error:
        raise InputError("--train-tokenizer needs the Python package tokenizers") from error
    if entries < 256 + len(SPECIALS):
        raise InputError(f"--train-tokenizer {entries}: at least {256 + len(SPECIALS)} entries are needed")
    bpe = Bpe(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=entries, special_tokens=SPECIALS,
                                                       initial_alphabet=alphabet, show_progress=False))
    return bpe


def save_tokenizer(bpe: Any, directory: Path) -> None:
    """Writes a tokenizer directory: no BOS, <|endoftext|> as EOS, and a ChatML chat template with
    <|im_start|> and <|im_end|>."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{directory}: cannot be written: {error.strerror}") from error
    bpe.save(str(directory / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": SPECIALS[0], "pad_token": SPECIALS[0],
              "chat_template": CHATML, "clean_up_tokenization_spaces": False}
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
