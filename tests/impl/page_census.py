"""An independent recount: who owns each page and each row, who holds each lock, and whether the running counters agree.

It reads page tables, tree and slots as they are and shares no arithmetic with the implementation.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from kvproof.impl.observe import Event
from kvproof.impl.radix import TreeNode
from kvproof.impl.scheduler import Scheduler


class Recorded:
    """An observer that keeps every event."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    def of(self, action: str, **fields: Any) -> list[Event]:
        return [
            event
            for event in self.events
            if event.action == action and all(getattr(event, name) == value for name, value in fields.items())
        ]


class Census:
    """After each step: what is wrong, in words; nothing if all is well. `check_terms` needs the scheduler's observer."""

    def __init__(self, recorded: Recorded | None = None) -> None:
        self.errors: list[str] = []
        self._recorded = recorded

    def __call__(self, scheduler: Scheduler) -> None:
        owners = page_owners(scheduler)
        found = [*page_errors(scheduler, owners), *row_errors(scheduler), *lock_errors(scheduler)]
        if self._recorded is not None:
            found += term_errors(scheduler, owners, self._recorded)
        self.errors += [f"step {scheduler.state.reporter.step}: {error}" for error in found]


def page_owners(scheduler: Scheduler) -> dict[int, list[str]]:
    """Each page with the names of its owners: free, tree, a live request, or a slot that no live request borrows from."""
    owners: defaultdict[int, list[str]] = defaultdict(list)
    for page in scheduler.state.allocator.free_list():
        owners[page].append("free")
    for node in tree_nodes(scheduler):
        for page in pages_of(scheduler, node.value.tolist()):
            owners[page].append("protected" if node.lock_ref else "evictable")
    live = live_requests(scheduler)
    for req in live:
        for page in row_pages(scheduler, req.req_pool_idx, req.cache_protected_len, req.kv_allocated_len):
            owners[page].append(f"uncached {req.rid}")
    for session_id, slot in scheduler.state.cache.slots.items():
        if slot.req_pool_idx is not None and slot.req_pool_idx not in {req.req_pool_idx for req in live}:
            for page in row_pages(scheduler, slot.req_pool_idx, slot.cache_protected_len, slot.kv_allocated_len):
                owners[page].append(f"held {session_id}")
    return owners


def page_errors(scheduler: Scheduler, owners: dict[int, list[str]]) -> list[str]:
    errors = []
    for page in range(scheduler.config.pool_pages + 1):
        names = owners.get(page, [])
        if len(names) != (1 if page else 0):
            errors.append(f"page {page} is owned by {' and '.join(names) or 'nobody'}")
    tree_pages = {page for page, names in owners.items() if names in (["protected"], ["evictable"])}
    for holder, row, protected in row_holders(scheduler):
        if protected % scheduler.config.page_size:
            errors.append(f"{holder}: cache_protected_len {protected} is not whole pages")
        if not row_pages(scheduler, row, 0, protected) <= tree_pages:
            errors.append(f"{holder}: the tree does not own the pages of [0, {protected})")
    return errors


def row_errors(scheduler: Scheduler) -> list[str]:
    live = {req.req_pool_idx for req in live_requests(scheduler)}
    users = [*scheduler.state.rows.free_list(), *[req.req_pool_idx for req in live_requests(scheduler)]]
    users += [slot.req_pool_idx for slot in scheduler.state.cache.slots.values() if slot.req_pool_idx not in live]
    counts = Counter(users)
    return [f"row {row} has {counts[row]} users" for row in range(1, scheduler.config.rows + 1) if counts[row] != 1]


def lock_errors(scheduler: Scheduler) -> list[str]:
    """A node's lock count is the number of holders at or below it; both counters are what a recount gives."""
    holders = [req.last_node for req in live_requests(scheduler)]
    holders += [slot.last_node for slot in scheduler.state.cache.slots.values()]
    expected: Counter[int] = Counter()
    for holder in holders:
        node: TreeNode | None = holder
        while node is not None:
            expected[id(node)] += 1
            node = node.parent
    nodes = tree_nodes(scheduler)
    errors = [
        f"node of {len(node.key)} tokens: lock_ref {node.lock_ref}, holders {expected[id(node)]}"
        for node in nodes
        if node.lock_ref != expected[id(node)]
    ]
    protected = sum(len(node.key) for node in nodes if node.lock_ref)
    evictable = sum(len(node.key) for node in nodes if not node.lock_ref)
    tree = scheduler.state.prefixes.tree
    if (protected, evictable) != (tree.protected_size, tree.evictable_size):
        errors.append(f"tree counters say {tree.protected_size} + {tree.evictable_size} tokens")
    return errors


def term_errors(scheduler: Scheduler, owners: dict[int, list[str]], recorded: Recorded) -> list[str]:
    """The memory check's terms, each against the true number of that owner's pages."""
    scheduler.check()
    terms = recorded.events[-1].terms
    assert terms is not None
    count = Counter(name.split()[0] for names in owners.values() for name in names)
    names = {"available": "free", "evictable": "evictable", "protected": "protected", "uncached": "uncached"}
    names["session_held"] = "held"
    errors = [
        f"{term} is {terms[term]}, true are {count[name]}" for term, name in names.items() if terms[term] != count[name]
    ]
    if sum(terms[term] for term in names) != terms["total"]:
        errors.append(f"the terms do not add up: {terms}")
    return errors


def tree_nodes(scheduler: Scheduler) -> list[TreeNode]:
    """Every node but the root; none where there is no tree."""
    return list(scheduler.state.prefixes.tree.nodes()) if scheduler.config.radix_cache else []


def live_requests(scheduler: Scheduler) -> list[Any]:
    return [
        *scheduler.state.running,
        *([scheduler.state.chunked_req] if scheduler.state.chunked_req is not None else []),
    ]


def row_holders(scheduler: Scheduler) -> list[tuple[str, int | None, int]]:
    live = [(req.rid, req.req_pool_idx, req.cache_protected_len) for req in live_requests(scheduler)]
    slots = scheduler.state.cache.slots.items()
    return live + [(name, slot.req_pool_idx, slot.cache_protected_len) for name, slot in slots]


def row_pages(scheduler: Scheduler, row: int | None, start: int, end: int) -> set[int]:
    if row is None:
        return set()
    return pages_of(scheduler, scheduler.state.rows.req_to_token[row, start:end].tolist())


def pages_of(scheduler: Scheduler, kv_indices: list[int]) -> set[int]:
    return {index // scheduler.config.page_size for index in kv_indices}
