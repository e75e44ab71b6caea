"""A request that needs nearly the whole pool is accepted and waits for ever: python docs/findings/near_the_pool.py"""

from harness import Server, report

PAGE, POOL = 4, 32
server = Server(page_size=PAGE, max_total_tokens=POOL, context_length=64)
server.send("a page less", 16, 7)
runs = server.drain()
server.send("nearly all", 20, 8)
waits = not server.drain()
empty = server.free_tokens() == POOL
print(f"free tokens: {server.free_tokens()} of {POOL}, waiting: {[req.rid for req in server.scheduler.waiting_queue]}")
report({"with the whole pool free, a request that needs 28 of its 32 tokens waits for ever": runs and waits and empty})
