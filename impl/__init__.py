"""The implementation under test: a real paged KV cache in torch."""
