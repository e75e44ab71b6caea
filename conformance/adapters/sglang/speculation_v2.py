"""Rounds of speculation, version 2: what each of them takes, and the position that it claims.

A round writes the KV of the token that is known last, and of the drafts behind it. In a trace that position is committed from
when the round is launched, as it is for a decode step (docs/events.md). Releases count it then (0.5.11 to 0.5.14), or once
the result of the round is processed (0.5.10.post1, 0.5.17 and later). Which of both is seen at each round, not asked for.
"""

from __future__ import annotations

from typing import Any

from kvproof.conformance.adapters.sglang.releases import Release

Lengths = tuple[int, int, int]


class Rounds:
    def __init__(self, release: Release) -> None:
        self._lengths_of = release.lengths
        # Of each request that is being prepared, its lengths before.
        self._before: dict[str, Lengths] = {}
        self._not_counted: dict[str, int] = {}
        """Launched rounds of each request whose position the release does not count yet."""

    def come(self, batch: Any) -> None:
        """Before `prepare_for_decode(batch)`."""
        self._before = {req.rid: lengths for req, lengths in zip(batch.reqs, self._lengths_of(batch.reqs), strict=True)}

    def launched(self, reqs: list[Any]) -> list[tuple[int, int]]:
        """Of each request of the batch that was prepared: the positions [start, end) that its round took."""
        taken = []
        for req, (committed, allocated, _) in zip(reqs, self._lengths_of(reqs), strict=True):
            committed_before, allocated_before, _ = self._before[req.rid]
            if committed == committed_before:
                self._not_counted[req.rid] = self._not_counted.get(req.rid, 0) + 1
            taken.append((allocated_before, allocated))
        return taken

    def results_come(self, batch: Any, result: Any) -> None:
        """Before the results of a batch are processed; a prefill's has no rounds."""
        if getattr(result, "accept_lens", None) is None:
            return
        for req in batch.reqs:
            if self._not_counted.get(req.rid, 0) > 1:
                self._not_counted[req.rid] -= 1
            else:
                self._not_counted.pop(req.rid, None)

    def over(self, rid: str) -> None:
        """The request was retracted, or is over: what is in flight will be dropped."""
        self._not_counted.pop(rid, None)

    def lengths(self, reqs: list[Any]) -> list[Lengths]:
        """As in a trace: with every position that a launched round writes."""
        return [
            (committed + self._not_counted.get(req.rid, 0), allocated, protected)
            for req, (committed, allocated, protected) in zip(reqs, self._lengths_of(reqs), strict=True)
        ]
