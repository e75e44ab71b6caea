"""Runs the transformer on the rows of the page table.

The state of a row lives on the device: its tokens (`history`) and how many of them have KV (`seq_lens`); the token behind
those is the next one. So a forward can be launched before the host knows what the last one predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from kvproof.impl.config import ConfigError, EngineConfig
from kvproof.impl.device_stream import DeviceStream, Download
from kvproof.impl.drafter import Drafter, ModelDrafter, NGramDrafter
from kvproof.impl.paged_forward import ForwardBatch, PagedLayers, PageTables
from kvproof.impl.runner import FinishedLaunch, ForwardInput, Launch
from kvproof.impl.transformer import LAYERS, Transformer, logits_from_scratch

__all__ = ["Transformer", "TransformerRunner", "logits_from_scratch"]


@dataclass
class RowBound:
    """What the host knows of a row's length: at most so many tokens, while the outcome of some launches is not known."""

    longest: int


class PageTable(Protocol):
    @property
    def req_to_token(self) -> torch.Tensor:
        """[rows + 1, row width], int32: the KV index of each position."""


class TransformerLaunch:
    """The predictions of one forward: one per extend, then drafts + 1 per decode, then the accepted drafts of each decode."""

    def __init__(self, download: Download, extends: int, decodes: Sequence[RowBound], drafts: int) -> None:
        self._download = download
        self._extends = extends
        self._decodes = decodes
        self._drafts = drafts
        self._result: list[list[int]] | None = None

    def tokens(self) -> list[list[int]]:
        if self._result is None:
            self._result = self._split(self._download.wait())
        return self._result

    def _split(self, values: list[int]) -> list[list[int]]:
        result = [[token] for token in values[: self._extends]]
        accepted = values[len(values) - len(self._decodes) :]
        for index, (row, count) in enumerate(zip(self._decodes, accepted, strict=True)):
            first = self._extends + index * (self._drafts + 1)
            result.append(values[first : first + count + 1])
            row.longest -= self._drafts - count
        return result


class TransformerRunner:
    """The most likely token is the next one.

    `window_map` [pool_pages + 1] tells the window page of each page, 0 for none; a model with a sliding window needs it. It is
    read at each launch, as the page table is. Both are on the host, or both on the device; there, what is done to them is done
    on `stream`, so that a forward finds them as they were when it was launched.
    """

    def __init__(
        self,
        config: EngineConfig,
        rows: PageTable,
        window_map: torch.Tensor | None = None,
        stream: DeviceStream | None = None,
    ) -> None:
        if config.window and window_map is None:
            raise ConfigError(
                f"window {config.window} without a map from {config.pool_pages} pages to the window pool's"
            )
        if window_map is not None and len(window_map) != config.pool_pages + 1:
            raise ConfigError(
                f"the window map has {len(window_map)} entries, but pages 0 to {config.pool_pages} need "
                f"{config.pool_pages + 1}"
            )
        self.model = Transformer(config.seed, config.device, config.attention, config.window)
        self.layers = PagedLayers(self.model, LAYERS, config.pool_pages, config.window_pages or 0, config.page_size)
        self._drafter = self._build_drafter(config)
        self._drafts = config.drafts if self._drafter is not None else 0
        self._page_size = config.page_size
        self._rows = rows
        self._window_map = window_map if config.window else None
        self._bounds: dict[int, RowBound] = {}
        # A launch may run over the end of a row that ended with the launch before it, by one round of each.
        width = config.row_width + 1 + 2 * (self._drafts + 1)
        self._history = torch.zeros(config.rows + 1, width, dtype=torch.int64, device=config.device)
        self._seq_lens = torch.zeros(config.rows + 1, dtype=torch.int64, device=config.device)
        self._stream = stream if stream is not None else DeviceStream(config.device)
        self._stream.after_setup()

    def launch(self, extend: Sequence[ForwardInput] = (), decode: Sequence[int] = (), drafts: int = 0) -> Launch:
        if drafts > self._drafts:
            raise ConfigError(f"{drafts} drafts were asked for, but the runner was built for {self._drafts}")
        if not extend and not decode:
            return FinishedLaunch([])
        bounds = self._advance_bounds(extend, decode, drafts)
        with self._stream.running():
            rows = [*(item.row for item in extend), *decode]
            row_ids = self._stream.upload(torch.tensor(rows))
            tables = self._page_tables(rows, row_ids, max(bound.longest for bound in bounds))
            self._set_rows(extend)
            if drafts and decode:
                self._draft(row_ids[len(extend) :], tables.from_request(len(extend)), drafts)
            batch, wanted = self._batch(extend, row_ids, drafts, tables)
            predicted = self.sample(self.model.logits(self.layers.hidden(batch)[wanted]))
            accepted = self._advance(batch, wanted, predicted, row_ids, len(extend), drafts)
            if self._drafter is not None:
                self._drafter.follow(batch)
            download = self._stream.download(torch.cat((predicted, accepted)))
        return TransformerLaunch(download, len(extend), bounds[len(extend) :], drafts)

    def sample(self, logits: torch.Tensor) -> torch.Tensor:
        """The next token after each of logits [n, vocabulary]."""
        return logits.argmax(dim=-1)

    def _advance_bounds(self, extend: Sequence[ForwardInput], decode: Sequence[int], drafts: int) -> list[RowBound]:
        """An extend begins a new bound: the results of launches before it no longer tell anything about the row."""
        for item in extend:
            self._bounds[item.row] = RowBound(item.seq_len)
        for row in decode:
            self._bounds[row].longest += drafts + 1
        return [self._bounds[row] for row in (*(item.row for item in extend), *decode)]

    def _page_tables(self, rows: list[int], row_ids: torch.Tensor, longest: int) -> PageTables:
        """A copy of what the rows name now, with padding behind their end: they may be changed right afterwards."""
        table = self._rows.req_to_token
        at = row_ids if table.device == row_ids.device else torch.tensor(rows)
        named = table[at, : longest : self._page_size] // self._page_size
        pages = torch.zeros(len(rows), -(-longest // self._page_size), dtype=torch.int32, device=table.device)
        pages[:, : named.shape[1]] = named
        window = None if self._window_map is None else self._stream.upload(self._window_map[pages.long()])
        return PageTables(self._stream.upload(pages), window, self._page_size)

    def _set_rows(self, extend: Sequence[ForwardInput]) -> None:
        if not extend:
            return
        tokens = self._stream.upload(torch.tensor([token for item in extend for token in item.token_ids]))
        for item, token_ids in zip(extend, tokens.split([item.seq_len for item in extend]), strict=True):
            self._history[item.row, : item.seq_len] = token_ids
            self._seq_lens[item.row].fill_(item.prefix_len)  # an assignment would copy from the host, and wait

    def _draft(self, row_ids: torch.Tensor, tables: PageTables, drafts: int) -> None:
        """Write guesses behind the last token of each decoding row."""
        assert self._drafter is not None  # or else no drafts were allowed
        history, seq_lens = self._history[row_ids], self._seq_lens[row_ids]
        behind = seq_lens[:, None] + 1 + torch.arange(drafts, device=row_ids.device)
        self._history[row_ids[:, None], behind] = self._drafter.propose(history, seq_lens, tables, drafts)

    def _batch(
        self, extend: Sequence[ForwardInput], row_ids: torch.Tensor, drafts: int, tables: PageTables
    ) -> tuple[ForwardBatch, torch.Tensor]:
        """The tokens that run, and which of them a prediction is wanted for: the last of an extend, all of a decode."""
        decodes = len(row_ids) - len(extend)
        counts = torch.tensor([item.seq_len - item.prefix_len for item in extend] + [drafts + 1] * decodes)
        ends = counts.cumsum(0)
        extended = int(ends[len(extend) - 1]) if extend else 0
        wanted = torch.cat((ends[: len(extend)] - 1, torch.arange(extended, int(ends[-1]))))
        request_of_token = torch.arange(len(counts)).repeat_interleave(counts)
        offsets = torch.arange(int(ends[-1])) - (ends - counts)[request_of_token]

        upload = self._stream.upload
        request_of_token = upload(request_of_token)
        prefix_lens = self._seq_lens[row_ids]
        positions = prefix_lens[request_of_token] + upload(offsets)
        token_ids = self._history[row_ids[request_of_token], positions]
        seq_lens = prefix_lens + upload(counts)
        return ForwardBatch(token_ids, positions, request_of_token, prefix_lens, seq_lens, tables), upload(wanted)

    def _advance(
        self,
        batch: ForwardBatch,
        wanted: torch.Tensor,
        predicted: torch.Tensor,
        row_ids: torch.Tensor,
        extends: int,
        drafts: int,
    ) -> torch.Tensor:
        """Each row advances to its new length; how many drafts of each decode were accepted.

        Accepted are the drafts up to the first one that the target did not predict itself. What it predicts after them is
        the bonus. KV and tokens of rejected drafts stay behind the row's length until they are overwritten.
        """
        ran, answered = (tokens[extends:].view(-1, drafts + 1) for tokens in (batch.token_ids[wanted], predicted))
        accepted = (ran[:, 1:] == answered[:, :-1]).long().cumprod(dim=1).sum(dim=1)
        self._history[row_ids[batch.request_of_token[wanted]], batch.positions[wanted] + 1] = predicted
        decoded = batch.prefix_lens[extends:] + accepted + 1
        self._seq_lens[row_ids] = torch.cat((batch.seq_lens[:extends], decoded))
        return accepted

    def _build_drafter(self, config: EngineConfig) -> Drafter | None:
        if not config.speculation:
            return None
        if config.drafter == "ngram":
            return NGramDrafter()
        return ModelDrafter(self.model, config.pool_pages, config.page_size)
