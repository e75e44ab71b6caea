"""A request that does not fit once is never looked at again: python docs/findings/full_of_sessions.py"""

from harness import Server, report

server = Server(max_total_tokens=40, context_length=64)
for session in ("a", "b"):
    server.open(session)
    server.send(f"{session}/1", 14, 2, session=session)
    server.drain()
server.send("plain", 14, 2)
server.steps(3)
for session in ("a", "b"):
    server.close(session)
finished = server.drain()
print(f"free tokens: {server.free_tokens()} of 40, waiting: {[req.rid for req in server.scheduler.waiting_queue]}")
report({"with the whole pool free, a request that once did not fit waits for ever": not finished})
