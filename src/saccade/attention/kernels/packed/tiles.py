# mypy: disable-error-code="no-untyped-def"
"""Parts that the kernels of packed attention share: finding a program's tile; reading, writing and masking tiles.

For sentences of up to 32 steps, the usual ones, a program has a sentence. The long are found without a list: the row is
cut into windows of half a tile, and a program has the sentence in which its window ends; L steps, more than such a
window, hold the ends of L // window at least, enough for all their tiles. What lies behind the last sentence is one
more sentence, whose tiles are zeros.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def mix(x):
    """Mix 32 bits well (Wellons 2018, lowbias32): a dozen instructions where Philox takes a hundred."""
    x ^= x >> 16
    x *= 0x7FEB352D
    x ^= x >> 15
    x *= 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def is_kept(seed, row, column, threshold):
    """Draw which weights stay, by the seed, the row (head and query) and the key's place in the sentence.

    Rows and columns are mixed well before they meet; a pair then takes two multiplications, of which the high bits
    are compared.
    """
    rows = mix(mix(row.to(tl.uint32) ^ seed.to(tl.uint32)) ^ (seed >> 32).to(tl.uint32))
    word = (rows + mix(column.to(tl.uint32))) * 0x7FEB352D
    word = (word ^ (word >> 15)) * 0x846CA68B
    return (word >> 1).to(tl.int32) >= threshold


@triton.jit
def read_starts(sentences, sentence):
    """Read the first query and the first key of a sentence."""
    query = tl.load(sentences.query_start + sentence).to(tl.int32)
    key = query
    if sentences.key_start is not None:
        key = tl.load(sentences.key_start + sentence).to(tl.int32)
    return query, key


@triton.jit
def along(sentences, query, key):
    """Return where a query and a key are in the two rows, counted together."""
    return query if sentences.key_start is None else query + key


@triton.jit
def find_tile(slot, sentences, TILE: tl.constexpr):
    """Find the sentence of a program (the last: the padding), and which of its tiles it has."""
    if TILE.skip == 0:
        low = tl.minimum(slot, sentences.num_sentences)
        index = slot - low
    else:
        HALVINGS: tl.constexpr = TILE.halvings
        last = along(sentences, sentences.num_queries, sentences.num_keys) - 1
        window_end = tl.minimum((slot + 1) * (TILE.block // 2) - 1, last)
        low, high = 0, sentences.num_sentences + 1
        for _ in tl.static_range(HALVINGS):
            middle = (low + high) // 2
            query, key = read_starts(sentences, middle)
            is_before = along(sentences, query, key) <= window_end
            low, high = tl.where(is_before, middle, low), tl.where(is_before, high, middle)
        query, key = read_starts(sentences, low)
        index = slot - along(sentences, query, key) // (TILE.block // 2)
    return low, index


@triton.jit
def find_work(slot, sentences, TILE: tl.constexpr):
    """Find first and end of a program's queries and keys, its first step of both; is it padding, and has it work?"""
    sentence, index = find_tile(slot, sentences, TILE)
    is_padding = sentence == sentences.num_sentences
    query_first, key_first = read_starts(sentences, sentence)
    query_end, key_end = read_starts(sentences, tl.minimum(sentence + 1, sentences.num_sentences))
    query_end = tl.where(is_padding, sentences.num_queries, query_end)
    key_end = tl.where(is_padding, sentences.num_keys, key_end)
    longest = tl.maximum(query_end - query_first, key_end - key_first)
    is_mine = (longest <= TILE.block) if TILE.skip == 0 else (longest > TILE.skip)
    has_work = (is_mine | is_padding) & (index * TILE.block < longest)
    return query_first, query_end, key_first, key_end, index * TILE.block, is_padding, has_work


@triton.jit
def read(x, head, first, end, BLOCK: tl.constexpr):
    """Read steps first.. of one head, zeros from `end` on."""
    return fetch(x.data + tl.cast(head, tl.int64) * x.head, first, end, x.step, x.width, x.padded, BLOCK)


@triton.jit
def turn(x, block, head, first, end, BLOCK: tl.constexpr):
    """Transpose what `read` read, [K, T]. A small tile is loaded anew: Triton would wait for it before other loads."""
    if BLOCK < 64:
        at, inside = tile(x.data + tl.cast(head, tl.int64) * x.head, first, end, x.step, x.width, x.padded, BLOCK)
        block_KT = tl.load(tl.trans(at), tl.trans(tl.broadcast_to(inside, (BLOCK, x.padded))), 0.0)
    else:
        block_KT = tl.trans(block)
    return block_KT


@triton.jit
def write(x, head, first, end, block, BLOCK: tl.constexpr):
    """Write steps first.. of one head, up to `end`."""
    put(x.data + tl.cast(head, tl.int64) * x.head, first, end, x.step, block, x.width, x.padded, BLOCK)


@triton.jit
def tile(base, first, end, stride, WIDTH: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr):
    """Return pointers to steps first.., and a mask of those before the end, [BLOCK, PADDED]."""
    row, column = tl.arange(0, BLOCK), tl.arange(0, PADDED)
    inside = (first + row < end)[:, None]
    if WIDTH < PADDED:
        inside = inside & (column < WIDTH)[None, :]
    return base + tl.cast(first, tl.int64) * stride + row[:, None] * stride + column[None, :], inside


@triton.jit
def fetch(base, first, end, stride, WIDTH: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr):
    """Load steps first.. at a base, zeros from `end` on."""
    at, inside = tile(base, first, end, stride, WIDTH, PADDED, BLOCK)
    return tl.load(at, inside, 0.0)


@triton.jit
def put(base, first, end, stride, x, WIDTH: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr):
    """Store steps first.. at a base, up to `end`."""
    at, inside = tile(base, first, end, stride, WIDTH, PADDED, BLOCK)
    tl.store(at, x.to(base.dtype.element_ty), inside)


@triton.jit
def product(a, b):
    """Multiply a and b in float32; float32 itself is multiplied exactly, not rounded to tf32."""
    return tl.dot(a, b, input_precision="ieee" if a.dtype == tl.float32 else "tf32")


@triton.jit
def in_band(t, s, key_end, low, high, HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr):
    """Tell where key s is in the sentence and low <= s - t <= high. (Queries behind the sentence are never stored.)"""
    inside = s < key_end
    if HAS_LOW:
        inside = inside & (s - t >= low)
    if HAS_HIGH:
        inside = inside & (s - t <= high)
    return inside


@triton.jit
def in_reach(
    first, end, other_first, other_end, low, high, BLOCK: tl.constexpr, HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr
):
    """Return the steps that any of first..end - 1 may meet, low <= other - own <= high, in whole blocks."""
    start, stop = other_first, other_end
    if HAS_LOW:
        start = tl.maximum(start, other_first + (first + low - other_first) // BLOCK * BLOCK)
    if HAS_HIGH:
        stop = tl.minimum(stop, end + high)
    return start, stop


@triton.jit
def keys_in_reach(first, key_first, key_end, band, BLOCK: tl.constexpr):
    """Return the keys that a tile of queries may meet."""
    end = first + BLOCK
    return in_reach(first, end, key_first, key_end, band.low, band.high, BLOCK, band.has_low, band.has_high)


@triton.jit
def queries_in_reach(first, query_first, query_end, band, BLOCK: tl.constexpr):
    """Return the queries that a tile of keys may meet."""
    end = first + BLOCK
    return in_reach(first, end, query_first, query_end, -band.high, -band.low, BLOCK, band.has_high, band.has_low)
