"""Seams of the driver: how a release is told its configuration, and where its requests come from and its replies go."""

from __future__ import annotations

import importlib
from array import array
from collections.abc import Callable
from typing import Any

from kvproof.conformance.adapters.sglang.release_features import Seam, Way, has, is_annotated, takes

# -- the process's configuration --


def _publish_with_ranks(server_args: Any) -> None:
    context = importlib.import_module("sglang.srt.runtime_context")
    ranks = context.SpawnRanks(world_rank=0, dp_rank=None, gpu_id=0)
    context.publish(server_args, role="scheduler", ranks=ranks)


def _publish(server_args: Any) -> None:
    importlib.import_module("sglang.srt.runtime_context").publish(server_args, role="scheduler")


def _set_global(server_args: Any) -> None:
    importlib.import_module("sglang.srt.server_args").set_global_server_args_for_scheduler(server_args)


# -- the sockets of the event loop --


def _receive_from_component(scheduler: Any, receive: Callable[..., list[Any]]) -> None:
    scheduler.request_receiver = _Receiver(receive)


def _receive_itself(scheduler: Any, receive: Callable[..., list[Any]]) -> None:
    scheduler.recv_requests = receive


class _Receiver:
    def __init__(self, recv_requests: Callable[..., list[Any]]) -> None:
        self.recv_requests = recv_requests


def _send_through_channels(scheduler: Any, sender: Any) -> None:
    """Those that send hold the channels' own objects, so these are what is redirected."""
    channels = scheduler.ipc_channels
    for channel in (channels.send_to_tokenizer, channels.send_to_detokenizer):
        channel.send_output = sender.send_output


def _send_itself(scheduler: Any, sender: Any) -> None:
    scheduler.send_to_tokenizer = scheduler.send_to_detokenizer = sender


_SCHEDULER = "sglang.srt.managers.scheduler:Scheduler"
_INPUT = "sglang.srt.managers.io_struct:TokenizedGenerateReqInput"
_RECEIVER = "sglang.srt.managers.scheduler_components.request_receiver:SchedulerRequestReceiver.recv_requests"

DRIVING: tuple[Seam, ...] = (
    Seam(
        "publish",
        "where the process keeps the server's arguments",
        Way("runtime_context, with ranks", takes("sglang.srt.runtime_context:publish", "ranks"), _publish_with_ranks),
        Way("runtime_context", has("sglang.srt.runtime_context:publish"), _publish),
        Way("server_args", has("sglang.srt.server_args:set_global_server_args_for_scheduler"), _set_global),
    ),
    Seam(
        "receive",
        "where the event loop gets its requests",
        Way("request_receiver", has(_RECEIVER), _receive_from_component),
        Way("Scheduler.recv_requests", has(f"{_SCHEDULER}.recv_requests"), _receive_itself),
    ),
    Seam(
        "send",
        "where replies go",
        Way(
            "ipc_channels",
            has("sglang.srt.managers.scheduler_components.ipc_channels:SchedulerIpcChannels"),
            _send_through_channels,
        ),
        Way("Scheduler", has(_SCHEDULER), _send_itself),
    ),
    Seam(
        "input_ids",
        "what a request's token ids come as",
        Way("array", is_annotated(_INPUT, "input_ids", "array"), lambda ids: array("q", ids)),
        Way("list", has(_INPUT), list),
    ),
)
