"""The blocks of a columnar trace: lengths and checksums around payloads. The layout is in docs/columnar.md.

A block is written at once and carries the checksums of its head and of its payload, so every byte of a file is covered.
A block that the file ends within is torn: what a crash, or a writer at work, leaves behind. Anything else that is not a
block as it was written is damage. Lengths are believed only below fixed limits, before anything is allocated for them.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import IO, Any

from kvproof.conformance.traces.columnar_schema import pyarrow
from kvproof.conformance.traces.contents import Contents
from kvproof.conformance.traces.records import LONGEST_RECORD

COLUMNAR_MAGIC = b"\x89KVTRACE"
COLUMNAR_SUFFIX = ".kvtrace"
VERSION = 1
LARGEST_PAYLOAD = 2**28
"""Bytes of a payload, packed or not."""
MOST_EVENTS = 2**20
ZSTD_LEVEL = 3

_FIELDS = struct.Struct("<8sHHIQIIII")
_CHECKSUM = struct.Struct("<I")
HEAD_SIZE = _FIELDS.size + _CHECKSUM.size


class Kind(IntEnum):
    HEADER = 1
    EVENTS = 2
    END = 3


@dataclass(frozen=True)
class Head:
    """What a block says of itself, within the limits."""

    kind: Kind
    first_seq: int
    events: int
    stored: int
    """bytes of its payload in the file"""
    unpacked: int
    checksum: int
    """of the payload as it is stored"""
    payload_at: int


@dataclass(frozen=True)
class Block:
    """One block as it stands in the file, its payload unpacked."""

    number: int
    offset: int
    kind: Kind
    first_seq: int
    events: int
    payload: Any
    """The JSON of a header or end record (bytes), or the Arrow stream of events (pyarrow.Buffer)."""


class BlockError(Exception):
    """A block that nobody can have written so; says which, and at which byte of the file."""

    def __init__(self, number: int, offset: int, what: str) -> None:
        super().__init__(what)
        self.number, self.offset = number, offset


class TornBlock(BlockError):
    """The file ends within the block."""


def packed(number: int, kind: Kind, first_seq: int, events: int, payload: Any) -> bytes:
    """The bytes of a block. `payload` as in `Block`. Raises ValueError with a sentence if it is over the limit."""
    size = len(payload) if kind is not Kind.EVENTS else payload.size
    if size > LARGEST_PAYLOAD:
        raise ValueError(f"a block of {size} bytes, more than the {LARGEST_PAYLOAD} that one may have")
    stored = _codec().compress(payload, asbytes=True) if kind is Kind.EVENTS else payload
    fields = _FIELDS.pack(
        COLUMNAR_MAGIC, VERSION, kind, number, first_seq, events, len(stored), size, zlib.crc32(stored)
    )
    return b"".join((fields, _CHECKSUM.pack(zlib.crc32(fields)), stored))


def blocks(file: IO[bytes], number: int = 0, offset: int = 0, contents: Contents | None = None) -> Iterator[Block]:
    """The blocks of a file, in order, from the one with this number at this byte. `contents`: what they are added to.

    Raises BlockError, or TornBlock where the file ends within one.
    """
    file.seek(offset)
    while (block := next_block(file, number, offset, contents)) is not None:
        yield block
        number, offset = number + 1, file.tell()


def next_block(file: IO[bytes], number: int, offset: int, contents: Contents | None = None) -> Block | None:
    """The block at this place, where the file stands; None at its end. Raises as `blocks` does."""
    head = _read(file, HEAD_SIZE)
    return _block(file, number, offset, head, contents) if head else None


def heads(file: IO[bytes]) -> Iterator[Head]:
    """The heads of the blocks of a file. Raises as `blocks` does, but of payloads only their length is checked."""
    size, number, offset = file.seek(0, os.SEEK_END), 0, 0
    while offset < size:
        file.seek(offset)
        head = _head(number, offset, _read(file, HEAD_SIZE))
        offset = head.payload_at + head.stored
        if offset > size:
            raise TornBlock(number, head.payload_at - HEAD_SIZE, "the file ends within its payload")
        yield head
        number += 1


def _head(number: int, offset: int, head: bytes) -> Head:
    if len(head) < HEAD_SIZE:
        raise TornBlock(number, offset, "the file ends within the head of a block")
    magic, version, kind, named, first_seq, events, stored, unpacked, checksum_of_payload = _FIELDS.unpack_from(head)
    if magic != COLUMNAR_MAGIC:
        raise BlockError(number, offset, "no block begins here")
    if version != VERSION:
        raise BlockError(
            number,
            offset,
            f"block version {version}; this kvproof reads version {VERSION}: convert it again, or update",
        )
    if _CHECKSUM.unpack_from(head, _FIELDS.size)[0] != zlib.crc32(head[: _FIELDS.size]):
        raise BlockError(number, offset, "wrong checksum of its head: the file is damaged")
    if kind not in iter(Kind):
        raise BlockError(number, offset, f"unknown kind {kind}")
    if named != number:
        joined = "; were two traces joined?" if kind == Kind.HEADER else ""
        raise BlockError(number, offset, f"numbered {named}: blocks lost or reordered{joined}")
    if max(stored, unpacked) > LARGEST_PAYLOAD or events > MOST_EVENTS:
        raise BlockError(
            number,
            offset,
            f"claims {stored} bytes ({unpacked} unpacked) and {events} events; "
            f"a block has at most {LARGEST_PAYLOAD} bytes and {MOST_EVENTS} events",
        )
    if kind != Kind.EVENTS and stored > LONGEST_RECORD:
        raise BlockError(number, offset, f"claims a record of {stored} bytes; one has at most {LONGEST_RECORD}")
    return Head(Kind(kind), first_seq, events, stored, unpacked, checksum_of_payload, offset + HEAD_SIZE)


def _block(file: IO[bytes], number: int, offset: int, packed_head: bytes, contents: Contents | None) -> Block:
    head = _head(number, offset, packed_head)
    payload = _read(file, head.stored)
    if len(payload) < head.stored:
        raise TornBlock(number, offset, f"the file ends after {len(payload)} of {head.stored} bytes of its payload")
    if zlib.crc32(payload) != head.checksum:
        raise BlockError(number, offset, "wrong checksum of its payload: the file is damaged")
    if contents is not None and head.kind is not Kind.END:
        contents.add(packed_head)
        contents.add(payload)
    unpacked = _unpacked(number, offset, head.kind, payload, head.unpacked)
    return Block(number, offset, head.kind, head.first_seq, head.events, unpacked)


def _unpacked(number: int, offset: int, kind: int, payload: bytes, size: int) -> Any:
    if kind != Kind.EVENTS:
        return payload
    try:
        return _codec().decompress(payload, decompressed_size=size)
    except (OSError, ValueError, MemoryError) as error:
        raise BlockError(number, offset, f"its payload does not unpack to {size} bytes: {error}") from error


def _codec() -> Any:
    return pyarrow().Codec("zstd", compression_level=ZSTD_LEVEL)


def _read(file: IO[bytes], size: int) -> bytes:
    """Up to `size` bytes; fewer only at the end of the file."""
    parts = []
    while size and (part := file.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
