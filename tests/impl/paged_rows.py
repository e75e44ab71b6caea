"""Rows whose pages lie at random, as after a long day, and a runner on them: what a scheduler hands to a runner.

With a window each page has a window page, at random as well, until it is evicted.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kvproof.impl.config import EngineConfig
from kvproof.impl.pools import RowPool
from kvproof.impl.runner import VOCAB_SIZE, ForwardInput
from kvproof.impl.transformer_runner import TransformerRunner


def prompt(seed: int, count: int) -> list[int]:
    return torch.randint(1, VOCAB_SIZE, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


class PagedRows:
    """`rows` rows of `width` positions, each backed by pages of its own; the runner's model is drawn from `seed`."""

    def __init__(self, page_size: int = 4, rows: int = 4, width: int = 128, seed: int = 0, **settings: object) -> None:
        self.page_size = page_size
        pages_per_row = -(-width // page_size)
        self.pool_pages = rows * pages_per_row + 3
        if settings.get("window"):
            settings["window_pages"] = self.pool_pages
        self.config = EngineConfig(  # type: ignore[arg-type]
            page_size=page_size, pool_pages=self.pool_pages, rows=rows, row_width=width, seed=seed, **settings
        )
        order = torch.randperm(self.pool_pages, generator=torch.Generator().manual_seed(seed)) + 1
        self.pages = order[: rows * pages_per_row].view(rows, pages_per_row)
        self.pool = RowPool(rows, width, "fifo")
        for row in range(1, rows + 1):
            self.pool.req_to_token[row] = self.kv_indices(row)[:width]
        window_order = torch.randperm(self.pool_pages, generator=torch.Generator().manual_seed(seed + 1)) + 1
        self.full_to_window = torch.cat((torch.zeros(1, dtype=torch.int32), window_order.to(torch.int32)))
        self.runner = TransformerRunner(self.config, self.pool, self.full_to_window if self.config.window else None)

    def page(self, row: int, position: int) -> int:
        return int(self.pages[row - 1, position // self.page_size])

    def kv_indices(self, row: int) -> torch.Tensor:
        return (
            (self.pages[row - 1][:, None] * self.page_size + torch.arange(self.page_size)).reshape(-1).to(torch.int32)
        )

    def clobber(self, buffers: Sequence[torch.Tensor], page: int) -> None:
        """Write something else over the KV of one page."""
        lines = slice(page * self.page_size, (page + 1) * self.page_size)
        for buffer in buffers:
            buffer[lines] = 3 * torch.randn(buffer[lines].shape, generator=torch.Generator().manual_seed(page))

    def prefill(self, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
        return self.runner.launch([ForwardInput(row, 0, tokens) for row, tokens in enumerate(prompts, 1)]).tokens()

    def generate(self, prompts: Sequence[Sequence[int]], count: int, drafts: int = 0) -> list[list[int]]:
        """At least `count` output tokens of each prompt, prompt n in row n; what a last round gives beyond it is cut."""
        return self.decode(self.prefill(prompts), count, drafts)

    def decode(self, outputs: list[list[int]], count: int, drafts: int = 0) -> list[list[int]]:
        while short := [row for row, output in enumerate(outputs, 1) if len(output) < count]:
            for row, tokens in zip(short, self.runner.launch((), short, drafts).tokens(), strict=True):
                outputs[row - 1] += tokens
        return [output[:count] for output in outputs]
