"""A session's next turn waits for a free row though it has one: python docs/findings/own_row.py"""

from harness import Server, report

server = Server(max_running_requests=1)
server.open("a")
server.send("a/1", 5, 3, session="a")
first = server.drain()
server.send("a/2", 5, 3, session="a")
try:
    waits = first and not server.drain()
    dies = False
except Exception as error:
    print(f"the scheduler: {error!r}")
    waits, dies = False, True
rows = server.scheduler.req_to_token_pool
print(
    f"waiting: {[req.rid for req in server.scheduler.waiting_queue]}, free rows: {len(rows.free_slots)} of {rows.size}"
)
report(
    {
        "with all rows held by sessions, the next turn of each of them waits for ever": waits,
        "it kills the scheduler": dies,
    }
)
