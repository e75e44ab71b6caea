"""With speculation a session's next turn may reuse KV that is not its own: python docs/findings/last_token_without_kv.py"""

from drafts import Drafting
from harness import report


def nothing():
    pass


def wrong_positions(server, session, arrives=None):
    """Positions of a session's second turn, once it is prefilled, whose KV is of another token than stands there, or of none.

    `arrives`: in which pass of the first turn an ordinary request comes; else the session is alone.
    """
    first, second, wrong = f"{session}/1", f"{session}/2", []
    passes = [nothing] * 16
    if arrives is not None:
        passes[arrives] = lambda: server.send(f"{session}/plain", 5, 3)
    server.open(session)
    server.send(first, 8, 6, session=session)
    server.overlapped(*passes)

    def look():
        tokens = list(server.running(second).origin_input_ids)
        slots = server.slots(second, len(tokens))
        wrong.extend(place for place, slot in enumerate(slots) if server.written.get(slot) != tokens[place])

    server.send(second, 4, 6, session=session)
    server.overlapped(nothing, look, *[nothing] * 14)
    beside = "alone" if arrives is None else f"a request came in pass {arrives}"
    print(f"{beside}: of the 14 tokens of the first turn and 4 of the second, the KV of those at {wrong} is of others")
    server.close(session)
    server.overlapped(*[nothing] * 2)
    return wrong


drafting = Drafting()
alone = [wrong_positions(drafting, f"alone{number}") for number in range(4)]
beside = [wrong_positions(drafting, f"s{number}", 3 + number % 3) for number in range(18)]
report(
    {
        "a turn that had the server to itself hands on KV that is not its last token's": any(alone),
        "a turn that ends while another request is prefilled does": any(beside),
    }
)
