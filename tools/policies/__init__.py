"""What the reference implementation promises beyond the rules, asked of every decision that it takes.

The rules say what keeps every page; they leave open who is admitted first, what is evicted, and when. A server decides that all
the same, and a mistake there costs memory, time or somebody's turn, and loses no page. Each policy is stated here once more, in
few words, by somebody who only looks on: the decision is taken, then it is compared with what it should have been.

`Policies` is for the reference only. Another server has others.
"""

from policies.all_policies import Policies
from policies.broken import PolicyBroken
from policies.policed_reference import PolicedReference, watched_scheduler

__all__ = ["PolicedReference", "Policies", "PolicyBroken", "watched_scheduler"]
