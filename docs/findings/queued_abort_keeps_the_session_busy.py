"""Aborting a queued turn leaves its streaming session busy: python docs/findings/queued_abort_keeps_the_session_busy.py"""

from harness import Server, report

server = Server()
server.open("a")
server.send("a/1", 13, 5, session="a")
server.drain()
held = 512 - server.free_tokens()

server.send("a/2", 7, 5, session="a")
server.abort("a/2")  # in the same batch of messages: the turn waits in the queue and never ran
server.drain()
busy = server.busy("a")

server.send("a/3", 7, 5, session="a")
server.step()
refused = server.running("a/3") is None
server.drain()

server.open("b")
server.send("b/1", 13, 5, session="b")
server.drain()
server.send("b/2", 7, 5, session="b")
server.abort("b/2")
server.drain()
server.close("b")
server.drain()

report(
    {
        "after the abort of a queued turn its session stays busy": busy,
        "the session's next turn is refused": refused,
        "the session is never closed and holds its KV for ever": server.session("b") is not None,
    }
)
