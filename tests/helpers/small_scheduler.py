"""Admission in miniature, with the names of SGLang 0.5.23 and two of the fixes of docs/findings."""

from __future__ import annotations

from pathlib import Path

from small_sglang import MANAGERS, SESSION, write_files
from small_unified import FILES as UNIFIED_FILES

STREAMING = f"{SESSION}/streaming_session.py"
FILES = {
    **UNIFIED_FILES,
    STREAMING: f"""{UNIFIED_FILES[STREAMING]}
    def will_lend_record(self, req):
        if req.session is None or req.to_finish is not None:
            return False
        slot = self.slots.get(req.session.session_id)
        return slot is not None and slot.kv.holds_kv
""",
    f"{MANAGERS}/schedule_policy.py": """
from enum import Enum, auto

class AddReqResult(Enum):
    CONTINUE = auto()
    NO_TOKEN = auto()
    OTHER = auto()

class PrefillAdder:
    def add_one_req(self, req, has_chunked_req, truncation_align_size):
        is_alone = req.sampling_params.ignore_eos and getattr(self.tree_cache, "disable", True)
        if req.prefix_len == 0 and is_alone:
            return self.add_one_req_ignore_eos(req)
        return self._mamba_gap_budget_for_req(req)
""",
    f"{MANAGERS}/scheduler.py": """
from sglang.srt.managers.schedule_policy import AddReqResult
from sglang.srt.runtime_context import get_parallel
from sglang.srt.disaggregation.decode import SchedulerDisaggregationDecodeMixin

class Scheduler(SchedulerDisaggregationDecodeMixin):
    def _has_row(self, req):
        return self.tree_cache.session.will_lend_record(req)

    def get_num_allocatable_reqs(self, running_bs, num_held_rows=0):
        rows = self.req_to_token_pool.available_size() + num_held_rows
        return min(get_parallel().pp_max_micro_batch_size - running_bs, rows)

    def _get_new_batch_prefill_raw(self, prefill_delayer_single_pass, running_batch):
        running_bs = len(running_batch.reqs)
        held = sum(self._has_row(req) for req in self.waiting_queue)
        if self.get_num_allocatable_reqs(running_bs, held) <= 0:
            return None, running_batch
        adder = self.get_prefill_adder_class()(self.page_size)
        for req in self.waiting_queue:
            if adder.budget_state() == AddReqResult.OTHER:
                break
            held = sum(r.kv.holds_kv for r in adder.can_run_list) + self._has_row(req)
            if len(adder.can_run_list) >= self.get_num_allocatable_reqs(running_bs, held):
                break
            req.init_next_round_input(self.tree_cache)
            if adder.add_one_req(req) != AddReqResult.CONTINUE:
                break
        return None, running_batch

def dispatch_event_loop(scheduler: Scheduler):
    scheduler.event_loop_normal()
""",
}


def write_scheduler(folder: Path, right: str = "", wrong: str = "") -> Path:
    """The miniature in a folder, with one text in place of another."""
    return write_files(FILES, folder, right, wrong)
