"""A batch of SGLang with one arbitrary request, made from the symbols of an arbitrary ledger."""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import z3

from kvproof.conformance.adapters.sglang.code.batch_stand_ins import (
    ALLOCATION,
    COMMON,
    FORWARD_MODES,
    NOTHING,
    BatchAllocator,
    BatchRowPool,
    BatchTree,
    ByDevice,
    Matched,
    PerRequest,
    Requests,
    Rounds,
    known,
    known_of_any,
    places_of_a_turn,
    torch_of,
)
from kvproof.conformance.adapters.sglang.code.claims import Act
from kvproof.conformance.adapters.sglang.code.layout import BATCH, OWNERS, PREPARES_ROUND, class_at
from kvproof.conformance.adapters.sglang.code.session import SessionScene
from kvproof.conformance.adapters.sglang.code.stand_ins import Indices, Tokens
from kvproof.model.code import arithmetic
from kvproof.model.code.errors import NotUnderstoodError
from kvproof.model.code.interpreter import Interpreter
from kvproof.model.code.values import Instance, Known, Library, Opaque, Record
from kvproof.spec.state import RUNNING, WAITING, Ledger, is_live

SEQ_LENS = ("seq_lens", "seq_lens_cpu", "orig_seq_lens")
NOT_ASKED_OF_REQUEST = (
    *("dimensions", "token_type_ids", "input_embeds", "positional_embed_overrides", "multi_item_delimiter_indices"),
    *("top_logprobs_num", "token_ids_logprob", "extend_logprob_start_len", "logprob_start_len"),
)
NOT_ASKED_OF_BATCH = ("return_logprob",)
BY_DEVICE = {
    "ALLOC_FOR_DECODE_FUNCS": "alloc_for_decode_default",
    "ALLOC_EXTEND_FUNCS": "alloc_paged_token_slots_extend",
}
SIZES = ("sglang.srt.managers.utils", COMMON, ALLOCATION, f"{ALLOCATION}_sizing")
ROUND_COUNTS = ("spec_verify_ct", "spec_accepted_tokens", "spec_accepted_drafts", "spec_num_correct_drafts")
ROUND_HISTOGRAMS = ("update_spec_acceptance_histogram", "update_spec_correct_drafts_histogram")
ROUND_RESULTS = (
    *("num_accepted_tokens", "accept_length_per_req_cpu", "num_accepted_drafts", "num_accepted_drafts_per_req_cpu"),
    *("num_correct_drafts", "num_correct_drafts_per_req_cpu", "block_accept_lens", "num_block_accept_tokens"),
    *("cap_lens", "num_cap_tokens"),
)
WRITERS = tuple(f"{module}.write_cache_indices" for module in (COMMON, ALLOCATION))
SLOTS_FIT, ALL_WRITTEN = "each slot is asked for and written where its page stands", "no slot is left unwritten"
EVICTS = "the tree is asked to evict as much as is taken"


class BatchScene(SessionScene):
    """A session's scene, and the batch in which its turn stands."""

    def __init__(self, run: Interpreter, s: Ledger, p: SimpleNamespace, act: Act) -> None:
        self.count = getattr(p, "others", 0) + 1
        run.library = {**run.library, "torch": torch_of(run, self.count)}
        super().__init__(run, s, p, act)
        if run.paths.decide(s.plain):
            self.req.fields["session"], self.slots.slot = None, None
        self.pages = BatchAllocator(run, self.effects, s)
        self.rows = BatchRowPool(run, self.row, self.effects, self.pages)
        self.tree = self._tree()
        self._choose_cuda()
        self.req.fields |= {"beam_group": None}
        record = self.req.fields.get("kv")
        if not isinstance(record, Instance) or "swa_evict_floor" not in record.fields:
            self.req.fields["swa_evict_floor"] = 0

    def _has_rounds(self) -> Any:
        """A round may be prepared before the first result, too."""
        return z3.And(self.d.spec_v2, self.s.phase == RUNNING)

    def _choose_cuda(self) -> None:
        """Later releases look up by the device which function allocates: they have one that is CUDA's."""
        chosen: dict[str, Any] = dict.fromkeys(WRITERS, Known("write_cache_indices", self._write_cache_indices))
        chosen[f"{COMMON}.evict_from_tree_cache"] = Known("evict_from_tree_cache", self.pages.evict)
        module = self.run.sources.module(ALLOCATION)
        for table, function in BY_DEVICE.items():
            if module is not None and module.binds(table):
                chosen[f"{ALLOCATION}.{table}"] = ByDevice(self.run.global_name(module, function))
        for user in (
            *(module_name for module_name, _ in PREPARES_ROUND),
            ALLOCATION,
            "sglang.srt.speculative.spec_utils",
        ):
            chosen[f"{user}.get_last_loc"] = Known("get_last_loc", self._last_loc)
            chosen[f"{user}.assign_req_to_token_pool_func"] = Known("assign_req_to_token_pool_func", self._write_round)
        if hasattr(self.p, "alloc_len"):
            chosen |= {
                f"{module}.get_alloc_len_per_decode": Known("sizes", lambda *_: self.p.alloc_len) for module in SIZES
            }
        self.run.given = {**self.run.given, **chosen}

    def _write_cache_indices(
        self,
        out_cache_loc: Any,
        rows: Any,
        rows_cpu: Any,
        prefix_lens: Any,
        prefix_lens_cpu: Any,
        seq_lens: Any,
        seq_lens_cpu: Any,
        extend_lens: Any,
        extend_lens_cpu: Any,
        prefix_tensors: Any,
        pool: Any,
    ) -> None:
        """Row positions [0, prefix) are what the prefix has, and [prefix, seq) the new slots: what CUDA's kernel does."""
        d = self.d
        start, end = (arithmetic.as_length(d, lens.value) for lens in (prefix_lens, seq_lens))
        (prefix,) = self.run.elements(prefix_tensors)
        if pool is not self.rows:
            raise NotUnderstoodError("another page table is written")
        self.pages.are_right(z3.BoolVal(rows.value is self.row and rows_cpu.value is self.row))
        for other in (prefix_lens_cpu.value, prefix.length()):
            self.pages.are_right(arithmetic.equal(d, start, other))
        self.pages.are_right(arithmetic.equal(d, end, seq_lens_cpu.value))
        for length in (extend_lens.value, extend_lens_cpu.value):
            self.pages.are_right(arithmetic.equal(d, arithmetic.add(d, start, length), end))
        self.rows.write_prefix(prefix)
        self.rows.write_extend(out_cache_loc, self.extended(start, end), start, end)

    def _last_loc(self, table: Any, rows: Any, lens: Any) -> PerRequest:
        """The KV index before each request's position; where there is none it is -1."""
        before = arithmetic.subtract(self.d, lens.value, 1)
        has_one = not self.run.paths.decide(arithmetic.equal(self.d, lens.value, 0))
        return self.each(
            self.rows.req_to_token.at(rows.value, before) if has_one and table is self.rows.req_to_token else -1
        )

    def _write_round(self, rows: Any, table: Any, start: Any, end: Any, out_cache_loc: Any, count: Any) -> None:
        """Row positions [start, end) are the new slots: what CUDA's kernel does."""
        if table is not self.rows.req_to_token:
            raise NotUnderstoodError("another page table is written")
        self.pages.are_right(z3.BoolVal(rows.value is self.row))
        self.pages.are_right(z3.BoolVal(count is self.count or count == self.count))
        first, last = (arithmetic.as_length(self.d, lens.value) for lens in (start, end))
        self.rows.write_extend(out_cache_loc, arithmetic.subtract(self.d, last, first), first, last)

    def extended(self, start: Any, end: Any) -> Any:
        """The tokens of an extend, of all requests of the batch."""
        return arithmetic.add(self.d, arithmetic.subtract(self.d, end, start), self.p.others_extend)

    # A batch looks neither at the receipts of a lock nor at a session's last turn: one of each is enough.

    def _lock_fields(self) -> dict[str, Any]:
        if "lock" in self.layout.slot_fields:
            return {
                "lock": self.new(*self.layout.lock_at, node=self.node, receipt=Opaque("a receipt"), swa_released=False)
            }
        known_fields = {"last_node": self.node, "lock_receipt": Opaque("a receipt"), "swa_prefix_lock_released": False}
        known_fields |= {"swa_uuid_for_lock": Opaque("the window lock"), "skip_lock_node_ids": {}}
        return {name: value for name, value in known_fields.items() if name in self.layout.slot_fields}

    def _last_success(self) -> dict[Any, Any]:
        return {}

    def _tree(self) -> Any:
        if not self.layout.is_owned:
            return BatchTree(self.run, self.rows, self.pages, self.lock, self.effects)
        fields = {
            "req_to_token_pool": self.rows,
            "token_to_kv_pool_allocator": self.pages,
            "tree_core": Record(page_size=self.inner.page_size),
            "is_swa_enabled": self.d.windowed,
            "is_mamba_enabled": False,
            "_sliding_window_size": self.d.window,
            "disable": self.inner.is_chunk_cache(),
            "session": self.cache,
            "session_records": known(self._session_records()),
        }
        return Instance(class_at(self.run, OWNERS), fields)

    def _session_records(self) -> dict[Any, Any]:
        slot = self.slots.slot
        return {self.session_id: slot.fields["kv"]} if slot is not None else {}

    def batch(self, **fields: Any) -> Instance:
        """The batch, with the request alone."""
        known_fields = {
            "reqs": Requests(self.req, self.count),
            "tree_cache": self.tree,
            "req_to_token_pool": self.rows,
            "token_to_kv_pool_allocator": self.pages,
            "enable_overlap": self.d.overlap,
            "device": "cuda",
            "model_config": Record(is_encoder_decoder=False),
            "spec_algorithm": Record(is_none=known(True), is_dflash=known(False)),
            "sampling_info": Record(penalizer_orchestrator=Record(is_required=False)),
            "hisparse_coordinator": None,
            "attn_cp_metadata": None,
            "nsa_cp_metadata": None,
            "beam_tail": None,
            "spec_info": None,
        }
        return self.new(BATCH, "ScheduleBatch", **known_fields, **fields)

    def window_batch(self, evict: Callable[..., None]) -> Instance:
        """A batch that steps or extends, whose evictions go to `evict`: their place in time is any."""
        is_step = self.run.paths.decide(self.s.phase == RUNNING)
        steps = Rounds() if self._asks_remainder() else z3.Int("decode_batch_idx")
        self.req.fields |= {"decode_batch_idx": steps, "extend_batch_idx": z3.Int("extend_batch_idx")}
        chunk = known(Record(chunked_prefill_size=self.p.chunk))
        chosen = dict.fromkeys((f"{BATCH}.get_global_server_args", f"{BATCH}.get_schedule"), chunk)
        chosen |= dict.fromkeys((f"{BATCH}.get_server_args",), chunk)
        self.run.given = {**self.run.given, **chosen}
        return self.batch(
            forward_mode=FORWARD_MODES["decode" if is_step else "extend"],
            forward_iter=z3.Int("forward_iter"),
            prefix_lens=[self.s.prefix_len],
            _evict_swa=Known("_evict_swa", evict),
        )

    def _asks_remainder(self) -> bool:
        """Up to 0.5.12 a window is evicted each so many steps, later when so many tokens have left it."""
        module = self.run.sources.module(BATCH)
        node = module.definition("ScheduleBatch.maybe_evict_swa") if module is not None else None
        found = ast.walk(node) if node is not None else ()
        asked = [n.left for n in found if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod)]
        return any(isinstance(left, ast.Attribute) and left.attr == "decode_batch_idx" for left in asked)

    def each(self, value: Any) -> PerRequest:
        """A tensor over the batch, with the value for its one request."""
        return PerRequest(self.run, value, self.count)

    def decode_batch(self) -> Instance:
        """A batch before a decode step: to each request the tensors say what the request says."""
        self.req.fields["decode_batch_idx"] = 1
        lens = {name: self.each(self.s.kv_committed_len) for name in SEQ_LENS}
        rows = {name: self.each(self.row) for name in ("req_pool_indices", "req_pool_indices_cpu")}
        more = {"seq_lens_sum": 0, "output_ids": self.each(Opaque("the last token")), "is_spec_v2": False}
        return self.batch(maybe_evict_swa=known(None), **lens, **rows, **more)

    def extend_batch(self) -> Instance:
        """A batch whose one request has its prefix, and runs up to `seq_len`."""
        s, d, fields = self.s, self.d, self.req.fields
        has_row = not self.run.paths.decide(d.every(s.phase == WAITING, d.no(s.lent)))
        if not has_row:
            self._has_no_row()
        prefix = (Indices if has_row else Matched)(self.run, 0, s.prefix_len)
        fields |= {"prefix_indices": prefix, "prefix_len": s.prefix_len}
        if isinstance(self.tree, Instance):
            self.tree.fields["prefix_device_indices"] = Known("prefix_device_indices", lambda req: prefix)
        return self.batch(
            maybe_evict_swa=known(None),
            prefix_lens=[s.prefix_len],
            extend_lens=[self.p.seq_len - s.prefix_len],
            extend_num_tokens=self.extended(s.prefix_len, self.p.seq_len),
            seq_lens=self.each(self.p.seq_len),
            seq_lens_cpu=self.each(self.p.seq_len),
            dllm_config=None,
        )

    def whole_extend_batch(self) -> Instance:
        """A batch of one request before it is prepared for an extend: nothing asked of it but tokens."""
        batch = self.extend_batch()
        tokens = Tokens(self.run, self.p.seq_len)
        self.req.fields |= {"fill_ids": tokens, "full_untruncated_fill_ids": tokens, "retracted_stain": True}
        extent = {"start": self.s.prefix_len, "end": self.p.seq_len, "length": self.p.seq_len - self.s.prefix_len}
        self.req.fields |= {"extend_range": Record(**extent), "fill_len": self.p.seq_len, "is_retracted": False}
        self.req.fields["extend_input_len"] = extent["length"]
        self.req.fields |= dict.fromkeys(NOT_ASKED_OF_REQUEST) | {"extend_batch_idx": 0, "already_computed": 0}
        self.req.fields |= {"return_pooled_hidden_states": False}
        batch.fields |= dict.fromkeys(NOT_ASKED_OF_BATCH, False) | {"prefix_lens": None, "extend_lens": None}
        batch.fields["model_config"] = Record(is_encoder_decoder=False, is_matryoshka=False, vocab_size=Opaque("words"))
        joined = Known("from_iterable", lambda values: [Opaque("the tokens")])
        self.run.library = {
            **self.run.library,
            "itertools": Library("itertools", {"chain": Record(from_iterable=joined)}),
        }
        settings = Record(enable_mamba_extra_buffer=known(False), enable_mis=False)
        chosen = {
            "SamplingBatchInfo": Record(from_schedule_batch=NOTHING),
            "is_pin_memory_available": known_of_any(False),
        }
        chosen |= dict.fromkeys(("get_global_server_args", "get_server_args"), known(settings))
        unread = ("compute_extend_logprob_start_len", "flatten_arrays_to_pinned_cpu")
        chosen |= {name: known_of_any(Opaque(name)) for name in unread}
        self.run.given = {**self.run.given, **{f"{BATCH}.{name}": value for name, value in chosen.items()}}
        return batch

    def _has_no_row(self) -> None:
        """A queued turn that matched the tree: it knows the length of its prefix, and holds the lock."""
        layout, fields = self.layout, self.req.fields
        if not layout.row_is_on_record:
            fields["req_pool_idx"] = None
        if layout.is_shared:
            fields["kv"] = self._record({"cache_protected_len": self.s.cache_protected_len}, None)
            self.slots.slot = None
        elif layout.on_record:
            fields["kv"] = None
        if layout.is_owned:
            fields["lock"] = self.lock.fields["lock"]

    def has_row(self) -> bool:
        return self._row_of(self.req) is self.row

    def seq_lens(self, batch: Instance) -> dict[str, Any]:
        return {name: batch.fields[name].value for name in SEQ_LENS}

    def slots_taken(self) -> dict[str, Any]:
        pages = self.pages
        return {SLOTS_FIT: pages.slots_are_right, ALL_WRITTEN: pages.waiting == [], EVICTS: pages.evicts_enough}

    def ask(self, owner: Instance, name: str, *arguments: Any, **keywords: Any) -> Any:
        return self.run.call(self.run.attribute(owner, name), list(arguments), keywords)

    def is_running(self) -> bool:
        return self.run.paths.decide(is_live(self.d, self.s))

    def has_ended(self) -> None:
        """The request is over: it has given up its row, and its lengths are what they were."""
        layout, fields = self.layout, self.req.fields
        fields |= {"kv_committed_freed": True, "kv_overallocated_freed": True}
        fields |= {name: self.p.stale_len for name in ("kv_allocated_len", "cache_protected_len") if name in fields}
        if layout.on_record:
            fields["kv"] = self._record({}, None) if layout.row_is_on_record else None
        if not layout.row_is_on_record:
            fields["req_pool_idx"] = None

    def is_queued_again(self) -> None:
        """The request was retracted, and the result of its last step is still to come."""
        self._has_no_row()
        self.req.fields["is_retracted"] = True

    def round_batch(self) -> Instance:
        """A batch before a round of speculation, of one request."""
        batch = self.decode_batch()
        batch.fields |= {"maybe_wait_verify_done": NOTHING}
        return batch

    def verified(self, tokens: Any) -> Record:
        """The result of a round that gives `tokens` tokens, padded to as many as a round may give."""
        padded = self.d.drafts + self.d.one
        self.req.fields |= dict.fromkeys(ROUND_COUNTS, 0) | dict.fromkeys(ROUND_HISTOGRAMS, NOTHING) | {"grammar": None}
        self.req.fields.setdefault("is_retracted", False)
        return Record(
            next_token_ids=Record(is_cpu=True, tolist=known(Tokens(self.run, padded))),
            accept_lens=Record(is_cpu=True, tolist=known([tokens])),
            speculative_num_draft_tokens=padded,
            speculative_output_stride=None,
            num_non_draft_tokens_per_req=1,
            **dict.fromkeys(ROUND_RESULTS),
        )

    def processor(self, module: str, name: str) -> Instance:
        """The object that processes results: its statistics and grammars change no length."""
        worker = Record(speculative_num_draft_tokens=self.d.drafts + self.d.one, on_verify_complete_cpu=NOTHING)
        reporter = Record(snapshot_spec_decode_metrics=NOTHING)
        workers = {"draft_worker": worker, "model_worker": worker, "metrics_reporter": reporter}
        return self.new(module, name, advance_grammar_fsm=NOTHING, **workers)

    def checker(self, module: str, name: str) -> Instance:
        """The object that counts the pages, and the batches that it looks into."""
        may_be_parked = class_at(self.run, {module: name}).binds("get_chunked_req")
        last, running, chunked = places_of_a_turn(self.run.paths.decide, self.req, may_be_parked=may_be_parked)
        by_name = {"last_batch": last, "running_batch": running, "chunked_req": chunked}
        given = {f"get_{name}": known(value) for name, value in by_name.items()}
        return self.new(
            module,
            name,
            page_size=self.inner.page_size,
            is_hybrid_swa=self.d.windowed,
            tree_cache=self.tree,
            **by_name,
            **given,
        )
