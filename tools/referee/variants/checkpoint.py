"""A checkpoint that is not what the last successful turn left."""

from __future__ import annotations

from types import SimpleNamespace

from kvproof.spec.actions import Step
from kvproof.spec.domain import Domain
from kvproof.spec.effects import Succeed
from kvproof.spec.state import Ledger, fill_len
from referee.cases import Variants
from referee.variants.changes import built_in, with_effects, with_fields, without, without_guard

CHECKPOINT = Variants("a checkpoint that is not what finished")


@CHECKPOINT.wrong("finish", must="I14")
def checkpoint_of_all_that_was_sampled(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Tokens behind the stop word count as the session's: the next turn must repeat what the user never saw."""
    return with_fields(built_in("finish", d, s, p), checkpoint_len=fill_len(s), success_len=fill_len(s))


@CHECKPOINT.wrong("finish", must="I14")
def finish_without_the_end_of_its_input(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A turn counts for one token less than its input: the next turn has only a part of the prompt to build on."""
    target = s.origin_len - d.one
    right = without(built_in("finish", d, s, p), Succeed)
    return with_effects(with_fields(right, checkpoint_len=target), Succeed(target))


@CHECKPOINT.wrong("finish", must="I14")
def checkpoint_runs_ahead(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The checkpoint is one token longer than the turn: the next turn must say a token that does not exist."""
    target = s.origin_len + p.finished_len + d.one
    return with_fields(built_in("finish", d, s, p), checkpoint_len=target, success_len=target)


@CHECKPOINT.wrong("finish", must="I14")
def keep_more_than_was_generated(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A finish may keep more output than there is: the checkpoint counts tokens of the future."""
    return without_guard(built_in("finish", d, s, p), "no more than what was generated")


@CHECKPOINT.wrong("finish", must="I8, I14")
def checkpoint_stays(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A finished turn does not count: the next turn overwrites its answer."""
    return with_fields(built_in("finish", d, s, p), checkpoint_len=s.checkpoint_len, success_len=s.success_len)


@CHECKPOINT.wrong("finish", must="I8, I14")
def checkpoint_without_the_answer(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The checkpoint ends with the prompt: the slot holds an answer that the session does not know."""
    return with_fields(built_in("finish", d, s, p), checkpoint_len=s.origin_len, success_len=s.origin_len)


@CHECKPOINT.wrong("abort_nth", must="I14")
def abort_counts_as_success(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """An aborted turn advances the checkpoint: the next turn must build on half an answer."""
    return with_fields(built_in("abort_nth", d, s, p), checkpoint_len=fill_len(s), success_len=fill_len(s))


@CHECKPOINT.wrong("abort_queued", must="I14")
def queued_abort_counts_as_success(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A turn that never ran advances the checkpoint by its input: the session claims a turn that nobody answered."""
    reached = d.where(d.every(s.is_open, d.no(s.pre_aborted)), s.origin_len, s.checkpoint_len)
    return with_fields(built_in("abort_queued", d, s, p), checkpoint_len=reached, success_len=reached)


@CHECKPOINT.wrong("abort_first", must="I14")
def abort_forgets_earlier_turns(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """An abort forgets the turns that finished before: the client's history is no longer the session's."""
    return with_fields(built_in("abort_first", d, s, p), checkpoint_len=d.zero, success_len=d.zero)


@CHECKPOINT.wrong("abort_retracted", must="I14")
def retracted_abort_forgets_earlier_turns(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The abort of a retracted turn resets the session to nothing, although its earlier turns succeeded."""
    return with_fields(built_in("abort_retracted", d, s, p), checkpoint_len=d.zero, success_len=d.zero)


@CHECKPOINT.wrong("open", must="I14")
def open_with_a_past(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A new session begins with a token that nobody said: no client can send a turn of one token."""
    return with_fields(built_in("open", d, s, p), checkpoint_len=d.one, success_len=d.one)


@CHECKPOINT.wrong("close", must="X1")
def close_keeps_the_checkpoint(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A closed session keeps its checkpoint: the next session of that name inherits a stranger's history."""
    return with_fields(built_in("close", d, s, p), checkpoint_len=s.checkpoint_len, success_len=s.success_len)


@CHECKPOINT.wrong("detach", must="I8, I14")
def detach_resets_the_checkpoint(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A too-long turn resets its session: the slot holds tokens that the session does not know any more."""
    return with_fields(built_in("detach", d, s, p), checkpoint_len=d.zero, success_len=d.zero)


@CHECKPOINT.wrong("retract", must="I14")
def retract_lowers_the_checkpoint(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A retract resets the checkpoint: if the turn is aborted now, its client's earlier turns are gone."""
    return with_fields(built_in("retract", d, s, p), checkpoint_len=d.zero, success_len=d.zero)


@CHECKPOINT.wrong("finish", must="I14")
def finish_keeps_all_that_was_sampled(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """What was sampled behind a stop word becomes the session's history: the next turn reads words that no client was given."""
    return built_in("finish", d, s, SimpleNamespace(finished_len=s.output_len))


@CHECKPOINT.wrong("finish", must="I14")
def finish_keeps_the_prompt_alone(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The answer that the client was given is no part of the session: the next turn does not know it."""
    return built_in("finish", d, s, SimpleNamespace(finished_len=d.zero))
