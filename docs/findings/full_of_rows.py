"""Idle sessions hold all rows when a request comes: python docs/findings/full_of_rows.py"""

from harness import Server, report

server = Server()
rows = server.scheduler.req_to_token_pool.size
sessions = [f"s{number}" for number in range(rows)]
for session in sessions:
    server.open(session)
    server.send(f"{session}/1", 5, 3, session=session)
    server.drain()
server.send("plain", 5, 3)
crash, finished = None, True
try:
    server.drain()
    for session in sessions[:2]:
        server.close(session)
    finished = server.drain()
except Exception as error:
    crash = error
print(
    f"crash: {type(crash).__name__}: {crash}"
    if crash
    else f"free rows: {len(server.scheduler.req_to_token_pool.free_slots)}"
)
report(
    {
        "the next request kills the scheduler": crash is not None,
        "the next request waits for ever, also when rows are free again": not finished,
    }
)
