"""The device's side of an engine whose pools are there: its tensors, what the books have for it to do, and the trace ring.

The books stay on the host: the scheduler decides by them, and no decision waits for the device. The device catches up before
each forward, before each census, and between two steps; what it does then is queued on the stream on which forwards run.
"""

from __future__ import annotations

from kvproof.impl.config import EngineConfig
from kvproof.impl.device_log import DeviceLog
from kvproof.impl.device_pools import DevicePools
from kvproof.impl.device_stream import DeviceStream
from kvproof.impl.observe import Observer
from kvproof.impl.ring_events import RingEvents


class Device:
    def __init__(self, config: EngineConfig, observer: Observer | None) -> None:
        self.stream = DeviceStream(config.device)
        self.pools = DevicePools(config)
        self.log = DeviceLog(config.page_size, has_window=config.window > 0, tells=observer is not None)
        self.events = RingEvents(observer, self.log, config) if observer is not None else None
        self.stream.after_setup()

    def catch_up(self) -> None:
        """Carry out what the books did since the last time, and hand events on whose page ids have arrived."""
        with self.stream.running():
            operations = self.log.take()
            named = self.pools.carry_out(operations, self.stream) if operations else []
            if self.events is not None:
                self.events.append(named, self.stream)

    def settle(self) -> None:
        """Wait for the device: every event is handed on."""
        self.catch_up()
        if self.events is not None:
            with self.stream.running():
                self.events.settle()
