"""Under pressure the retract of a session's turn frees nothing: python docs/findings/given_up.py"""

from harness import Server, report

server = Server(max_total_tokens=152, page_size=4)
for session in ("a", "b"):
    server.open(session)
    server.send(f"{session}/1", 4, 80, session=session)
    server.steps(2)
server.steps(88)
server.close("a")
finished = server.drain()
waiting = [req.rid for req in server.scheduler.waiting_queue]
still_open = list(server.scheduler.session_controller.sessions)
print(f"free tokens: {server.free_tokens()} of 152, waiting: {waiting}, sessions still open: {still_open}")
report({"of two turns that outgrow the pool one waits for ever, and the pool stays full": not finished})
