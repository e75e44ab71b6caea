"""The allocators of SGLang themselves: their list of free pages, and the KV indices that they take back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import z3

from kvproof.conformance.adapters.sglang.code.batch_scene import BatchScene
from kvproof.conformance.adapters.sglang.code.batch_stand_ins import NOTHING, PerRequest, has_entries
from kvproof.conformance.adapters.sglang.code.claims import Act
from kvproof.conformance.adapters.sglang.code.layout import class_at
from kvproof.conformance.adapters.sglang.code.stand_ins import TORCH, Indices, joined
from kvproof.model.code import arithmetic
from kvproof.model.code.errors import NotUnderstoodError
from kvproof.model.code.interpreter import Interpreter
from kvproof.model.code.values import Instance, Known, Library, Opaque, StandIn
from kvproof.spec.effects import Free
from kvproof.spec.state import Ledger

UTILS = "sglang.srt.utils.common"
"""Where `get_num_new_pages` is: `sglang.srt.utils` hands on all of it."""
ONCE = "each page is freed once"
FOUND = "where nobody sorts the free pages, what is freed is among them at once"


class Freed(Indices):
    """KV indices of a row that are given back: divided by the page size, they are pages."""

    def operated(self, operator: str, right: Any) -> Any:
        if operator != "FloorDiv" or not arithmetic.is_page_size(right):
            return NotImplemented
        return PageIds(self.run, self.start, self.end, is_unique=False)

    def clone(self) -> Freed:
        return self

    def at(self, start: Any, end: Any) -> Freed:
        return Freed(self.run, start, end)

    def item(self, key: Any) -> Any:
        """Every P-th index from the first of a page on: one of each page."""
        is_by_page = (
            isinstance(key, slice) and key.start is None and key.stop is None and arithmetic.is_page_size(key.step)
        )
        if not is_by_page:
            raise NotUnderstoodError("some of the indices that are freed")
        return OneOfEach(self.run, self.start, self.end)


class OneOfEach(StandIn):
    """The first index of each page behind row positions [start, end)."""

    members = frozenset({"clone"})

    def __init__(self, run: Interpreter, start: Any, end: Any) -> None:
        self.run, self.start, self.end = run, start, end

    def clone(self) -> OneOfEach:
        return self

    def operated(self, operator: str, right: Any) -> Any:
        if operator != "FloorDiv" or not arithmetic.is_page_size(right):
            return NotImplemented
        return PageIds(self.run, self.start, self.end, is_unique=True)


class PageIds(StandIn):
    """The pages behind row positions [start, end): each once, or as often as it has indices."""

    members = frozenset({"clone", "numel"})

    def __init__(self, run: Interpreter, start: Any, end: Any, *, is_unique: bool) -> None:
        self.run, self.start, self.end, self.is_unique = run, start, end, is_unique

    def clone(self) -> PageIds:
        return self

    def numel(self) -> Any:
        d = self.run.d
        return d.ceil_pages(arithmetic.as_length(d, self.end)) - d.floor_pages(arithmetic.as_length(d, self.start))


class FreeList(StandIn):
    """Free pages: how many there were, those that came, and how many were taken."""

    members = frozenset({"dtype"})
    dtype = TORCH.members["int64"]

    def __init__(self, count: Any, came: tuple[Any, ...] = (), taken: Any = 0) -> None:
        self.count, self.came, self.taken = count, came, taken

    def length(self) -> Any:
        if self.came:
            raise NotUnderstoodError("the length of a list to which pages came")
        return self.count - self.taken

    def item(self, key: Any) -> Any:
        if not isinstance(key, slice) or key.step is not None or (key.start is None) == (key.stop is None):
            raise NotUnderstoodError("an item of the list of free pages")
        if key.start is None:
            return Opaque("the first free pages")
        return FreeList(self.count, self.came, self.taken + key.start)


class Kernel(StandIn):
    """A kernel of the device, launched on a grid: what it writes is not described, what it is given is noted."""

    def __init__(self) -> None:
        self.launches: list[tuple[Any, ...]] = []

    def item(self, key: Any) -> Any:
        return Known("kernel", lambda *given: self.launches.append(given))

    def is_launched(self, tensors: Sequence[Any], free_pages: FreeList, indices: Any) -> Any:
        """Once, with these tensors, all free pages as they are, the tensor that it fills, and the page size."""
        if len(self.launches) != 1 or len(self.launches[0]) != len(tensors) + 4:
            return False
        *given, free, filled, _, page_size = self.launches[0]
        is_so = all(one is other for one, other in zip(given, tensors, strict=True))
        is_so = is_so and not free.taken and filled is indices and arithmetic.is_page_size(page_size)
        return z3.And(is_so, free.count == free_pages.count)


class AllocatorScene(BatchScene):
    """An allocator with its list of free pages."""

    def __init__(self, run: Interpreter, s: Ledger, p: SimpleNamespace, act: Act) -> None:
        super().__init__(run, s, p, act)
        run.library = {**run.library, "torch": _torch(run)}

    def allocator_of(self, module: str, name: str) -> Instance:
        self.kernel = Kernel()
        chosen = dict.fromkeys(("alloc_extend_kernel", "alloc_decode_kernel"), self.kernel) | {
            "next_power_of_2": NOTHING
        }
        self.run.given = {**self.run.given, f"{UTILS}.torch": self.run.library["torch"]}
        chosen["get_num_new_pages"] = self.run.imported(UTILS, "get_num_new_pages")
        self.run.given = {**self.run.given, **{f"{module}.{name}": found for name, found in chosen.items()}}
        made = Instance(class_at(self.run, {module: name}))
        self.sorts = self.run.paths.decide(z3.Bool("free pages are kept sorted"))
        self.free_pages = FreeList(getattr(self.p, "free_pages", 0))
        made.fields |= {
            "page_size": self.inner.page_size,
            "need_sort": self.sorts,
            "debug_mode": False,
            "use_triton_kernels": True,
            "device": "cuda",
            "free_pages": self.free_pages,
            "release_pages": FreeList(0),
            "staged_pages": [],
            "num_staged_pages": 0,
            "free_page_ids_group": [],
            "free_page_reps_group": [],
            "is_not_in_free_group": True,
            "free_group": None,
        }
        return made

    def came(self, allocator: Instance) -> Mapping[str, Any]:
        """The pages that came to any of its lists, as effects."""
        lists = [allocator.fields[name] for name in ("free_pages", "release_pages")]
        pages = [page for found in lists for page in found.came] + allocator.fields["staged_pages"]
        once = True
        for found in pages:
            start, end = (arithmetic.as_length(self.d, bound) for bound in (found.start, found.end))
            first, last = self.d.floor_pages(start), self.d.ceil_pages(end)
            once = once and found.is_unique
            self.effects.append(Free(self.d.tokens(first), self.d.tokens(last)))
        return {ONCE: z3.BoolVal(once), FOUND: z3.BoolVal(self.sorts or not allocator.fields["release_pages"].came)}


def _torch(run: Interpreter) -> Library:
    def unique(pages: PageIds) -> PageIds:
        return PageIds(run, pages.start, pages.end, is_unique=True)

    def cat(parts: Any) -> Any:
        found = run.elements(parts)
        if len(found) == 1:
            return found[0]
        if all(isinstance(part, Freed) for part in found):
            return joined(found)
        lists = [part for part in found if isinstance(part, FreeList)]
        came = [_pages(run, part) for part in found if not isinstance(part, FreeList)]
        if not lists:
            raise NotUnderstoodError("pages that are joined to no list of free pages")
        counts, taken = (sum((getattr(part, name) for part in lists), start=0) for name in ("count", "taken"))
        return FreeList(counts, (*(page for part in lists for page in part.came), *came), taken)

    def sort(pages: FreeList) -> tuple[FreeList, Opaque]:
        return pages, Opaque("an order")

    known: dict[str, Callable[..., Any]] = {"unique": unique, "cat": cat, "sort": sort}
    known |= {"sum": PerRequest.sum, "device": lambda name: name}
    known["empty"] = lambda shape, **_: FreeList(0) if has_entries(shape, 0) else Opaque("an empty tensor")
    return Library("torch", {**TORCH.members, **{name: Known(f"torch.{name}", f) for name, f in known.items()}})


def _pages(run: Interpreter, part: Any) -> PageIds:
    """Pages that come to a list. Indices are pages where a page has one slot."""
    if isinstance(part, PageIds):
        return part
    if isinstance(part, Freed) and run.paths.must(run.d.page_size == 1):
        return PageIds(run, part.start, part.end, is_unique=True)
    raise NotUnderstoodError("something other than pages is freed")
