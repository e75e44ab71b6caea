"""A refused turn clears the in-flight marker of the turn that runs: python docs/findings/refused_turn_frees_the_session.py"""

from harness import Server, report

server = Server()
server.open("a")
server.send("a/1", 13, 5, session="a")
server.drain()

server.send("a/2", 7, 30, session="a")
server.steps(3)
server.send("a/3", 5, 4, session="a")  # refused, as a/2 runs
server.steps(2)
running, busy = server.running("a/2") is not None, server.busy("a")
server.send("a/4", 5, 4, session="a")  # admitted
server.steps(2)
one_row = server.row("a/4") is not None and server.row("a/4") == server.row("a/2")
crash = None
try:
    server.drain()
    server.close("a")
    server.drain()
except Exception as error:
    crash = error

print(f"crash: {type(crash).__name__}: {crash}" if crash else f"memory check: {server.alarms[:1] or 'nothing noticed'}")
# SGLang's check compares sums. A slot that is freed twice makes up for one that is lost, so the slots are looked at by name.
slots = server.free_slots()
print(
    f"free list at the end: {len(slots)} entries, {len(set(slots))} different ones; {server.tree_tokens()} in the tree, of 512"
)
lost = 512 - len(set(slots)) - server.tree_tokens()
report(
    {
        "a refused turn clears the marker of the turn that runs": running and not busy,
        "a third turn is admitted beside it, onto the same row of req_to_token": one_row,
        "KV slots are lost, or the scheduler dies": crash is not None or lost > 0,
        "slots are in the free list twice: the next requests share them": len(slots) > len(set(slots)),
    }
)
