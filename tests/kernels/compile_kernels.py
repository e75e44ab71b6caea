"""Compiles every kernel to machine code for a CUDA device, on a machine without one: `python compile_kernels.py 90`.

The argument is the compute capability. Prints one line per kernel: its name, and registers and spilled bytes a thread.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kvproof.kernels import triton_allocation, triton_attention, triton_census, triton_store, triton_trace_ring

FLOATS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def pointers(names: str, dtype: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), dtype)


def kernels() -> Iterator[tuple[Any, dict[str, str], dict[str, Any], dict[str, int]]]:
    """Kernel, what its pointers point to, its compile-time numbers, and launch options."""
    for dtype in FLOATS:
        cache = pointers("q k_cache v_cache out", dtype) | pointers("page_table seq_lens prefix_lens", "i32")
        parts = pointers("part_out part_highest part_total", "fp32")
        block = triton_attention.TILE_BYTES // (4 if dtype == "fp32" else 2)
        sizes = {"PAGE_SIZE": 16, "BLOCK_N": block, "BLOCK_D": 128}
        for windowed, split in ((False, False), (True, True)):
            chosen = {"BLOCK_G": 16, "HAS_WINDOW": windowed, "SPLIT": split}
            options = {"num_warps": 4, "num_stages": 3}
            yield triton_attention._decode_kernel, cache | parts, sizes | chosen, options
        tile = {"BLOCK_B": 64, "BLOCK_Q": block // 4, "BLOCK_G": 4, "HAS_WINDOW": True}
        yield triton_attention._extend_kernel, cache, sizes | tile, {"num_warps": 8, "num_stages": 2}
        yield triton_attention._join_kernel, parts | {"out": dtype}, {"BLOCK_S": 16, "BLOCK_D": 128}, {}
        for head_dim in (256, 576):
            q = torch.empty(
                (1, 8, head_dim), dtype=getattr(torch, {"fp32": "float32", "fp16": "half", "bf16": "bfloat16"}[dtype])
            )
            block, options = triton_attention.tile_for(q), triton_attention.wide_options(q)
            sizes = {"PAGE_SIZE": 16, "BLOCK_N": block, "BLOCK_D": triton_attention.lanes_for(q)}
            chosen = {"BLOCK_G": 16, "HAS_WINDOW": True, "SPLIT": True}
            yield triton_attention._decode_kernel, cache | parts, sizes | chosen, options
            tile = {"BLOCK_B": 64, "BLOCK_Q": block // 4, "BLOCK_G": 4, "HAS_WINDOW": True}
            yield triton_attention._extend_kernel, cache, sizes | tile, options
        lines = pointers("k_cache v_cache latent_cache", dtype) | pointers("k v latent", "fp32") | {"kv_indices": "i64"}
        yield triton_store._kv_store_kernel, lines, {"BLOCK": 1024}, {}
        yield triton_store._latent_store_kernel, lines, {"BLOCK": 1024}, {}
    batch = pointers("free_pages prefix_lens seq_lens last_loc pages_taken rows starts ends req_to_token", "i32")
    for tokens_each in (0, 1):
        sizes = {"TOKENS_EACH": tokens_each, "PAGE_SIZE": 16, "BLOCK_B": 256, "BLOCK": triton_allocation.BLOCK}
        yield triton_allocation._alloc_kernel, batch | {"kv_indices": "i64"}, sizes, {}
    sizes = {"BLOCK_B": 256, "BLOCK": triton_allocation.BLOCK}
    yield triton_allocation._write_kernel, batch | {"kv_indices": "i64"}, sizes, {}
    tables = "header ranks displaced_free displaced_held lowest foreign_prefix"
    census = pointers(f"{tables} req_to_token rows first last tree_pages free_pages prefix_pages", "i32")
    yield triton_census._mark_kernel, census, {"PAGE_SIZE": 16, "BLOCK": triton_census.BLOCK}, {}
    yield triton_census._settle_kernel, census, {"PAGE_SIZE": 16, "BLOCK": triton_census.SETTLE_BLOCK}, {}
    lengths = pointers("kinds rows committed_lens allocated_lens protected_lens page_counts pages page_ring", "i32")
    ring = pointers("header ring", "i64")
    yield triton_trace_ring._append_kernel, lengths | ring, {"BLOCK": triton_trace_ring.BLOCK}, {}


def compile_for(capability: int) -> None:
    for kernel, of_pointers, sizes, options in kernels():
        signature, constants, hints = {}, {}, {}
        for place, name in enumerate(kernel.arg_names):
            if name in sizes:
                signature[name], constants[(place,)] = "constexpr", sizes[name]
            elif name in of_pointers:
                signature[name] = "*" + of_pointers[name]
            else:
                signature[name] = "fp32" if name == "scale" else "i32"
            # As a launch finds them: tensors and lines start at multiples of 16, else loads are not vectors.
            if name in kernel.do_not_specialize:
                continue
            if name in of_pointers or name.startswith("stride") or name == "head_dim":
                hints[(place,)] = [["tt.divisibility", 16]]
        source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=hints)
        compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
        told = " ".join(f"{name}={value}" for name, value in sizes.items())
        kind = of_pointers.get("q") or of_pointers.get("out") or of_pointers.get("k_cache") or ""
        print(
            kernel.__name__,
            kind,
            told,
            resources(compiled.asm["cubin"]),
            f"{compiled.metadata.shared} bytes shared",
            sep="  ",
            flush=True,
        )


def resources(cubin: bytes) -> str:
    """What a thread takes: registers, and bytes of stack where registers were too few."""
    dump = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(dump), "-res-usage", file.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    usage = re.search(r"REG:(\d+) STACK:(\d+)", said)
    assert usage is not None, said
    return f"{usage[1]} registers, {usage[2]} bytes spilled"


if __name__ == "__main__":
    compile_for(int(sys.argv[1]))
