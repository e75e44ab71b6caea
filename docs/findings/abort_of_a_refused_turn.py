"""The abort of a refused turn frees its session: python docs/findings/abort_of_a_refused_turn.py"""

from harness import Server, report

server = Server()
server.open("a")
server.send("a/1", 5, 30, session="a")
server.steps(3)
server.send("a/2", 5, 3, session="a")  # refused: the session is busy
server.abort("a/2")
server.step()
free = server.running("a/1") is not None and not server.busy("a")
server.send("a/3", 5, 3, session="a")
try:
    server.step()
    third = server.running("a/3") or server.queued("a/3")
    beside = third is not None and third.session is not None and third.to_finish is None
except Exception as error:
    print(f"the scheduler: {error!r}")
    beside = True
report(
    {
        "the abort of a refused turn clears the marker of the turn that runs": free,
        "the next turn is admitted beside it, or kills the scheduler": beside,
    }
)
