"""SGLang's real speculation on a machine without a GPU: EAGLE with a draft model of random weights.

Version 2 overlaps; version 1, in releases that have it, is what runs without the overlap scheduler.

The scheduler, the EAGLE worker, its draft and verify steps and all that allocates for them are the release's own. What is made
up are the forwards: the draft model's tokens, and the target's, which agree with about every second draft. Kernels that a CPU
has not are torch's (`eagle_in_torch.py`).
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from kvproof.conformance.adapters.sglang import eagle_in_torch, fresh_schedulers
from kvproof.conformance.adapters.sglang.settings import Settings
from kvproof.conformance.errors import UserError

MakeTokens = Callable[[int], list[int]]

EAGLE = {"architectures": ["LlamaForCausalLMEagle"]}
"""What the configuration of a draft model has in place of the target's."""
_WORKER_OF_VERSION_1 = "sglang.srt.speculative.eagle_worker"
# In 0.5.23: on a CPU, which has no second stream, nothing overlaps. In a server with a GPU it does, so here, too.
_NO_OVERLAP = "sglang.srt.arg_groups.speculative_hook", "_disable_overlap_schedule_for_cpu"


def speculation(settings: Settings, draft_model: str) -> dict[str, Any]:
    """The server's arguments for chains of `settings.drafts` tokens; of two versions the environment says which. Raises UserError
    where they cannot be."""
    if not settings.overlap and not has_version_1():
        raise UserError("drafts: this release has no speculation v1, and v2 overlaps: --set overlap=true")
    if settings.real_forward or settings.device != "cpu":
        raise UserError("drafts: their forwards are made up, on a CPU: --set real_forward=false --set device=cpu")
    os.environ["SGLANG_ENABLE_SPEC_V2"] = str(int(settings.overlap))
    return {
        "speculative_algorithm": "EAGLE",
        "speculative_draft_model_path": draft_model,
        "speculative_num_steps": settings.drafts,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": settings.drafts + 1,
    }


def has_version_1() -> bool:
    return importlib.util.find_spec(_WORKER_OF_VERSION_1) is not None


@functools.cache
def prepare() -> None:
    """Once, before a scheduler with drafts is built: what EAGLE takes for granted and a CPU has not."""
    import torch

    factory: Any = importlib.import_module("sglang.srt.speculative.draft_utils").DraftBackendFactory
    factory._create_backend = lambda self, *args, **kwargs: _NoAttention()
    importlib.import_module("sglang.srt.speculative.eagle_worker_v2")
    if has_version_1():
        importlib.import_module(_WORKER_OF_VERSION_1)
    eagle_in_torch.take_their_places()
    place, name = _NO_OVERLAP
    with suppress(ModuleNotFoundError):
        importlib.import_module(place)
        fresh_schedulers.put_everywhere(name, lambda *args: None)
    # EAGLE has small functions compiled: that takes a C++ compiler, and in the first round longer than a step may hang.
    torch.compiler.set_stance("force_eager")
    if not torch.cuda.is_available():
        torch.cuda.synchronize = lambda *args: None
        torch.Tensor.record_stream = lambda *args: None


def make_up_forwards(scheduler: Any, settings: Settings, make_tokens: MakeTokens, prefill: Callable[..., Any]) -> None:
    """`prefill`: the target's forward that makes up one token for each request."""
    worker = scheduler.model_worker
    of_draft = worker.draft_worker.draft_runner if settings.overlap else worker.draft_model_runner
    made_up = _Forwards(make_tokens, prefill, of_draft.model_config)
    worker.target_worker.forward_batch_generation = made_up.of_target
    of_draft.forward = made_up.of_draft


class _Forwards:
    def __init__(self, make_tokens: MakeTokens, prefill: Callable[..., Any], model: Any) -> None:
        self._make_tokens, self._prefill = make_tokens, prefill
        self._vocabulary, self._hidden_size = model.vocab_size, model.hidden_size

    def of_draft(self, forward_batch: Any, *args: Any, **kwargs: Any) -> Any:
        """After a prefill one token for each request, else one for each token."""
        mode = forward_batch.forward_mode
        whole_prompts = mode.is_extend() and not mode.is_draft_extend_v2()
        count = forward_batch.batch_size if whole_prompts else len(forward_batch.input_ids)
        return SimpleNamespace(logits_output=self._logits(self._make_tokens(count)))

    def of_target(
        self, batch: Any = None, *args: Any, forward_batch: Any = None, is_verify: bool = False, **kwargs: Any
    ) -> Any:
        if not is_verify:
            result = self._prefill(batch, *args, **kwargs)
            result.logits_output.hidden_states = self._hidden_states(batch.input_ids.numel())
            return result
        from sglang.srt.managers.utils import GenerationBatchResult

        verified = batch if forward_batch is None else forward_batch  # of version 1, and of version 2
        chains = verified.input_ids.view(len(verified.seq_lens), -1).tolist()
        tokens = [token for chain in chains for token in self._verified(chain)]
        return GenerationBatchResult(logits_output=self._logits(tokens), can_run_cuda_graph=False)

    def _verified(self, chain: list[int]) -> list[int]:
        """The target's token behind each of these: it is the next draft where a made-up token is odd."""
        made_up = self._make_tokens(len(chain))
        return [draft if token % 2 else token for draft, token in zip(chain[1:], made_up, strict=False)] + made_up[-1:]

    def _logits(self, tokens: list[int]) -> Any:
        import torch
        from sglang.srt.layers.logits_processor import LogitsProcessorOutput

        logits = torch.nn.functional.one_hot(torch.tensor(tokens), self._vocabulary).to(torch.float32)
        return LogitsProcessorOutput(next_token_logits=logits, hidden_states=self._hidden_states(len(tokens)))

    def _hidden_states(self, count: int) -> Any:
        import torch

        return torch.zeros(count, self._hidden_size)


class _NoAttention:
    """In place of the draft's attention backend: nothing is attended to."""

    def __init__(self) -> None:
        self.attn_backends: dict[int, _NoAttention] = defaultdict(lambda: self)
        """one for each step of a draft"""

    def init_forward_metadata(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)
