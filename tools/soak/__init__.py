"""Long runs without a false alarm: `make soak`."""
