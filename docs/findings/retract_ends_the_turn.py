"""A retracted turn of a streaming session is treated as one that finished: python docs/findings/retract_ends_the_turn.py"""

from harness import Server, report

server = Server()


def a_retracted_turn(session, output=30):
    """A second turn of a session that runs beside an ordinary request, and is retracted in the middle of its decode."""
    server.open(session)
    server.send(f"{session}/1", 9, 5, session=session)
    server.drain()
    server.send(f"{session}/plain", 3, 60)
    server.send(f"{session}/2", 30, output, session=session)
    server.steps(4)
    server.step(retract=True)


a_retracted_turn("a")
# The pass that retracts queues the turn again: it is unfinished, and the session must still be busy.
not_busy = server.queued("a/2") is not None and not server.busy("a")
server.steps(2)
server.step(retract=True)
server.steps(3)
cut_off = server.running("a/2") is not None and server.running("a/2").session is None
server.drain()

a_retracted_turn("b")
server.abort("b/2")
server.drain()
server.close("b")
server.drain()
never_closed = server.session("b") is not None

report(
    {
        "a session whose turn was retracted is not busy any more, and admits another turn beside it": not_busy,
        "a turn that is retracted twice is cut off its session and continues as an ordinary request": cut_off,
        "after the abort of a retracted turn the session is never closed and holds its KV for ever": never_closed,
    }
)
