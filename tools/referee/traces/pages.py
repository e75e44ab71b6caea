"""Page ids: of another prompt, repeated, in another order, freed by another, evicted too early."""

from __future__ import annotations

from itertools import pairwise

from referee.cases import Edits
from referee.traces.trace import Event, Trace, has

PAGES = Edits("page ids that moved wrongly")


def _in_tree(t: Trace, event: Event) -> list[int]:
    """Pages of the tree before this event, those of the last insert first. Only of pages that no free has named since."""
    pages: dict[int, None] = {}
    for earlier in t.events[: t.place(event)]:
        for page in earlier.get("free") or ():
            pages.pop(page, None)
        if earlier["action"] == "insert":
            pages.update(dict.fromkeys(earlier.get("shared") or ()))
    return list(reversed(pages))


@PAGES.wrong("sessions", must="I12: a shared prefix is a path of the tree")
def shared_in_another_order(t: Trace) -> None:
    """The matched pages are written to the row in reverse: the request reads another text than it sent."""
    event = t.first("extend", where=lambda e: len(e.get("shared") or ()) >= 2)
    event["shared"] = event["shared"][::-1]


@PAGES.wrong("sessions", must="I12: a shared prefix is a path of the tree")
def shared_page_twice(t: Trace) -> None:
    """The first matched page is written twice: tokens of page 1 are attended to at the place of page 2."""
    event = t.first("extend", where=lambda e: len(e.get("shared") or ()) >= 2)
    event["shared"][1] = event["shared"][0]


@PAGES.wrong("storm", must="I12: a shared prefix is a path of the tree")
def shared_of_another_prompt(t: Trace) -> None:
    """The matched pages are those of another prompt, which is in the tree, too: a user reads what another one wrote."""
    for event in t.all("extend", where=lambda e: len(e.get("shared") or ()) >= 2):
        others = [page for page in _in_tree(t, event) if page not in event["shared"]]
        if len(others) >= 2:
            event["shared"][1:] = others[: len(event["shared"]) - 1]
            return
    raise LookupError("the tree has no other pages")


@PAGES.wrong("storm", must="I12: a prefix of the tree has one content")
def shared_is_the_whole_prefix_of_another_prompt(t: Trace) -> None:
    """All matched pages are those of another prompt, from its first page on: a user reads what another one wrote."""
    for event in t.all("extend", where=has("shared")):
        tree, own = set(_in_tree(t, event)), event["shared"]
        for insert in (e for e in t.events[: t.place(event)] if e["action"] == "insert"):
            other = insert.get("shared") or []
            if len(other) == len(own) and tree.issuperset(other) and not set(own) & set(other):
                event["shared"] = list(other)
                return
    raise LookupError("the tree has no other prefix of that length")


@PAGES.wrong("sglang 0.5.11 window", must="I12: a shared prefix is a path of the tree")
def real_pages_in_another_order(t: Trace) -> None:
    """A real server's matched pages in reverse: a radix match that concatenates its nodes from leaf to root."""
    event = t.first("extend", where=lambda e: len(e.get("shared") or ()) >= 2)
    event["shared"] = event["shared"][::-1]


@PAGES.wrong("sessions", must="I12")
def shared_one_too_few(t: Trace) -> None:
    """One matched page was not written to the row: the row names a stale page there."""
    t.first("extend", where=has("shared"))["shared"].pop()


@PAGES.wrong("sessions", must="I12: as many as were matched")
def shared_one_too_many(t: Trace) -> None:
    """One page more than was matched is written to the row, over the pages that the request takes."""
    event = t.first("extend", where=has("shared"))
    event["shared"].append(event["shared"][0])


@PAGES.wrong("sessions", must="I1")
def shared_is_free(t: Trace) -> None:
    """A matched page is in the free list."""
    t.first("extend", where=has("shared"))["shared"][0] = t.config["pool_pages"]


@PAGES.wrong("pressure", must="I1")
def match_on_evicted_pages(t: Trace) -> None:
    """A request reuses pages that the tree evicted just before."""
    evicted = t.first("evict", where=has("free"))
    event = t.next_of(evicted, "extend", where=lambda e: e.get("shared") == [] and len(e["alloc"]) >= 2)
    match = [e for e in t.events[: t.place(event)] if e["action"] == "match" and e.get("turn") == event["turn"]][-1]
    for record in (match, event):
        record["after"]["prefix_len"] = record["after"]["cache_protected_len"] = t.config["page_size"]
    event["shared"], event["alloc"] = evicted["free"][:1], event["alloc"][1:]


@PAGES.wrong("storm", must="I13: a leaf is evicted before its parent")
def parent_evicted_under_its_leaf(t: Trace) -> None:
    """The tree evicts a page in the middle of a prefix and keeps its continuation, which no match can reach any more."""
    for evict in t.all("evict", where=has("free")):
        tree = set(_in_tree(t, evict))
        for insert in (e for e in t.events[: t.place(evict)] if e["action"] == "insert"):
            path = insert.get("shared") or ()
            for parent, leaf in pairwise(path):
                if leaf in evict["free"] and parent not in evict["free"] and {parent, leaf} <= tree:
                    t.rename_pages({parent: leaf, leaf: parent}, t.events[t.place(evict) :])
                    return
    raise LookupError("no leaf is evicted before its parent")


@PAGES.wrong("sessions", must="I1")
def alloc_of_a_taken_page(t: Trace) -> None:
    """The allocator hands out a page that another request has."""
    one, other = t.all("extend", where=has("alloc"))[:2]
    other["alloc"][0] = one["alloc"][-1]


@PAGES.wrong("sessions", must="I1")
def alloc_of_the_padding_page(t: Trace) -> None:
    """The allocator hands out page 0, into which every padded step writes."""
    t.first("decode", where=has("alloc"))["alloc"][0] = 0


@PAGES.wrong("sessions", must="I1")
def alloc_beyond_the_pool(t: Trace) -> None:
    """The allocator hands out a page that the pool does not have."""
    t.first("decode", where=has("alloc"))["alloc"][0] = t.config["pool_pages"] + 1


@PAGES.wrong("sessions", must="I1")
def alloc_of_one_page_twice(t: Trace) -> None:
    """One call hands out the same page twice: two pages of the row are one."""
    event = t.first("extend", where=lambda e: len(e.get("alloc") or ()) >= 2)
    event["alloc"][1] = event["alloc"][0]


@PAGES.wrong("sessions", must="I1")
def alloc_one_too_many(t: Trace) -> None:
    """A chunk takes a page more than it has tokens for: nobody frees it."""
    event = t.first("extend", where=has("alloc"))
    event["alloc"].append(t.config["pool_pages"])


@PAGES.wrong("sessions", must="I1")
def alloc_left_out(t: Trace) -> None:
    """A step that crossed a page boundary took no page: it wrote into whatever the row named."""
    t.first("decode", where=has("alloc")).pop("alloc")


@PAGES.wrong("sessions", must="I16")
def alloc_in_another_order(t: Trace) -> None:
    """The pages of a chunk are written to the row in reverse: what the tree gets are not the leading ones."""
    event = t.first("extend", where=lambda e: len(e.get("alloc") or ()) >= 3)
    event["alloc"] = event["alloc"][::-1]


@PAGES.wrong("sessions", must="I16")
def free_left_out(t: Trace) -> None:
    """The end of a request frees nothing: its pages are lost."""
    t.last("finish", where=has("free")).pop("free")


@PAGES.wrong("sessions", must="I16")
def free_one_too_few(t: Trace) -> None:
    """A close frees all pages but one."""
    t.last("close", where=has("free"))["free"].pop()


@PAGES.wrong("sessions", must="I16")
def free_twice_in_one_call(t: Trace) -> None:
    """A page is freed twice in one event: two requests will get it."""
    event = t.last("close", where=has("free"))
    event["free"].append(event["free"][0])


@PAGES.wrong("sessions", must="I16")
def free_again_later(t: Trace) -> None:
    """A page that went back before is freed once more by the next request that ends."""
    first = t.first("finish", where=has("free"))
    t.next_of(first, "finish", "close", where=has("free"))["free"].append(first["free"][0])


@PAGES.wrong("closes", must="I16")
def freed_by_another(t: Trace) -> None:
    """A session's pages are freed by the close of another session."""
    one, other = t.all("close", where=has("free"))[:2]
    one["free"], other["free"] = other["free"], one["free"]


@PAGES.wrong("retracts", must="I16")
def tail_is_not_freed(t: Trace) -> None:
    """The orphaned tail of a later turn is not freed (sglang #22862)."""
    t.first("match", where=has("free")).pop("free")


@PAGES.wrong("duplicates", must="I16")
def duplicates_are_not_freed(t: Trace) -> None:
    """Copies of what the tree had are not freed (sglang-jax #994)."""
    t.first("insert", where=has("free")).pop("free")


@PAGES.wrong("duplicates", must="I12")
def duplicates_replaced_by_another_page(t: Trace) -> None:
    """After an insert the row names a page of another prompt in place of the tree's own."""
    event = t.first("insert", where=has("free"))
    event["shared"][0], event["shared"][-1] = event["shared"][-1], event["shared"][0]


@PAGES.wrong("sessions", must="I12: `shared` of an insert are the row's pages")
def insert_shows_other_pages(t: Trace) -> None:
    """An insert without duplicates reports pages that the row does not have: row and tree do not name the same KV."""
    event = t.first("insert", where=lambda e: len(e.get("shared") or ()) >= 2 and not e.get("free"))
    event["shared"] = event["shared"][::-1]


@PAGES.wrong("pressure", must="I1")
def evict_a_page_of_a_request(t: Trace) -> None:
    """The tree evicts a page that a running request owns."""
    evict = t.last("evict", where=has("free"))
    owner = [e for e in t.events[: t.place(evict)] if e["action"] in ("extend", "decode") and e.get("alloc")][-1]
    evict["free"][0] = owner["alloc"][-1]


@PAGES.wrong("sessions", must="I11")
def evict_a_locked_page(t: Trace) -> None:
    """The tree evicts a page of a prefix that a request reads."""
    extend = t.first("extend", where=has("shared"))
    t.insert_after(extend, {"action": "evict", "free": extend["shared"][-1:]})


@PAGES.wrong("pressure", must="I1")
def evict_one_page_twice(t: Trace) -> None:
    """One eviction returns a page twice."""
    event = t.first("evict", where=has("free"))
    event["free"].append(event["free"][0])


@PAGES.wrong("pressure", must="I1")
def eviction_left_out(t: Trace) -> None:
    """Evictions were not recorded: pages are handed out that the tree has."""
    t.remove(*t.all("evict", where=has("free")))


@PAGES.wrong("pressure", must="refused: an eviction takes nothing")
def eviction_takes_pages(t: Trace) -> None:
    """An eviction takes a page that nothing ever frees: the field is not looked at."""
    t.first("evict")["alloc"] = [t.config["pool_pages"]]


@PAGES.wrong("checked", must="refused: a check moves no page")
def check_frees_pages(t: Trace) -> None:
    """The memory check frees pages of a running turn: the field is not looked at."""
    owner = t.first("extend", where=has("alloc"))
    t.next_of(owner, "check")["free"] = list(owner["alloc"])


@PAGES.wrong("sessions", must="I1")
def result_takes_a_page(t: Trace) -> None:
    """A page is taken when a result is processed: nobody frees it."""
    t.first("result")["alloc"] = [t.config["pool_pages"]]


@PAGES.wrong("sessions", must="refused: only an extend shares")
def decode_shares_pages(t: Trace) -> None:
    """A decode step writes tree pages over the row: the field is not looked at."""
    t.first("decode")["shared"] = [t.config["pool_pages"], t.config["pool_pages"] - 1]


@PAGES.wrong("window", must="I10")
def window_free_left_out(t: Trace) -> None:
    """What left the window is not freed: the window pool runs empty."""
    t.first("window", where=has("window_free")).pop("window_free")


@PAGES.wrong("window", must="I1")
def window_page_taken_twice(t: Trace) -> None:
    """The window pool hands out a page that another row names."""
    one = t.first("extend", where=has("window_alloc"))
    t.next_of(one, "decode", where=has("window_alloc"))["window_alloc"][0] = one["window_alloc"][-1]


@PAGES.wrong("window", must="I10")
def window_alloc_left_out(t: Trace) -> None:
    """A page of the full pool is taken without one of the window pool."""
    t.first("decode", where=has("window_alloc")).pop("window_alloc")


@PAGES.wrong("window", must="I10")
def window_page_freed_twice(t: Trace) -> None:
    """A window page that left the window is freed again when its request ends."""
    left = t.first("window", where=has("window_free"))
    t.next_of(left, "finish", where=has("free")).setdefault("window_free", []).append(left["window_free"][0])


@PAGES.wrong("window", must="I16")
def window_page_evicted_twice(t: Trace) -> None:
    """One eviction frees a window page two times: two rows take it."""
    evict = t.first("evict", where=lambda e: bool(e.get("window_free")) and not e.get("free"))
    evict["window_free"].append(evict["window_free"][-1])


@PAGES.wrong("sessions", must="refused: the header names no window pool")
def window_pages_without_a_pool(t: Trace) -> None:
    """Events take and free pages of a second pool that the header does not name: nothing follows them."""
    t.first("extend", where=has("alloc"))["window_alloc"] = [1, 1, 1]


@PAGES.wrong("window", must="I10: the window of the next token is there")
def shared_prefix_without_its_window(t: Trace) -> None:
    """A request begins with a prefix whose window pages are gone: its first token attends to nothing (sglang #17061)."""
    window_of: dict[int, int] = {}
    for event in t.events:
        if event["action"] == "extend" and event.get("shared"):
            gone = {"action": "evict", "window_free": [window_of[event["shared"][-1]]]}
            t.insert_after(t.events[t.place(event) - 1], gone)
            return
        window_of |= zip(event.get("alloc") or (), event.get("window_alloc") or (), strict=True)
    raise LookupError("no request shares a prefix")


@PAGES.wrong("chunks", must="I12: a row that is there takes nothing over")
def chunk_shows_pages_of_another(t: Trace) -> None:
    """The second chunk of a prompt names another page as the first of its row: it attends to what somebody else wrote."""
    t.first("extend", where=lambda e: e.get("shared") is None)["shared"] = [60]


@PAGES.wrong("retracts", must="I5: no row is held there")
def row_at_a_match_in_the_tree(t: Trace) -> None:
    """A request that waits names a row: it is another's."""
    t.first("match", where=lambda e: e.get("row") is None)["row"] = 1
