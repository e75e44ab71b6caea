"""A refused turn that outlives its session: python docs/findings/refused_turn_of_a_closed_session.py"""

from harness import Server, report

server = Server()
server.open("a")
server.send("a/1", 33, 1, session="a")
server.send("a/2", 1, 1, session="a")  # refused: the session is busy
server.close("a")  # waits for a/1; then the session goes, and a/2 still stands in the queue
try:
    server.drain()
    dies = False
except Exception as error:
    print(f"the scheduler: {error!r}")
    dies = True
rows = server.scheduler.req_to_token_pool
print(f"free tokens: {server.free_tokens()} of 512, free rows: {len(rows.free_slots)} of {rows.size}, {server.alarms}")
lost = not dies and server.session("a") is None and server.free_tokens() < 512 and len(rows.free_slots) < rows.size
report(
    {"the scheduler dies": dies, "a slot that nobody has keeps the KV and the row of the refused turn for ever": lost}
)
