"""Where forwards run: on CUDA a stream of their own beside the host, elsewhere in line with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch


class Download:
    """A tensor on its way to the host."""

    def __init__(self, host: torch.Tensor, arrived: torch.cuda.Event | None) -> None:
        self._host = host
        self._arrived = arrived

    def wait(self) -> list[int]:
        if self._arrived is not None:
            self._arrived.synchronize()
        values: list[int] = self._host.tolist()
        return values


class DeviceStream:
    """Work within `running` is queued in order; the host waits for none of it until it waits for a download."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if torch.device(device).type == "cuda" else None

    @contextmanager
    def running(self) -> Iterator[None]:
        with torch.inference_mode(), torch.cuda.stream(self._stream):
            yield

    def after_setup(self) -> None:
        """What was queued elsewhere, as weights and zeroed buffers are, comes before all that runs here."""
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._device))

    def upload(self, host: torch.Tensor) -> torch.Tensor:
        """Through pinned memory, so that the host continues. `host` is not changed afterwards: it may be read later.

        What is on the device already stays as it is.
        """
        if self._stream is None or host.is_cuda:
            return host
        if not host.numel():
            return torch.empty_like(host, device=self._device)
        return host.pin_memory().to(self._device, non_blocking=True)

    def upload_columns(self, *columns: Sequence[int], dtype: torch.dtype = torch.int64) -> list[torch.Tensor]:
        """Lists of numbers, as tensors there: one copy for all.

        Each begins at a multiple of 16 bytes: for a pointer that does not, Triton would compile a kernel anew.
        """
        at_once = 16 // torch.empty((), dtype=dtype).element_size()
        padded = [[*column, *[0] * (-len(column) % at_once)] for column in columns]
        uploaded = self.upload(torch.tensor([number for column in padded for number in column], dtype=dtype))
        parts = uploaded.split([len(column) for column in padded])
        return [part[: len(column)] for part, column in zip(parts, columns, strict=True)]

    def download(self, tensor: torch.Tensor) -> Download:
        if self._stream is None:
            return Download(tensor, None)
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        host.copy_(tensor, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record(self._stream)
        return Download(host, arrived)
