"""What the fuzzer finds of known faults and releases, and what its checks cost: `make kill-matrix`."""
