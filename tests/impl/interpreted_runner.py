"""Decodes on CPU with the Triton kernels, through Triton's interpreter, and prints the tokens. Run by test_runner.py.

A process of its own: Triton decides at import whether it interprets. Argument: a list of settings of PagedRows, as JSON.
"""

from __future__ import annotations

import json
import sys

from paged_rows import PagedRows, prompt

PROMPTS = [prompt(seed, count) for seed, count in enumerate((1, 7, 21))]
TOKENS = 6

if __name__ == "__main__":
    from kvproof.kernels import implementation, triton_attention, triton_store

    implementation.REFERENCES.update(attention=triton_attention, store=triton_store)
    of_each = [PagedRows(**s).generate(PROMPTS, TOKENS, s.get("drafts", 0)) for s in json.loads(sys.argv[1])]
    print(json.dumps(of_each))
