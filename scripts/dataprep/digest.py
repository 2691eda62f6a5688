"""XXH64, seed 0, as the program has it in io/checksum.h: which tokenizer.json made a file of tokens."""
from __future__ import annotations

import struct

_MASK = (1 << 64) - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _mixed(accumulator: int, word: int) -> int:
    return _rotated((accumulator + word * _P2) & _MASK, 31) * _P1 & _MASK


def _of_stripes(data: bytes) -> int:
    accumulators = [(_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK]
    for words in struct.iter_unpack("<4Q", data):
        accumulators = [_mixed(accumulator, word) for accumulator, word in zip(accumulators, words)]
    value = sum(_rotated(accumulator, bits) for accumulator, bits in zip(accumulators, (1, 7, 12, 18))) & _MASK
    for accumulator in accumulators:
        value = ((value ^ _mixed(0, accumulator)) * _P1 + _P4) & _MASK
    return value


def xxh64(data: bytes) -> int:
    whole = len(data) // 32 * 32
    value = _of_stripes(data[:whole]) if whole else _P5
    value = (value + len(data)) & _MASK
    tail = data[whole:]
    while len(tail) >= 8:
        value = (_rotated(value ^ _mixed(0, int.from_bytes(tail[:8], "little")), 27) * _P1 + _P4) & _MASK
        tail = tail[8:]
    if len(tail) >= 4:
        value = (_rotated(value ^ int.from_bytes(tail[:4], "little") * _P1 & _MASK, 23) * _P2 + _P3) & _MASK
        tail = tail[4:]
    for byte in tail:
        value = _rotated(value ^ byte * _P5 & _MASK, 11) * _P1 & _MASK
    value = (value ^ value >> 33) * _P2 & _MASK
    value = (value ^ value >> 29) * _P3 & _MASK
    return value ^ value >> 32
