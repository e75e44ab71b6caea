"""With a sliding window the tree frees KV that a running request reads: python docs/findings/tree_gives_up_a_prefix_in_use.py"""

from harness import Server, report

PREFIX, WINDOW = 40, 16

server = Server(
    window=WINDOW, max_total_tokens=400, swa_full_tokens_ratio=0.4, context_length=390, enable_streaming_session=False
)
prefix = server.tokens(PREFIX)
server.send("leaves the prefix to the tree", prefix, 1)
server.drain()
server.send("reader", prefix + server.tokens(20), 250, ignore_eos=True)
server.steps(3)
freed, shared, rounds = set(), set(), 0
while not freed and rounds < 6 and server.running("reader"):
    rounds += 1  # others fill the window pool, until the tree gives up the window KV of the prefix
    for other in range(1 + rounds):
        server.send(f"other {rounds}.{other}", 60, 1)
        server.steps(3)
    server.send(f"same prefix {rounds}", prefix + server.tokens(3), 1)
    server.steps(2)
    if server.running("reader"):
        freed = {*server.slots("reader", PREFIX)} & {*server.free_slots()}
    print(f"round {rounds}: of the {PREFIX} slots that the reader's row begins with, {len(freed)} are free")
number = 0
while freed and not shared and number < 20 and server.running("reader"):
    number += 1  # the free list is a queue: it takes some requests until it comes to those slots
    server.send(f"taker {number}", 60, 4, ignore_eos=True)
    server.steps(2)
    if server.running("reader") and server.running(f"taker {number}"):
        shared = {*server.slots("reader", PREFIX)} & {*server.slots(f"taker {number}", 60)}
    server.steps(4)
print(f"slots that the reader's row and that of a later request both name: {len(shared)}")
report(
    {
        "slots that a running request reads are in the free list": bool(freed),
        "a later request gets them and writes to them": bool(shared),
    }
)
