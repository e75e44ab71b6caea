from __future__ import annotations

import torch

from kvproof.impl.device_stream import DeviceStream


def test_columns_go_over_in_one_copy_and_each_begins_at_16_bytes() -> None:
    columns = [1, 2, 3], [], [4], [5, 6], range(7, 12)
    for dtype in (torch.int64, torch.int32):
        uploaded = DeviceStream("cpu").upload_columns(*columns, dtype=dtype)
        assert [part.tolist() for part in uploaded] == [list(column) for column in columns]
        assert {part.dtype for part in uploaded} == {dtype}
        assert all(part.data_ptr() % 16 == 0 for part in uploaded if len(part))
        assert len({part.untyped_storage().data_ptr() for part in uploaded}) == 1


def test_nothing_to_upload_is_no_mistake() -> None:
    assert DeviceStream("cpu").upload_columns() == []
