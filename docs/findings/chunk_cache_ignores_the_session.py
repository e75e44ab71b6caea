"""With --disable-radix-cache the second turn of a session kills the scheduler if it ignores the end token."""

from harness import Server, report

server = Server(disable_radix_cache=True, chunked_prefill_size=16)
server.open("a")
crash = None
try:
    for number in (1, 2):
        server.send(f"a/{number}", 37, 4, session="a", ignore_eos=True)
        server.drain()
except Exception as error:
    crash = error
    place = error.__traceback__
    while place.tb_next is not None:
        place = place.tb_next
    print(f"crash: {type(error).__name__} in {place.tb_frame.f_code.co_name}")
report({"the second turn kills the scheduler": crash is not None})
