"""Bugs of SGLang's sessions, scheduler and KV pool that kvproof can show: in which release each is, and in which it is gone.

`numbers` are upstream's pull requests that fixed it or issues that describe it, where they are known. A bug is shown in one of
four ways: a scenario that is recorded and replayed, a schedule of its own that is, a script of `docs/findings`, or the proof of
one function.
"""

from __future__ import annotations

from dataclasses import dataclass

NEWEST = "0.5.23"


@dataclass(frozen=True)
class Scenario:
    """Recorded and replayed by the model's own rules: the first violation is explained by the fault, or is of the rule."""

    name: str
    fault: str = ""
    rule: str = ""
    settings: tuple[str, ...] = ()
    """KEY=VALUE, as `kvproof record --set` takes them."""


@dataclass(frozen=True)
class Schedule:
    """`module:function` of this folder captures a scheduler at a path; by the release's own rules the replay finds the words."""

    function: str
    finds: str


@dataclass(frozen=True)
class Script:
    """A script of `docs/findings`, which says of each statement whether it is so."""

    name: str
    statement: str


@dataclass(frozen=True)
class Function:
    """`kvproof prove --code`, asked of one function: a path of it does not keep the statement."""

    rule: str
    statement: str


@dataclass(frozen=True)
class Bug:
    """`there`: a release that has it, known or one to install apart. `gone`: the next of those that are known, which has it no
    more; None: the newest has it."""

    name: str
    layer: str
    what: str
    shown_by: Scenario | Schedule | Script | Function
    there: str
    gone: str | None
    numbers: tuple[int, ...] = ()

    def is_called(self, name: str) -> bool:
        return name.removeprefix("#") in (self.name, *map(str, self.numbers))


SLOT, CONTROLLER, SCHEDULER = "session slot", "session controller", "scheduler"
TREE, CHECK, SPECULATION = "radix tree", "memory check", "speculation"
OLD, NEW = "0.5.10.post1", "0.5.11"


def _fixed_in_0_5_11(name: str, layer: str, what: str, scenario: str, *numbers: int) -> Bug:
    return Bug(name, layer, what, Scenario(scenario, name), OLD, NEW, numbers)


def _finding(script: str, layer: str, what: str, statement: str, there: str, gone: str | None, *numbers: int) -> Bug:
    return Bug(script, layer, what, Script(script, statement), there, gone, numbers)


SO = "{} is as the rule has it".format

BUGS: tuple[Bug, ...] = (
    _fixed_in_0_5_11("F22862a", SLOT, "The tail behind the matched prefix is never freed.", "retract", 22862),
    _fixed_in_0_5_11("F21875a", CONTROLLER, "A close frees the KV of a turn that runs.", "close-running", 21875),
    _fixed_in_0_5_11(
        "F21875b", SLOT, "A turn that is too long overwrites its session's row.", "too-long", 21875, 22273
    ),
    _fixed_in_0_5_11(
        "S0510e", SPECULATION, "A slot keeps rejected drafts.", "matrix-speculation-chunk-cache", 21875, 22897
    ),
    _fixed_in_0_5_11("F22213", CHECK, "A slot that is lent counts twice.", "busy-check", 22213, 22152),
    _fixed_in_0_5_11("F22790e", CONTROLLER, "A busy session admits a second turn, onto the same row.", "busy", 22790),
    _fixed_in_0_5_11(
        "S0510a", SLOT, "A first turn that is aborted is kept as if it had finished.", "abort-first", 22790
    ),
    _fixed_in_0_5_11("S0510b", SLOT, "A later turn that is aborted is kept as if it had finished.", "abort-nth", 22790),
    _fixed_in_0_5_11(
        "S0510c", CONTROLLER, "The next turn builds on one that was aborted in the queue.", "abort-queued", 22790
    ),
    _fixed_in_0_5_11(
        "S0510d", SLOT, "A retracted turn that is aborted in the queue stays in the slot.", "abort-retracted", 22790
    ),
    Bug(
        "F22790c",
        SLOT,
        "A turn that is refused before it runs takes its session's slot.",
        Function("detach", SO("inflight")),
        OLD,
        NEW,
        (22790,),
    ),
    Bug(
        "F22790d",
        CONTROLLER,
        "The checkpoint moves when a turn is created, not when it has finished.",
        Function("create", SO("checkpoint_len")),
        OLD,
        NEW,
        (22790,),
    ),
    Bug(
        "F22753",
        CHECK,
        "A queued turn's slot does not count as held, and its row neither.",
        Function("check, slots' rows", SO("the number of rows")),
        OLD,
        NEW,
        (22753,),
    ),
    Bug(
        "F22651",
        SPECULATION,
        "A slot inherits one token less than its turn has.",
        Function("finish", SO("slot_kv_committed_len")),
        OLD,
        NEW,
        (22651,),
    ),
    Bug(
        "F22897",
        SPECULATION,
        "What a speculative round wrote past a turn's end goes into the slot.",
        Function("finish", SO("slot_kv_allocated_len")),
        OLD,
        NEW,
        (22897,),
    ),
    Bug(
        "F22900",
        SLOT,
        "The window cursor stays behind the length to which the row was cut.",
        Function("finish", SO("slot_swa_evicted_seqlen")),
        OLD,
        NEW,
        (22900,),
    ),
    Bug(
        "protected-len-of-retracted",
        SCHEDULER,
        "A retracted request keeps the old cache_protected_len.",
        Function("retract, lengths", SO("cache_protected_len")),
        OLD,
        NEW,
    ),
    Bug(
        "late-result",
        SPECULATION,
        "A result that arrives after its turn has ended still raises kv_committed_len.",
        Function("late_result", SO("kv_committed_len")),
        NEW,
        "0.5.12",
        (23456,),
    ),
    Bug(
        "window-of-slots",
        CHECK,
        "The window tokens of slots are counted wrongly below a page boundary.",
        Function("check, slots' window", SO("the sum over the slots")),
        "0.5.17",
        "0.5.20",
    ),
    Bug(
        "window-of-live-turns",
        CHECK,
        "The window tokens of a live turn are counted wrongly below a page boundary.",
        Function("check, live turns' window", SO("tokens of the live turn in the window pool")),
        "0.5.17",
        "0.5.20",
    ),
    _finding(
        "chunk_without_room",
        SCHEDULER,
        "A prompt whose next chunk gets no pages continues without its KV.",
        "a request generates with most of its prompt never computed",
        NEW,
        "0.5.12",
    ),
    _finding(
        "full_of_rows",
        SCHEDULER,
        "A request kills the scheduler once sessions hold all rows.",
        "the next request kills the scheduler",
        NEW,
        "0.5.12",
    ),
    Bug(
        "abort-of-a-chunked-prompt",
        SCHEDULER,
        "The abort of a prompt that runs in chunks is not heeded before its end.",
        Scenario("abort-chunked", rule="a turn that is to be aborted ends", settings=("chunked_prefill_size=8",)),
        "0.5.12",
        "0.5.14",
        (28086,),
    ),
    _finding(
        "near_the_pool",
        SCHEDULER,
        "A request nearly as long as the pool is accepted and waits for ever.",
        "with the whole pool free, a request that needs 28 of its 32 tokens waits for ever",
        NEW,
        "0.5.12",
        25126,
    ),
    _finding(
        "tree_gives_up_a_prefix_in_use",
        TREE,
        "The tree evicts pages that a running request reads.",
        "slots that a running request reads are in the free list",
        "0.5.14",
        "0.5.17",
    ),
    Bug(
        "freed-in-a-group",
        TREE,
        "Of a window page that is freed in a free group, another one goes back, which the tree still has.",
        Schedule("drive_one_group:begin_alike", "is in the free list and owned by page"),
        "0.5.18",
        "0.5.20",
        (36081, 36381),
    ),
    _finding(
        "refused_turn_of_a_closed_session",
        CONTROLLER,
        "A refused turn of a closed session makes a slot that nobody has.",
        "a slot that nobody has keeps the KV and the row of the refused turn for ever",
        "0.5.17",
        "0.5.20",
    ),
    _finding(
        "refused_turn_on_a_new_session",
        CONTROLLER,
        "A refused turn frees the KV of the session's finished one.",
        "the end of the refused turn gives the KV of the finished one away; slots are lost",
        "0.5.17",
        "0.5.20",
    ),
    _finding(
        "full_of_rows",
        SCHEDULER,
        "A request waits for ever though rows are free again.",
        "the next request waits for ever, also when rows are free again",
        "0.5.20",
        NEWEST,
        28530,
        22518,
    ),
    _finding(
        "full_of_sessions",
        SCHEDULER,
        "A batch that was full once stays full: with the whole pool free nothing is admitted.",
        "with the whole pool free, a request that once did not fit waits for ever",
        "0.5.20",
        NEWEST,
        28530,
        22518,
    ),
    _finding(
        "queued_abort_keeps_the_session_busy",
        CONTROLLER,
        "A session whose queued turn was aborted stays busy for ever.",
        "the session's next turn is refused",
        "0.5.20",
        NEWEST,
        31765,
    ),
    _finding(
        "abort_of_a_refused_turn",
        CONTROLLER,
        "The abort of a refused turn frees the session of the turn that runs.",
        "the abort of a refused turn clears the marker of the turn that runs",
        NEWEST,
        None,
        40250,
    ),
    _finding(
        "refused_turn_frees_the_session",
        CONTROLLER,
        "A refused turn frees the session: a third turn shares the row of the one that runs.",
        "a third turn is admitted beside it, onto the same row of req_to_token",
        NEWEST,
        None,
        40250,
    ),
    _finding(
        "refused_turn_frees_the_session",
        CONTROLLER,
        "Slots are in the free list twice: the next requests share them.",
        "slots are in the free list twice: the next requests share them",
        NEWEST,
        None,
    ),
    _finding(
        "refused_turn_of_a_closed_session",
        CONTROLLER,
        "A refused turn of a closed session kills the scheduler.",
        "the scheduler dies",
        NEWEST,
        None,
    ),
    _finding(
        "refused_turn_on_a_new_session",
        CONTROLLER,
        "A refused turn on a new session kills the scheduler.",
        "the scheduler dies",
        NEWEST,
        None,
    ),
    _finding(
        "retract_ends_the_turn",
        SLOT,
        "A retract counts as the end of the turn: the session admits another beside it.",
        "a session whose turn was retracted is not busy any more, and admits another turn beside it",
        NEWEST,
        None,
    ),
    _finding(
        "retracted_before_its_result",
        SCHEDULER,
        "A turn of one token, retracted before its first result, kills the scheduler.",
        "a first turn of one token, retracted before its first result, kills the scheduler",
        NEWEST,
        None,
    ),
    _finding(
        "abort_in_another_namespace",
        SLOT,
        "The abort of a turn with another extra_key puts its session's pages into the tree twice.",
        "before the server is idle, the next requests get a slot twice",
        NEWEST,
        None,
    ),
    _finding(
        "given_up",
        SCHEDULER,
        "Two turns outgrow the pool: one waits for ever, and the pool stays full.",
        "of two turns that outgrow the pool one waits for ever, and the pool stays full",
        NEWEST,
        None,
        27024,
    ),
    _finding(
        "own_row",
        SCHEDULER,
        "With all rows held by sessions, their own next turns wait for ever.",
        "with all rows held by sessions, the next turn of each of them waits for ever",
        NEWEST,
        None,
        27024,
    ),
    _finding(
        "chunk_cache_ignores_the_session",
        SLOT,
        "Without a radix tree a session's second turn kills the scheduler.",
        "the second turn kills the scheduler",
        NEWEST,
        None,
    ),
    _finding(
        "last_token_without_kv",
        SPECULATION,
        "A slot claims a token whose KV was never computed.",
        "a turn that had the server to itself hands on KV that is not its last token's",
        NEWEST,
        None,
    ),
)
