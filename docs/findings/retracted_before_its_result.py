"""A turn is retracted before its first result is there: python docs/findings/retracted_before_its_result.py"""

from harness import Server, report


def nothing():
    pass


def dies(new):
    """A session's first turn of so many tokens beside an ordinary request, with the overlap scheduler."""
    server = Server(disable_overlap_schedule=False)
    server.send("plain", 1, 20)
    server.open("a")
    server.send("a/1", new, 10, session="a")
    try:
        server.overlapped(nothing, server.retract, *[nothing] * 4)
    except Exception as error:
        print(f"the scheduler: {type(error).__name__}: {error}")
        return True
    return False


report({"a first turn of one token, retracted before its first result, kills the scheduler": dies(1)})
