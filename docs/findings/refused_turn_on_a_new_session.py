"""Two turns of a new session at once: the refused one ends as the session's own turn."""

from harness import Server, report

server = Server()
server.open("a")
server.send("a/1", 13, 1, session="a")
server.send("a/2", 5, 4, session="a")  # refused: a/1 is in flight; a/1 ends in the pass that begins it
crash = None
try:
    server.drain()
except Exception as error:
    crash = error

print(f"crash: {type(crash).__name__}: {crash}" if crash else f"memory check: {server.alarms[:1] or 'nothing noticed'}")
report(
    {
        "the scheduler dies": crash is not None,
        "the end of the refused turn gives the KV of the finished one away; slots are lost": bool(server.alarms),
    }
)
