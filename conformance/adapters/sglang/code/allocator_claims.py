"""What SGLang's allocators must do: which pages come back with the indices of a row, and how many are taken."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import z3

from kvproof.conformance.adapters.sglang.code.allocator_scene import FOUND, ONCE, AllocatorScene, Freed
from kvproof.conformance.adapters.sglang.code.claims import YES, Release
from kvproof.conformance.adapters.sglang.code.layout import BATCH
from kvproof.model.code.claims import Claim, Expected
from kvproof.model.symbolic import Symbols
from kvproof.spec.effects import Free, Take
from kvproof.spec.state import Ledger

ALLOCATOR = "sglang.srt.mem_cache.allocator"
PAGED = {f"{ALLOCATOR}.paged": "PagedTokenToKVPoolAllocator", ALLOCATOR: "PagedTokenToKVPoolAllocator"}
SINGLE = {f"{ALLOCATOR}.token": "TokenToKVPoolAllocator", ALLOCATOR: "TokenToKVPoolAllocator"}
SEGMENT = "free_segment"
A_ROW = "the indices are those of a row from R on, all of them: the pages behind it are the allocator's own"
TAKEN = "pages that are taken from the free ones"
LAUNCHED = "the kernel gets the lengths, the slots before them and the free pages, and fills what is returned"
KERNEL = "which indices the allocator's kernel writes is not looked at; the free pages are as many as are needed"


def allocators(release: Release) -> Iterator[Claim]:
    """The claims about the allocators; none where the tree has no batch."""
    if not release.sources.has(BATCH, "ScheduleBatch"):
        return
    yield _free(release, "free", PAGED)
    yield _free(release, "free, single slots", SINGLE)
    if any(release.sources.has(module, f"{kind}.{SEGMENT}") for module, kind in PAGED.items()):
        yield _free(release, "free, a segment", PAGED, SEGMENT)
    yield _takes(release, "alloc_extend", "extend")
    yield _takes(release, "alloc_decode", "decode")


def _free(release: Release, name: str, classes: Mapping[str, str], method: str = "free") -> Claim:
    """A slot's row is freed, as `close` does: its whole pages come back, each once, at once or in two parts of one group."""
    action = release.actions["close"]
    module, kind = _place(release, classes, method)

    def rule(d: Symbols, s: Ledger, p: SimpleNamespace) -> Expected:
        step = action.run(d, s, p)
        freed = tuple(effect for effect in step.effects if isinstance(effect, Free))
        page = (d.page_size == 1,) if classes is SINGLE else ()
        return Expected(
            (action.applies(d, s), s.slot_held, *release.given(d, s), *page), step.after, freed, {ONCE: YES, FOUND: YES}
        )

    def free(scene: AllocatorScene) -> Any:
        allocator, s = scene.allocator_of(module, kind), scene.s
        in_group = scene.run.paths.decide(z3.Bool("several frees are one"))
        if in_group:
            scene.ask(allocator, "free_group_begin")
        start, end = s.slot_cache_protected_len, s.slot_kv_allocated_len
        bounds = [start, end]
        if in_group and method != SEGMENT:
            scene.run.paths.assume(z3.And(start < scene.p.cut, scene.p.cut < end))
            bounds.insert(1, scene.p.cut)
        for first, last in itertools.pairwise(bounds):
            where = {"start_pos": first} if method == SEGMENT else {}
            scene.ask(allocator, method, Freed(scene.run, first, last), **where)
        if in_group:
            scene.ask(allocator, "free_group_end")
        return allocator

    def shows(scene: AllocatorScene, allocator: Any) -> Mapping[str, Any]:
        return scene.came(allocator)

    places = {module: f"{kind}.{method}"}
    params = {"cut": "length"}
    return release.claim(
        name, places, rule, free, shows, params=params, action="close", assumes=(A_ROW,), kind=AllocatorScene
    )


def _takes(release: Release, method: str, name: str) -> Claim:
    action = release.actions[name]
    module, kind = _place(release, PAGED, method)

    def rule(d: Symbols, s: Ledger, p: SimpleNamespace) -> Expected:
        step = action.run(d, s, p)
        take = next(effect for effect in step.effects if isinstance(effect, Take))
        guards = (guard.holds for guard in step.guards)
        more = (d.page_size > 1, take.last - take.first <= p.free_pages)
        return Expected((action.applies(d, s), *guards, *more), s, (), {TAKEN: take.last - take.first, LAUNCHED: YES})

    def allocate(scene: AllocatorScene) -> Any:
        allocator, s, d = scene.allocator_of(module, kind), scene.s, scene.d
        if name == "extend":
            start, end = s.prefix_len, scene.p.seq_len
            lens, more = [scene.each(length) for length in (start, start, end, end)], [end - start]
        else:
            end = s.kv_committed_len + d.one
            lens, more = [scene.each(end), scene.each(end)], []
        last_loc = scene.each(0)
        indices = scene.ask(allocator, method, *lens, last_loc, *more)
        return allocator, scene.kernel.is_launched([*lens[::2], last_loc], scene.free_pages, indices)

    def shows(scene: AllocatorScene, result: Any) -> Mapping[str, Any]:
        allocator, is_launched = result
        return {TAKEN: allocator.fields["free_pages"].taken, LAUNCHED: is_launched}

    params = {**action.params, "free_pages": "count"}
    places = {module: f"{kind}.{method}"}
    return release.claim(
        f"{name}, pages",
        places,
        rule,
        allocate,
        shows,
        params=params,
        action=name,
        assumes=(KERNEL,),
        kind=AllocatorScene,
    )


def _place(release: Release, classes: Mapping[str, str], method: str) -> tuple[str, str]:
    module, _ = release.place_of({module: f"{kind}.{method}" for module, kind in classes.items()})
    return module, classes[module]
