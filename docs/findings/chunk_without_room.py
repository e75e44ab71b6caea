"""With a sliding window a chunk that found no room counts as prefilled: python docs/findings/chunk_without_room.py"""

from harness import Server, report

PROMPT, CHUNK = 120, 16

server = Server(
    window=16,
    chunked_prefill_size=CHUNK,
    max_total_tokens=400,
    swa_full_tokens_ratio=0.3,
    context_length=390,
    enable_streaming_session=False,
)
for number in range(5):  # they fill the window pool
    server.send(f"other {number}", 20, 60, ignore_eos=True)
server.steps(12)
server.send("in chunks", PROMPT, 4, ignore_eos=True)
chunks, never_written, said, died = 0, 0, 0, False
for _ in range(40):
    try:
        server.step()
    except AssertionError:
        died = True
        break
    chunked, running = server.scheduler.chunked_req, server.running("in chunks")
    chunks += chunked is not None and chunked.rid == "in chunks"
    if running is not None and running.output_ids and not never_written:
        never_written, said = server.slots("in chunks", PROMPT).count(0), len(running.output_ids)
        print(
            f"{PROMPT} tokens in {chunks} passes of {CHUNK} at most; for {never_written} the row names slot 0, which is nobody's"
        )
report(
    {
        "a request generates with most of its prompt never computed": bool(never_written and said),
        "the scheduler dies": died,
    }
)
