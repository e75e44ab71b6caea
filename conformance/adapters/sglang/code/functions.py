"""The claims about the functions of a tree of SGLang, and what a function may follow instead of its rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvproof.conformance.adapters.sglang.code.admission_claims import admission
from kvproof.conformance.adapters.sglang.code.allocator_claims import allocators
from kvproof.conformance.adapters.sglang.code.batch_claims import batch
from kvproof.conformance.adapters.sglang.code.batch_stand_ins import SERVER
from kvproof.conformance.adapters.sglang.code.claims import release_of
from kvproof.conformance.adapters.sglang.code.controller_claims import controller
from kvproof.conformance.adapters.sglang.code.create_claims import created
from kvproof.conformance.adapters.sglang.code.designs import DESIGNS
from kvproof.conformance.adapters.sglang.code.give_up_claims import given_up
from kvproof.conformance.adapters.sglang.code.held_claims import held
from kvproof.conformance.adapters.sglang.code.insert_claims import inserts
from kvproof.conformance.adapters.sglang.code.length_claims import lengths
from kvproof.conformance.adapters.sglang.code.request_claims import requests
from kvproof.conformance.adapters.sglang.code.session_claims import session_cache
from kvproof.conformance.adapters.sglang.code.stand_ins import TORCH
from kvproof.model.code.claims import Claim
from kvproof.model.code.source import Sources
from kvproof.model.code.values import Known, Opaque, Record
from kvproof.spec.actions import Action
from kvproof.spec.faults import FAULTS
from kvproof.spec.machine import LEDGER
from kvproof.spec.profiles import PROFILES

PACKAGE = "sglang"
UNIFIED = "sglang.srt.mem_cache.unified_cache"
SETTINGS = Record(
    strip_thinking_cache=False, enable_mamba_extra_buffer=Known("enable_mamba_extra_buffer", lambda: False)
)
LIBRARIES = {"torch": TORCH}
# What the functions ask of the server's settings, and of the machine that it runs on.
GIVEN = {
    "sglang.srt.managers.schedule_batch.get_global_server_args": Known("get_global_server_args", lambda: SETTINGS),
    "sglang.srt.utils.common.log_info_on_rank0": Known("log_info_on_rank0", lambda *_: None, prints=True),
    "sglang.srt.managers.io_struct.OpenSessionReqOutput": Known(
        "OpenSessionReqOutput", lambda *_, **__: Opaque("an answer")
    ),
    "sglang.srt.utils.common.is_npu": Known("is_npu", lambda: False),
    **dict.fromkeys(
        (f"{UNIFIED}.component_type.ComponentType", f"{UNIFIED}.components.base.ComponentType"),
        Record(FULL=0, SWA=1, MAMBA=2),
    ),
    **SERVER,
}


GROUPS = (session_cache, requests, lengths, inserts, held, controller, created, batch, allocators, given_up, admission)
"""Each gives claims about the functions of one part of the server."""


def claims_of(sources: Sources, actions: Mapping[str, Action]) -> list[Claim]:
    """The claims, each with the module and the function of this tree; none where it holds no session cache that is known."""
    release = release_of(sources, actions)
    return [claim for group in GROUPS for claim in group(release)] if release is not None else []


def instead_of(name: str) -> Iterator[tuple[str, Mapping[str, Action]]]:
    """Rules that an action may follow instead: faults of the catalogue, other releases' rules, and both together."""
    for label, fault in FAULTS.items():
        if fault.machine is LEDGER and name in fault.deviations:
            yield label, fault.deviations
    yield from ((f"the rule of {p.name}", p.rules) for p in PROFILES.values() if name in p.rules)
    yield from ((label, actions) for label, actions in DESIGNS.items() if name in actions)
