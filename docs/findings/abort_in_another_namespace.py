"""An aborted turn's pages go into the tree twice: python docs/findings/abort_in_another_namespace.py"""

from harness import Server, report

POOL = 128

server = Server(max_total_tokens=POOL)
server.open("a")
server.send("a/1", 20, 3, session="a", extra_key="one")
server.drain()
server.send("a/2", 5, 50, session="a", extra_key="two")
server.steps(6)
server.abort("a/2")
server.drain()
free = server.free_tokens()
print(f"free, or in the tree: {free} of {POOL} slots", *server.alarms[:1], sep="\n")

# A server that is never idle comes here without its own check.
server.send("b", 80, 10, ignore_eos=True)
server.step()
server.send("c", 48, 6, ignore_eos=True)
server.steps(2)
if server.running("b") and server.running("c"):
    slots = server.slots("b", 80) + server.slots("c", 48)
    print(f"two requests of {len(slots)} tokens have {len(set(slots))} slots")
else:
    slots = []

report(
    {
        "the tree has pages twice, and the check of an idle server ends it": free > POOL and bool(server.alarms),
        "before the server is idle, the next requests get a slot twice": len(set(slots)) < len(slots),
    }
)
