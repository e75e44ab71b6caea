"""Figures of a CUDA device: how they are timed, what they are held against, and the file that keeps them. Used by `gpu.py`."""

from __future__ import annotations

import json
import re
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.table import Table

RESULTS = Path(__file__).parent / "results"
ARRANGEMENT_OF_RESULTS = 2
"""Raised when the result file changes its shape."""


Work = Callable[[], object]


@dataclass(frozen=True)
class Sizes:
    census_pages: int = 1_000_000
    census_rows: int = 4096
    batch: int = 256
    context: int = 8192
    attention_batch: int = 64
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    copy_bytes: int = 2**31


SMOKE = Sizes(
    census_pages=300,
    census_rows=8,
    batch=4,
    context=40,
    attention_batch=2,
    heads=4,
    kv_heads=2,
    head_dim=16,
    copy_bytes=2**12,
)


@dataclass(frozen=True)
class Figure:
    """One line of the table. Microseconds; `target` is the share of the floor, or the time, that should be reached."""

    name: str
    median_us: float
    fastest_us: float
    slowest_us: float
    bytes_moved: int | None = None
    floor_us: float | None = None
    share_of_floor: float | None = None
    target: str = ""
    met: bool | None = None


class Bench:
    """Times work on one device and keeps the figures."""

    def __init__(self, device: torch.device, sizes: Sizes, repeats: int) -> None:
        self.device, self.sizes, self.repeats = device, sizes, repeats
        # At tiny sizes nothing is held against a floor or a target.
        self._judges = sizes != SMOKE
        self.bytes_per_us: float | None = None
        self.figures: list[Figure] = []

    def time(self, work: Work) -> list[float]:
        """Microseconds of each repeat, by replays of a captured graph."""
        if self.device.type != "cuda":
            return self.time_launched(work)
        # A capture needs kernels that are compiled and a stream that is not the default one.
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                work()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        graph.replay()
        return [self._between_events(graph.replay) for _ in range(self.repeats)]

    def time_launched(self, work: Work) -> list[float]:
        """Microseconds of each repeat, launched from Python and waited for."""
        for _ in range(3):
            work()
        found = []
        for _ in range(self.repeats):
            self._wait()
            begin = time.perf_counter()
            work()
            self._wait()
            found.append((time.perf_counter() - begin) * 1e6)
        return found

    def add(
        self,
        name: str,
        times: list[float],
        bytes_moved: int | None = None,
        share: float | None = None,
        most_us: float | None = None,
        times_of: Figure | None = None,
    ) -> Figure:
        """Keep a figure. What meets its target: `share` of the floor or more; `most_us` or less; 20 times another's time."""
        median = statistics.median(times)
        floor = (
            bytes_moved / self.bytes_per_us if bytes_moved is not None and self.bytes_per_us and self._judges else None
        )
        reached = floor / median if floor is not None else None
        target, met = "", None
        if share is not None and reached is not None:
            target, met = f"{share:.0%} of the floor", reached >= share
        elif most_us is not None and self._judges:
            target, met = f"under {most_us:g} us", median < most_us
        elif times_of is not None and self._judges:
            target, met = f"20 times {times_of.name}", median >= 20 * times_of.median_us
        figure = Figure(name, median, min(times), max(times), bytes_moved, floor, reached, target, met)
        self.figures.append(figure)
        return figure

    def integers(self, numbers: torch.Tensor | list[int]) -> torch.Tensor:
        return torch.as_tensor(numbers).to(self.device, torch.int32)

    def _between_events(self, work: Work) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        # The cache keeps nothing of the last repeat: a server does other things between two of these.
        self._flush_cache()
        begin.record()
        work()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1000

    def _flush_cache(self) -> None:
        torch.empty(2**28, dtype=torch.uint8, device=self.device).fill_(1)

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def result(bench: Bench, name: str) -> dict[str, object]:
    """What is written: the device, the versions that made the figures, and the figures."""
    import triton

    return {
        "arrangement": ARRANGEMENT_OF_RESULTS,
        "device": name,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cuda": torch.version.cuda,
        "repeats": bench.repeats,
        "bytes_per_us": bench.bytes_per_us,
        "sizes": asdict(bench.sizes),
        "figures": [asdict(figure) for figure in bench.figures],
    }


def write(bench: Bench, name: str, folder: Path = RESULTS) -> Path:
    """The result file of a device."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{slug(name)}.json"
    path.write_text(json.dumps(result(bench, name), indent=2) + "\n")
    return path


def table_of(figures: list[Figure], title: str) -> Table:
    table = Table(title=title)
    for heading in ("figure", "median", "spread", "floor", "of floor", "target", "met"):
        table.add_column(heading, justify="left" if heading in ("figure", "target") else "right")
    for figure in figures:
        table.add_row(figure.name, *_cells(figure))
    return table


def _cells(figure: Figure) -> Iterator[str]:
    yield f"{figure.median_us:.1f} us"
    yield f"{figure.fastest_us:.1f} to {figure.slowest_us:.1f}"
    yield "" if figure.floor_us is None else f"{figure.floor_us:.1f} us"
    yield "" if figure.share_of_floor is None else f"{figure.share_of_floor:.0%}"
    yield figure.target
    yield {None: "", True: "yes", False: "no"}[figure.met]
