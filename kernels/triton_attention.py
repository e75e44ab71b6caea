"""The Triton twins of the attention in `reference.py`, for CUDA devices; with TRITON_INTERPRET=1 on the CPU, for tests.

Decode is bound by reading the cache once. One program serves all G query heads of one kv head, so each key and value is
loaded once for the group. Rows are split over several programs (flash decoding) when batch times kv heads would leave
multiprocessors idle: each program attends to its part of the row, and a second kernel joins the parts.

Extend works on tiles of query tokens. How many tiles a request has is known on the device only, so the grid is as large
as it could be at most, and a program first finds the request of its tile.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kvproof.kernels.reference import PagedKV

LEAST_DOT_SIZE = 16
"""tl.dot needs every side of its operands to be at least this long."""
TILE_BYTES = 128
"""Key positions of one loop step, and rows of an extend tile (query tokens times query heads of one kv head), times the
bytes of a number: 64 in float16, and 32 in float32, whose tiles would not fit the registers otherwise."""
NARROW = 128
"""Head size up to which that many fit. Wider heads (576 of a latent cache, which take 1,024 lanes) have shorter tiles."""
PROGRAMS_PER_PROCESSOR = 4
"""Decode programs that one multiprocessor should have to choose from: enough loads under way to fill the memory bus."""
LEAST_SPLIT = 256
"""Positions that make a part of a row worth a program of its own."""
MOST_SPLITS = 64
PROCESSORS_WITHOUT_A_DEVICE = 4
"""Stands in for the number of multiprocessors in the interpreter, so that tests reach the split."""


@triton.jit
def _attend(  # type: ignore[no-untyped-def]
    queries, query_position, k_lines, v_lines, pages, begin, end, stride_k, stride_v, window, head_dim, scale,
    BLOCK_M: tl.constexpr, PAGE_SIZE: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
):  # fmt: skip
    """Online softmax over the keys at positions [begin, end), for queries [M, D] at query_position [M].

    Returns the largest score [M], in powers of two, the sum of weights relative to it [M], and the values summed with
    them [M, D].
    """
    lane = tl.arange(0, BLOCK_D)
    highest = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    weighted = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    for start in range(begin, end, BLOCK_N):
        position = start + tl.arange(0, BLOCK_N)
        inside = position < end
        page = tl.load(pages + position // PAGE_SIZE, mask=inside, other=0).to(tl.int64)
        line = page * PAGE_SIZE + position % PAGE_SIZE
        is_key = inside[:, None] & (lane[None, :] < head_dim)
        keys = tl.load(k_lines + line[:, None] * stride_k + lane[None, :], mask=is_key, other=0.0)
        values = tl.load(v_lines + line[:, None] * stride_v + lane[None, :], mask=is_key, other=0.0)

        seen = inside[None, :] & (position[None, :] <= query_position[:, None])
        if HAS_WINDOW:
            seen = seen & (position[None, :] >= query_position[:, None] - window)
        scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * (scale * 1.4426950408889634)
        scores = tl.where(seen, scores, float("-inf"))
        raised = tl.maximum(highest, tl.max(scores, 1))
        # A query that has seen no key yet has no highest score: subtracting minus infinity from itself would give NaN.
        base = tl.where(raised == float("-inf"), 0.0, raised)
        shrink = tl.exp2(highest - base)
        weights = tl.exp2(scores - base[:, None])
        total = total * shrink + tl.sum(weights, 1)
        weighted = weighted * shrink[:, None] + tl.dot(weights.to(values.dtype), values, input_precision="ieee")
        highest = raised
    return highest, total, weighted


@triton.jit(do_not_specialize=["splits"])
def _decode_kernel(  # type: ignore[no-untyped-def]
    q, k_cache, v_cache, page_table, seq_lens, out, part_out, part_highest, part_total,
    stride_q_batch, stride_q_head, stride_k, stride_k_head, stride_v, stride_v_head, stride_pages, heads,
    scale, window, group, head_dim, splits,
    PAGE_SIZE: tl.constexpr, BLOCK_G: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    HAS_WINDOW: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """Program (b, h, s) attends to part s of request b's row, for the query heads of kv head h.

    Unsplit, it writes the result; split, it writes its part unnormalised, with its highest score and its total.
    """
    request = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    query = tl.arange(0, BLOCK_G)
    lane = tl.arange(0, BLOCK_D)
    head = kv_head * group + query
    is_query = (query[:, None] < group) & (lane[None, :] < head_dim)
    q_lines = q + request * stride_q_batch + head[:, None] * stride_q_head
    queries = tl.load(q_lines + lane[None, :], mask=is_query, other=0.0)

    length = tl.load(seq_lens + request).to(tl.int32)
    lowest = 0
    if HAS_WINDOW:
        lowest = tl.maximum(length - 1 - window, 0)
    part = tl.cdiv(tl.cdiv(length - lowest, splits), BLOCK_N) * BLOCK_N
    begin = lowest + split * part
    end = tl.minimum(begin + part, length)
    query_position = tl.zeros([BLOCK_G], tl.int32) + length - 1
    highest, total, weighted = _attend(
        queries=queries, query_position=query_position, k_lines=k_cache + kv_head * stride_k_head,
        v_lines=v_cache + kv_head * stride_v_head, pages=page_table + request * stride_pages, begin=begin, end=end,
        stride_k=stride_k, stride_v=stride_v, window=window, head_dim=head_dim, scale=scale, BLOCK_M=BLOCK_G,
        PAGE_SIZE=PAGE_SIZE, BLOCK_N=BLOCK_N, BLOCK_D=BLOCK_D, HAS_WINDOW=HAS_WINDOW,
    )  # fmt: skip

    if SPLIT:
        line = (request * heads + head) * splits + split
        tl.store(part_out + line[:, None] * head_dim + lane[None, :], weighted, mask=is_query)
        tl.store(part_highest + line, highest, mask=query < group)
        tl.store(part_total + line, total, mask=query < group)
    else:
        result = weighted / tl.where(total == 0.0, 1.0, total)[:, None]
        out_lines = out + (request * heads + head[:, None]) * head_dim
        tl.store(out_lines + lane[None, :], result.to(out.dtype.element_ty), mask=is_query)


@triton.jit(do_not_specialize=["splits"])
def _join_kernel(  # type: ignore[no-untyped-def]
    part_out, part_highest, part_total, out, splits, head_dim, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr
):
    """Program r joins the parts of result line r (one query head of one request)."""
    line = tl.program_id(0).to(tl.int64)
    split = tl.arange(0, BLOCK_S)
    lane = tl.arange(0, BLOCK_D)
    is_part = split < splits
    highest = tl.load(part_highest + line * splits + split, mask=is_part, other=float("-inf"))
    total = tl.load(part_total + line * splits + split, mask=is_part, other=0.0)
    top = tl.max(highest, 0)
    weight = tl.exp2(highest - tl.where(top == float("-inf"), 0.0, top))
    in_part = is_part[:, None] & (lane[None, :] < head_dim)
    parts = tl.load(part_out + (line * splits + split[:, None]) * head_dim + lane[None, :], mask=in_part, other=0.0)
    whole = tl.sum(total * weight, 0)
    result = tl.sum(parts * weight[:, None], 0) / tl.where(whole == 0.0, 1.0, whole)
    tl.store(out + line * head_dim + lane, result.to(out.dtype.element_ty), mask=lane < head_dim)


@triton.jit(do_not_specialize=["requests"])
def _extend_kernel(  # type: ignore[no-untyped-def]
    q, k_cache, v_cache, page_table, prefix_lens, seq_lens, out,
    stride_q_token, stride_q_head, stride_k, stride_k_head, stride_v, stride_v_head, stride_pages, heads,
    scale, window, group, head_dim, requests,
    PAGE_SIZE: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_G: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, HAS_WINDOW: tl.constexpr,
):  # fmt: skip
    """Program (t, h) attends for BLOCK_Q query tokens, tile t of the batch, and the query heads of kv head h."""
    tile = tl.program_id(0)
    kv_head = tl.program_id(1)

    # Tiles are numbered request after request; the request of this tile is the first whose tiles end behind it.
    each = tl.arange(0, BLOCK_B)
    is_request = each < requests
    new_tokens = tl.load(seq_lens + each, mask=is_request, other=0).to(tl.int32) - tl.load(
        prefix_lens + each, mask=is_request, other=0
    ).to(tl.int32)
    tiles = tl.cdiv(new_tokens, BLOCK_Q)
    before_it = tl.cumsum(tiles, 0) <= tile
    request = tl.sum((before_it & is_request).to(tl.int32), 0).to(tl.int64)
    if request >= requests:
        return
    first_token = tl.sum(tl.where(before_it & is_request, new_tokens, 0), 0)
    first_of_tile = (tile - tl.sum(tl.where(before_it & is_request, tiles, 0), 0)) * BLOCK_Q
    prefix_len = tl.load(prefix_lens + request).to(tl.int32)
    seq_len = tl.load(seq_lens + request).to(tl.int32)

    row = tl.arange(0, BLOCK_Q * BLOCK_G)
    lane = tl.arange(0, BLOCK_D)
    query = row % BLOCK_G
    query_position = prefix_len + first_of_tile + row // BLOCK_G
    token = (first_token + first_of_tile + row // BLOCK_G).to(tl.int64)
    head = kv_head * group + query
    is_query = ((query < group) & (query_position < seq_len))[:, None] & (lane[None, :] < head_dim)
    q_lines = q + token[:, None] * stride_q_token + head[:, None] * stride_q_head
    queries = tl.load(q_lines + lane[None, :], mask=is_query, other=0.0)

    begin = 0
    if HAS_WINDOW:
        begin = tl.maximum(prefix_len + first_of_tile - window, 0) // BLOCK_N * BLOCK_N
    end = tl.minimum(prefix_len + first_of_tile + BLOCK_Q, seq_len)
    _, total, weighted = _attend(
        queries=queries, query_position=query_position, k_lines=k_cache + kv_head * stride_k_head,
        v_lines=v_cache + kv_head * stride_v_head, pages=page_table + request * stride_pages, begin=begin, end=end,
        stride_k=stride_k, stride_v=stride_v, window=window, head_dim=head_dim, scale=scale, BLOCK_M=BLOCK_Q * BLOCK_G,
        PAGE_SIZE=PAGE_SIZE, BLOCK_N=BLOCK_N, BLOCK_D=BLOCK_D, HAS_WINDOW=HAS_WINDOW,
    )  # fmt: skip

    result = weighted / tl.where(total == 0.0, 1.0, total)[:, None]
    out_lines = out + (token[:, None] * heads + head[:, None]) * head_dim
    tl.store(out_lines + lane[None, :], result.to(out.dtype.element_ty), mask=is_query)


def paged_decode_attention(q: torch.Tensor, kv: PagedKV, scale: float, window: int = 0) -> torch.Tensor:
    """See `paged.paged_decode_attention`."""
    batch, heads, head_dim = q.shape
    kv_heads = kv.k_cache.shape[1]
    group = heads // kv_heads
    out = torch.empty((batch, heads, head_dim), dtype=q.dtype, device=q.device)
    if not batch:
        return out
    longest = kv.page_table.shape[1] * kv.page_size
    splits = splits_for(batch * kv_heads, min(longest, window + 1) if window else longest, _processors(q.device))
    # Unsplit, the kernel writes no parts: `out` stands in for them.
    part_out = part_highest = part_total = out
    if splits > 1:
        part_out = torch.empty((batch * heads * splits, head_dim), dtype=torch.float32, device=q.device)
        part_highest, part_total = torch.empty((2, batch * heads * splits), dtype=torch.float32, device=q.device)
    block_d = lanes_for(q)
    _decode_kernel[(batch, kv_heads, splits)](
        q=q, k_cache=kv.k_cache, v_cache=kv.v_cache, page_table=kv.page_table, seq_lens=kv.seq_lens, out=out,
        part_out=part_out, part_highest=part_highest, part_total=part_total, stride_q_batch=q.stride(0),
        stride_q_head=q.stride(1), stride_k=kv.k_cache.stride(0), stride_k_head=kv.k_cache.stride(1),
        stride_v=kv.v_cache.stride(0), stride_v_head=kv.v_cache.stride(1), stride_pages=kv.page_table.stride(0),
        heads=heads, scale=scale, window=window, group=group, head_dim=head_dim, splits=splits, PAGE_SIZE=kv.page_size,
        BLOCK_G=max(LEAST_DOT_SIZE, triton.next_power_of_2(group)), BLOCK_N=tile_for(q), BLOCK_D=block_d,
        HAS_WINDOW=window > 0, SPLIT=splits > 1, **(wide_options(q) or {"num_warps": 4, "num_stages": 3}),
    )  # fmt: skip
    if splits > 1:
        _join_kernel[(batch * heads,)](
            part_out, part_highest, part_total, out, splits, head_dim,
            BLOCK_S=triton.next_power_of_2(splits), BLOCK_D=block_d,
        )  # fmt: skip
    return out


def paged_extend_attention(
    q: torch.Tensor, kv: PagedKV, prefix_lens: torch.Tensor, scale: float, window: int = 0
) -> torch.Tensor:
    """See `paged.paged_extend_attention`."""
    tokens, heads, head_dim = q.shape
    requests, kv_heads = len(kv.seq_lens), kv.k_cache.shape[1]
    group = heads // kv_heads
    out = torch.empty((tokens, heads, head_dim), dtype=q.dtype, device=q.device)
    if not tokens:
        return out
    block_g = triton.next_power_of_2(group)
    block_q = max(tile_for(q) // block_g, 1)
    # A request with n new tokens has ceil(n / block_q) tiles: at most one more than its share of all.
    tiles = tokens // block_q + min(requests, tokens)
    _extend_kernel[(tiles, kv_heads)](
        q=q, k_cache=kv.k_cache, v_cache=kv.v_cache, page_table=kv.page_table, prefix_lens=prefix_lens,
        seq_lens=kv.seq_lens, out=out, stride_q_token=q.stride(0), stride_q_head=q.stride(1),
        stride_k=kv.k_cache.stride(0), stride_k_head=kv.k_cache.stride(1), stride_v=kv.v_cache.stride(0),
        stride_v_head=kv.v_cache.stride(1), stride_pages=kv.page_table.stride(0), heads=heads, scale=scale,
        window=window, group=group, head_dim=head_dim, requests=requests, PAGE_SIZE=kv.page_size,
        BLOCK_B=triton.next_power_of_2(requests), BLOCK_Q=block_q, BLOCK_G=block_g, BLOCK_N=tile_for(q),
        BLOCK_D=lanes_for(q), HAS_WINDOW=window > 0, **(wide_options(q) or {"num_warps": 8, "num_stages": 2}),
    )  # fmt: skip
    return out


def lanes_for(q: torch.Tensor) -> int:
    lanes: int = max(LEAST_DOT_SIZE, triton.next_power_of_2(q.shape[2]))
    return lanes


def tile_for(q: torch.Tensor) -> int:
    narrower = max(1, lanes_for(q) // NARROW)
    return max(LEAST_DOT_SIZE, TILE_BYTES // q.element_size() // narrower)


def wide_options(q: torch.Tensor) -> dict[str, int]:
    """Launch options of wide heads, with which no register is spilled and an A100's shared memory suffices; else none."""
    if lanes_for(q) <= NARROW:
        return {}
    return {"num_warps": 8, "num_stages": 2 if q.element_size() == 2 else 1}


def splits_for(programs: int, longest: int, processors: int) -> int:
    """Into how many parts rows are split so that `programs` times that many programs fill the device."""
    wanted = triton.cdiv(processors * PROGRAMS_PER_PROCESSOR, programs)
    return max(1, min(wanted, longest // LEAST_SPLIT, MOST_SPLITS))


def _processors(device: torch.device) -> int:
    if device.type != "cuda":
        return PROCESSORS_WITHOUT_A_DEVICE
    count: int = torch.cuda.get_device_properties(device).multi_processor_count
    return count
