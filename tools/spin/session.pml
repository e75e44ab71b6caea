/* The rules of spec/ for one fixed page size, as a model for SPIN: the yardstick of `make bench-prove`, not a source of truth.
 *
 * One process is one ledger: a session with its slot and turn, or an ordinary request. Written by hand from spec/actions and
 * spec/effects for servers without overlap, speculation and sliding window. Each action is one d_step; its parameters are
 * spelled out by FOR_LEN. Side conditions of effects and, after each step, the invariants are assertions. A step and its check
 * are one atomic sequence.
 *
 *   spin -DP=2 -DW=4 -DN=1 [-DF22862B | -DF22790E] -a session.pml && gcc -O2 -DSAFETY -DBFS -o pan pan.c && ./pan
 *
 * With -DLIVENESS the claims at the end are checked instead, on one ledger that two processes share. The first takes any rule at
 * any time: users, memory pressure, a scheduler that rejects. The second is the scheduler that goes on: it takes only the WAYs
 * that bring a turn nearer to its end. Weak fairness (-f) is all that is assumed of it: it is not kept waiting forever.
 *
 *   spin -DLIVENESS [-DF994E | -DS0511A | -DS0511B | -DNOT_MATCHED] -a session.pml && gcc -O2 -o pan pan.c
 *   ./pan -a -f -A -N ends
 */
#ifndef P
#define P 1            /* page size, tokens */
#endif
#ifndef W
#define W 3            /* row width, tokens: at most 6 */
#endif
#ifndef N
#define N 1            /* ledgers */
#endif

#define NONE 0
#define WAITING 1
#define PREFILL 2
#define RUNNING 3

#ifdef LIVENESS
#define LEDGERS 1
#define PROCESSES 2
#define S ledger[0]
#define WAY(when) (_pid == 0 || (when))
#define FITS(tokens) ((tokens) < W)   /* the input and what a client asks for are bounded: the next token fits */
#else
#define LEDGERS N
#define PROCESSES N
#define S ledger[_pid]
#define WAY(when) 1
#define FITS(tokens) 1
#endif
#define NO_WAY WAY(0)

typedef Ledger {
  bit is_open, closing, inflight, slot_held, plain, matched, pre_aborted, logprob, lent, paid;
  byte checkpoint, slot_C, slot_A, slot_R;
  byte phase, origin, output, prefix, C, A, R, pending;
  byte turns, success, rows, locks, row_end, tree_end, orphans, kv_valid
};

Ledger ledger[LEDGERS];

/* A retract is paid for by a token since the turn's prefill. */
#ifdef F994E
#define PAID 1
#else
#define PAID S.paid
#endif

#define MIN(a, b) (((a) <= (b)) -> (a) : (b))
#define MAX(a, b) (((a) <= (b)) -> (b) : (a))
#define FLOOR(n) ((n) / P)
#define CEIL(n) (((n) + P - 1) / P)
#define ALIGNED(n) (((n) % P) == 0)
#define FILL (S.origin + S.output)
#define LIVE (S.phase == PREFILL || S.phase == RUNNING)
#define SLOT_OWNS (S.slot_held && !(S.lent && LIVE))
#define HOLDS_ROW (S.slot_held || LIVE)
#define RESULTS_IN (1 <= S.output && S.pending == 0)
#define STILL_READ (LIVE -> S.C : (SLOT_OWNS -> S.slot_C : 0))
#define HELD (SLOT_OWNS -> CEIL(S.slot_A) - FLOOR(S.slot_R) : 0)
#define UNCACHED (LIVE -> CEIL(S.A) - FLOOR(S.R) : 0)
#define IMPLIES(a, b) (!(a) || (b))
#define IDLE (S.slot_held && S.turns == 0)
#define QUEUED (S.slot_held && S.phase == WAITING)
#define MAY_RETRACT (S.phase == RUNNING && PAID && FITS(FILL))
#define TO_ABORT (S.pre_aborted && S.phase == RUNNING && S.pending == 0)

/* Effects: ghosts change, side conditions are asserted. */
inline take_row(when) {
  if
  :: (when) -> assert(S.rows == 0); S.rows = S.rows + 1; S.row_end = 0; S.tree_end = 0; S.kv_valid = 0
  :: else
  fi
}
inline drop_row(when) {
  if
  :: (when) ->
    assert(S.rows == 1); assert(S.row_end == S.tree_end); assert(!LIVE);
    S.orphans = S.orphans + S.row_end - S.tree_end;
    S.rows = S.rows - 1; S.row_end = 0; S.tree_end = 0; S.kv_valid = 0
  :: else
  fi
}
inline share(when, pages) {
  if
  :: (when) -> assert(S.row_end == 0); S.row_end = pages; S.tree_end = pages; S.kv_valid = (pages) * P
  :: else
  fi
}
inline take(first, last) {
  if
  :: (first) < (last) -> assert(S.rows == 1); assert((first) == S.row_end); S.row_end = MAX(S.row_end, last)
  :: else
  fi
}
inline write(start, end) {
  if
  :: (start) < (end) ->
    assert((start) <= S.kv_valid); assert(CEIL(end) <= S.row_end); assert(S.tree_end <= FLOOR(start));
    S.kv_valid = end
  :: else
  fi
}
inline free(start, end) {
  if
  :: (start) < (end) ->
    assert(ALIGNED(start)); assert(CEIL(end) == S.row_end); assert(S.tree_end <= FLOOR(start));
    assert(CEIL(STILL_READ) <= FLOOR(start));
    S.row_end = FLOOR(start); S.tree_end = MIN(S.tree_end, FLOOR(start));
    S.kv_valid = MIN(S.kv_valid, FLOOR(start) * P)
  :: else
  fi
}
inline forget(end) { S.kv_valid = MIN(S.kv_valid, end) }
inline insert(when, pages, duplicates, from) {
  if
  :: (when) ->
    assert((pages) <= S.row_end); assert(S.tree_end <= (pages)); assert((duplicates) <= (pages));
    assert(IMPLIES(S.tree_end < (duplicates), (from) == S.tree_end)); S.tree_end = pages
  :: else
  fi
}
inline lock(when) { if :: (when) -> S.locks = S.locks + 1 :: else fi }
inline unlock(when) { if :: (when) -> assert(S.locks == 1); S.locks = S.locks - 1 :: else fi }
inline release_row(when, protected, allocated) {
  unlock(when);
  if :: (when) -> free(protected, allocated) :: else fi;
  drop_row(when)
}

/* What remains of a ledger. */
inline end_turn() {
  S.plain = 0; S.phase = NONE; S.matched = 0; S.pre_aborted = 0; S.logprob = 0; S.lent = 0;
  S.origin = 0; S.output = 0; S.prefix = 0; S.C = 0; S.A = 0; S.R = 0; S.pending = 0; S.paid = 0
}
inline drop_slot() { S.slot_held = 0; S.slot_C = 0; S.slot_A = 0; S.slot_R = 0 }
inline over() {
  if :: !S.plain -> S.turns = S.turns - 1 :: else fi;
  end_turn(); S.inflight = 0
}
inline save_slot() {
  S.slot_C = S.C; S.slot_A = S.A;
  if :: !S.slot_held -> S.slot_R = S.R :: else fi;
  S.slot_held = 1
}
inline queue_again() {
  S.phase = WAITING; S.matched = 0; S.lent = 0; S.prefix = 0; S.C = 0; S.A = 0; S.R = 0; S.pending = 0; S.paid = 0
}

/* The invariants that are predicates on the ledger. */
inline holds() {
  assert(S.orphans == 0 && S.tree_end <= S.row_end);                                             /* I1 */
  assert(IMPLIES(LIVE, S.row_end == CEIL(S.A)) && IMPLIES(SLOT_OWNS, S.row_end == CEIL(S.slot_A)));
  assert(HELD + UNCACHED == S.row_end - S.tree_end + S.orphans);                                 /* I2 */
  assert(IMPLIES(LIVE, S.R <= S.C && S.C <= S.A && S.A <= W));                                   /* I3 */
  assert(IMPLIES(S.slot_held, S.slot_R <= S.slot_C && S.slot_C <= S.slot_A && S.slot_A <= W));
  assert(IMPLIES(HOLDS_ROW, S.turns <= 1) && IMPLIES(S.lent, S.slot_held) && S.rows <= 1);       /* I5 */
  assert(IMPLIES(S.phase == WAITING && S.matched && S.slot_held, S.lent));
  assert(IMPLIES(LIVE && !S.lent, !S.slot_held));
  assert(IMPLIES(S.phase == WAITING && S.lent, S.row_end <= CEIL(S.prefix)));                    /* I7 */
  assert(IMPLIES(IDLE, S.slot_A <= S.checkpoint));
  assert(IMPLIES(IDLE, S.slot_C <= S.checkpoint && S.slot_C == S.kv_valid));                     /* I8 */
  assert(IMPLIES(QUEUED, MIN(S.slot_C, FILL - 1) <= S.kv_valid) && IMPLIES(LIVE, S.C <= S.kv_valid));
  assert(S.locks == (HOLDS_ROW -> 1 : 0));                                                       /* I11 */
  assert(ALIGNED(S.R) && ALIGNED(S.slot_R) && IMPLIES(LIVE, S.R == S.tree_end * P));             /* I12 */
  assert(IMPLIES(S.slot_held, S.slot_R == S.tree_end * P) && IMPLIES(S.lent, S.R == S.slot_R));
  assert(IMPLIES(S.lent && S.phase == WAITING, S.slot_R <= S.prefix));
  assert(S.checkpoint == S.success && IMPLIES(IDLE, S.slot_C <= S.success));                     /* I14 */
  assert(S.turns <= 1 && S.inflight == (S.turns == 1));                                          /* I15 */
  assert(IMPLIES(S.inflight, S.phase != NONE && S.is_open) && IMPLIES(S.phase != NONE && !S.plain, S.inflight));
  assert(IMPLIES(!HOLDS_ROW, S.rows == 0 && S.row_end == 0 && S.tree_end == 0 && S.locks == 0)); /* I16 */
  assert(IMPLIES(HOLDS_ROW, S.rows == 1) && IMPLIES(S.phase == NONE, !S.plain));
  assert(IMPLIES(S.phase == NONE || (S.phase == WAITING && !S.lent), S.C == 0 && S.A == 0));     /* I17 */
  assert(IMPLIES(S.phase == NONE, S.output == 0));
  assert(IMPLIES(S.phase == RUNNING && S.pending == 0, S.paid) && IMPLIES(S.paid, S.phase == RUNNING)); /* I18 */
  assert(IMPLIES(S.phase == RUNNING, S.C + 1 == FILL + S.pending));                              /* I22 */
  t1 = 0; t2 = 0; t3 = 0; t4 = 0
}

/* Parameters of a small instance: lengths 0 to W. */
#if W == 3
#define FOR_LEN(X) X(0) X(1) X(2) X(3)
#elif W == 4
#define FOR_LEN(X) X(0) X(1) X(2) X(3) X(4)
#elif W == 5
#define FOR_LEN(X) X(0) X(1) X(2) X(3) X(4) X(5)
#else
#define FOR_LEN(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6)
#endif

#define UNUSED (!S.is_open && !S.plain && S.phase == NONE)

#define CREATE(len, too_long, wants_logprob) \
  :: d_step { NO_WAY && FITS(len) && S.is_open && !S.inflight && !S.closing && (too_long || S.checkpoint < len) && (!too_long || len == 1) -> \
       end_turn(); S.inflight = 1; S.phase = WAITING; S.origin = len; S.pre_aborted = too_long; \
       S.logprob = wants_logprob; S.turns = S.turns + 1 }
#define CREATES(len) CREATE(len, 0, 0) CREATE(len, 0, 1) CREATE(len, 1, 0) CREATE(len, 1, 1)

#define ARRIVE(len) \
  :: d_step { NO_WAY && FITS(len) && UNUSED && 1 <= len -> S.plain = 1; S.phase = WAITING; S.origin = len }

#define MATCH_TREE(len) \
  :: d_step { WAY(!S.matched) && S.phase == WAITING && !S.slot_held && ALIGNED(len) && len <= FILL - 1 -> \
       S.matched = 1; S.prefix = len; S.R = len }

#define CHUNK_KEPT (S.phase == PREFILL && S.prefix == S.C)
#define EXTEND(len) \
  :: d_step { WAY(len == FILL) && ((S.phase == WAITING && S.matched) || CHUNK_KEPT) && S.prefix < len && len <= FILL && len <= W -> \
       t1 = (S.phase == WAITING && !S.lent); \
       S.phase = (len == FILL -> RUNNING : PREFILL); S.pending = (len == FILL -> 1 : 0); \
       S.matched = 0; S.C = len; S.A = len; \
       take_row(t1); lock(t1); share(t1, FLOOR(S.prefix)); take(CEIL(S.prefix), CEIL(len)); write(S.prefix, len) }

#define MAY_INSERT \
  ((S.plain && LIVE) || (S.phase == RUNNING && !S.slot_held && !S.plain))
#define INSERT(dup) \
  :: d_step { WAY(S.phase == PREFILL && !CHUNK_KEPT) && MAY_INSERT && ALIGNED(dup) && FLOOR(dup) <= FLOOR(S.C) && S.R <= dup && \
       S.C < FILL && (S.phase == PREFILL || 1 <= S.output) && (S.plain || S.C == S.origin) -> \
       t1 = FLOOR(S.R); S.R = FLOOR(S.C) * P; S.prefix = S.C; insert(1, FLOOR(S.C), FLOOR(dup), t1) }

#define FINISH(len) \
  :: d_step { WAY(len == S.output) && S.is_open && S.phase == RUNNING && RESULTS_IN && len <= S.output && !S.pre_aborted -> \
       t1 = S.origin + len; t2 = S.A; S.C = MIN(S.C, t1); S.A = MIN(S.A, t1); save_slot(); end_turn(); \
       S.inflight = 0; S.turns = S.turns - 1; S.checkpoint = t1; S.success = t1; \
       t3 = CEIL(t1) * P; free(t3, t2); forget(t1) }

#define FINISH_PLAIN(dup, inserted) \
  :: d_step { WAY(S.phase == RUNNING && !inserted) && S.plain && LIVE && S.pending == 0 && ALIGNED(dup) && \
       (!inserted || FLOOR(dup) <= FLOOR(S.C)) && (!inserted || S.R <= dup) -> \
       t1 = FLOOR(S.C); t2 = (inserted -> t1 * P : S.R); t3 = S.A; t4 = FLOOR(S.R); over(); insert(inserted, t1, FLOOR(dup), t4); \
       release_row(1, t2, t3) }
#define FINISHES_PLAIN(dup) FINISH_PLAIN(dup, 0) FINISH_PLAIN(dup, 1)

#ifdef F22862B
#define TAIL_START t1
#else
#define TAIL_START (CEIL(t1) * P)
#endif

#ifdef S0511A
#define RETRACTED S.inflight = 0; S.checkpoint = FILL; queue_again()     /* as if the turn had finished */
#else
#define RETRACTED queue_again()
#endif
#ifdef S0511B
#define ABORTED t1 = S.inflight; over(); S.inflight = t1                 /* the marker stays */
#else
#define ABORTED over()
#endif
#ifdef NOT_MATCHED
#define MATCHED 0
#else
#define MATCHED 1
#endif

active [PROCESSES] proctype session() {
  byte t1, t2, t3, t4;  /* 0 between steps: part of no state */
  do
  :: atomic { if
  /* the session */
  :: d_step { NO_WAY && UNUSED -> S.is_open = 1 }                                  /* open */
  FOR_LEN(CREATES)
#ifdef F22790E
  :: d_step { NO_WAY && S.is_open && S.inflight -> S.turns = S.turns + 1 }         /* create */
#else
  :: d_step { NO_WAY && S.is_open && S.inflight -> skip }                          /* refuse */
#endif
  :: d_step { NO_WAY && S.is_open -> skip }                                        /* pass_by */
  :: d_step { S.is_open && S.phase == WAITING && S.pre_aborted && S.slot_held ->   /* detach */
       end_turn(); S.inflight = 0; S.turns = S.turns - 1 }
  :: d_step { WAY(S.closing) && S.is_open && !S.inflight ->                        /* close */
       t1 = S.slot_held; t2 = S.slot_R; t3 = S.slot_A; drop_slot();
       S.is_open = 0; S.closing = 0; S.checkpoint = 0; S.success = 0; release_row(t1, t2, t3) }
  :: d_step { NO_WAY && S.is_open && S.inflight -> S.closing = 1 }                 /* defer_close */
  FOR_LEN(ARRIVE)
  /* from the queue into the cache */
  FOR_LEN(MATCH_TREE)
  :: d_step { WAY(!S.matched) && S.phase == WAITING && S.slot_held && !S.pre_aborted ->   /* match_slot */
       t1 = MIN(S.slot_C, FILL - 1); t2 = S.slot_A; assert(S.slot_R <= t1);
       S.matched = MATCHED; S.lent = 1; S.prefix = t1; S.R = S.slot_R;
       S.slot_C = MIN(S.slot_C, t1); S.C = S.slot_C; S.slot_A = t1; S.A = t1;
       t3 = TAIL_START; free(t3, t2) }
  FOR_LEN(EXTEND)
  :: d_step { WAY(!CHUNK_KEPT) && S.phase == PREFILL && !S.plain -> S.prefix = S.C }      /* stash */
  FOR_LEN(INSERT)
  /* the turn runs and ends */
  :: d_step { NO_WAY && FITS(FILL) && S.phase == RUNNING && S.pending == 0 && S.A < W ->  /* decode */
       t1 = S.A; t2 = S.C; S.C = S.C + 1; S.A = S.A + 1; S.pending = 1; take(CEIL(t1), CEIL(S.A)); write(t2, S.C) }
  :: d_step { S.phase == RUNNING && S.pending >= 1 ->                                     /* result */
       S.output = S.output + 1; S.pending = S.pending - 1; S.paid = 1 }
  :: d_step { NO_WAY && S.phase == WAITING -> skip }                                      /* late_result */
  FOR_LEN(FINISH)
  FOR_LEN(FINISHES_PLAIN)
  :: d_step { NO_WAY && MAY_RETRACT && S.is_open && S.pending <= 1 && !S.pre_aborted ->  /* retract */
       t1 = (S.pending == 0 -> S.C : FILL - 1); save_slot(); RETRACTED; forget(t1) }
  :: d_step { NO_WAY && MAY_RETRACT && S.plain ->                                         /* retract_plain */
       t1 = S.R; t2 = S.A; queue_again(); release_row(1, t1, t2) }
  :: d_step { WAY(TO_ABORT) && S.is_open && LIVE && !S.slot_held ->                       /* abort_first */
       t1 = S.R; t2 = S.A; over(); release_row(1, t1, t2) }
  :: d_step { WAY(TO_ABORT) && S.is_open && LIVE && S.slot_held ->                        /* abort_nth */
       t1 = S.slot_R; t2 = MAX(S.slot_A, S.A); drop_slot(); over(); release_row(1, t1, t2) }
  :: d_step { NO_WAY && S.phase == WAITING && !(S.slot_held && S.checkpoint < S.slot_C) -> ABORTED }  /* abort_queued */
  :: d_step { NO_WAY && S.phase == WAITING && S.slot_held && S.checkpoint < S.slot_C ->   /* abort_retracted */
       t1 = S.slot_R; t2 = S.slot_A; drop_slot(); over(); release_row(1, t1, t2) }
  :: d_step { NO_WAY -> assert(HELD + UNCACHED == S.row_end - S.tree_end + S.orphans) }   /* check */
  fi; d_step { holds() } }
  od
}

#ifdef LIVENESS
#define BUSY (S.phase != NONE || S.turns > 0)
ltl runs   { [] (S.phase == WAITING -> <> (S.phase != WAITING)) }   /* a queued turn runs or is refused */
ltl ends   { [] (BUSY -> <> !BUSY) }                                /* a turn ends, however often it is retracted */
ltl closes { [] (S.closing -> <> !S.is_open) }                      /* a close that waits is done */
#endif
