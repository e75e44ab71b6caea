"""Speculation with EAGLE, version 2, for the scripts beside this file: SGLang's own workers, and a draft model of random weights.

Made up are the forwards alone: the draft's tokens, and the target's, which agree with about every second draft. It is written
down for which token each slot's KV was computed. Where there is no GPU, some small kernels are torch's.
"""

import contextlib
import importlib
import json
import os
import sys
import tempfile
import types
from pathlib import Path

os.environ["SGLANG_ENABLE_SPEC_V2"] = "1"  # for releases that have version 1, too

import torch
from harness import MODEL, ON_GPU, Server


class Drafting(Server):
    """`written`: slot -> the token whose KV the target computed into it last."""

    def __init__(self, drafts=2, **server_args):
        self.draft_folder = tempfile.TemporaryDirectory()
        config = {**MODEL, "architectures": ["LlamaForCausalLMEagle"]}
        (Path(self.draft_folder.name) / "config.json").write_text(json.dumps(config))
        if not ON_GPU:
            do_without_a_gpu()
        super().__init__(
            disable_overlap_schedule=False,
            speculative_algorithm="EAGLE",
            speculative_draft_model_path=self.draft_folder.name,
            speculative_num_steps=drafts,
            speculative_eagle_topk=1,
            speculative_num_draft_tokens=drafts + 1,
            **server_args,
        )
        self.written = {}
        worker = self.scheduler.model_worker
        worker.target_worker.forward_batch_generation = self._target
        worker.draft_worker.draft_runner.forward = self._draft

    def _target(self, batch=None, *args, forward_batch=None, is_verify=False, **kwargs):
        computed = forward_batch if is_verify else batch
        self.written.update(zip(computed.out_cache_loc.tolist(), computed.input_ids.tolist(), strict=True))
        if not is_verify:
            result = self._forward(batch)
            result.logits_output.hidden_states = self._hidden(batch.input_ids.numel())
            return result
        tokens = []
        for chain in forward_batch.input_ids.view(forward_batch.batch_size, -1).tolist():
            own = self.tokens(len(chain))
            tokens += [draft if token % 2 else token for draft, token in zip(chain[1:], own, strict=False)] + own[-1:]
        result = importlib.import_module("sglang.srt.managers.utils").GenerationBatchResult
        return result(logits_output=self._logits(tokens), can_run_cuda_graph=False)

    def _draft(self, forward_batch, *args, **kwargs):
        mode = forward_batch.forward_mode
        prompts = mode.is_extend() and not mode.is_draft_extend_v2()
        count = forward_batch.batch_size if prompts else len(forward_batch.input_ids)
        return types.SimpleNamespace(logits_output=self._logits(self.tokens(count)))

    def _logits(self, tokens):
        outputs = importlib.import_module("sglang.srt.layers.logits_processor").LogitsProcessorOutput
        device = self.scheduler.req_to_token_pool.req_to_token.device
        logits = torch.nn.functional.one_hot(torch.tensor(tokens, device=device), MODEL["vocab_size"]).float()
        return outputs(next_token_logits=logits, hidden_states=self._hidden(len(tokens)))

    def _hidden(self, count):
        device = self.scheduler.req_to_token_pool.req_to_token.device
        return torch.zeros(count, MODEL["hidden_size"], device=device, dtype=getattr(torch, MODEL["torch_dtype"]))


def do_without_a_gpu():
    """What EAGLE takes for granted: streams, an attention backend for drafts, and kernels for chains of them."""
    torch.cuda.synchronize = lambda *args: None
    torch.Tensor.record_stream = lambda *args: None
    torch.compiler.set_stance("force_eager")  # else it takes a C++ compiler
    importlib.import_module("sglang.srt.managers.scheduler")
    importlib.import_module("sglang.srt.speculative.eagle_worker_v2")
    factory = importlib.import_module("sglang.srt.speculative.draft_utils").DraftBackendFactory
    factory._create_backend = lambda self, *args, **kwargs: NoAttention()
    with contextlib.suppress(ImportError):  # 0.5.23: a CPU does not overlap, a GPU does
        hook = importlib.import_module("sglang.srt.arg_groups.speculative_hook")
        hook._disable_overlap_schedule_for_cpu = lambda *args: None
    for name, kernel in KERNELS.items():
        for module in [module for key, module in sys.modules.items() if key.startswith("sglang.") and module]:
            if name in vars(module):
                setattr(module, name, kernel)


class NoAttention:
    def __init__(self):
        self.attn_backends = [self] * 16

    def init_forward_metadata(self, *args, **kwargs):
        pass

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)


def build_tree(last, parents, scores, drafts, seq_lens, seq_lens_sum, topk, steps, width, *args, **kwargs):
    count, places = len(seq_lens), torch.arange(width)
    tokens = torch.cat((last.unsqueeze(1).long(), drafts.long()), dim=1).flatten()
    positions = (seq_lens.view(-1, 1) + places).flatten().long()
    behind = torch.where(places + 1 < width, places + 1, -1).repeat(count, 1)
    index = torch.arange(count * width).view(count, width)
    return torch.ones(width * count * width, dtype=torch.bool), positions, index, behind, behind * 0 - 1, tokens


def verify(*, predicts, accept_index, accept_token_num, candidates, target_predict, **kwargs):
    width = candidates.shape[1]
    for place, (chain, said) in enumerate(zip(candidates.tolist(), target_predict.tolist(), strict=True)):
        accepted = 0
        while accepted < width - 1 and chain[accepted + 1] == said[accepted]:
            accepted += 1
        for step in range(accepted + 1):
            accept_index[place, step] = place * width + step
            predicts[place * width + step] = said[step]
        accept_token_num[place] = accepted
    return predicts, accept_index, accept_token_num


def ranges(rows, starts, ends, slots):
    taken = 0
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        yield (row, slice(start, end)), slice(taken, taken + end - start)
        taken += end - start


def write_rows(rows, table, starts, ends, slots, width):
    for place, part in ranges(rows, starts, ends, slots):
        table[place] = slots[part].to(table.dtype)


def read_rows(rows, table, starts, ends, slots, width):
    for place, part in ranges(rows, starts, ends, slots):
        slots[part] = table[place].to(slots.dtype)


def slots_of_chains(*, req_pool_indices, req_to_token, start_offset, draft_token_num, **kwargs):
    places = start_offset.view(-1, 1) + torch.arange(draft_token_num)
    return req_to_token[req_pool_indices.view(-1, 1), places].flatten().long()


def last_accepted(tokens, accept_lens, last, stride):
    for place, length in enumerate(accept_lens.tolist()):
        last[place] = tokens.flatten()[place * stride + length - 1]


KERNELS = {
    "build_tree_kernel_efficient": build_tree,
    "verify_tree_greedy_func": verify,
    "assign_extend_cache_locs_func": slots_of_chains,
    "assign_req_to_token_pool_cpu": write_rows,
    "assign_extend_cache_locs_cpu": read_rows,
    "assign_draft_cache_locs_contiguous_cpu": lambda rows, table, lens, slots, width, topk, steps: read_rows(
        rows, table, lens, lens + steps, slots, width
    ),
    "fill_bonus_tokens_cpu": last_accepted,
}
