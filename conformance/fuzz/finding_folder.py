"""What a finding leaves in its folder: the schedule, the trace, a report, a test that fails, and the command to do it again."""

from __future__ import annotations

import shlex
from pathlib import Path

from kvproof.conformance.fuzz.campaign import Found
from kvproof.conformance.fuzz.finding_files import REPORT, SCHEDULE, TEST, TRACE
from kvproof.conformance.fuzz.isolation import InThisProcess, Isolated, Player
from kvproof.conformance.fuzz.play import STEP_SECONDS, Played, Trouble
from kvproof.conformance.fuzz.schedule import Schedule
from kvproof.conformance.fuzz.target import Target
from kvproof.conformance.fuzz.targets import target_named, target_of_file, to_play_again
from kvproof.conformance.printable import for_reading
from kvproof.conformance.replay.finding_words import NO_FAULT, finding_lines
from kvproof.conformance.traces.open_trace import write_trace
from kvproof.conformance.whole_file import make_folder, writing


def require_writable(folder: Path) -> None:
    """Before the first step, not after an hour. Raises UserError."""
    with writing(folder):
        make_folder(folder)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()


def leave(found: Found, folder: Path) -> Path:
    """Write all that belongs to one finding into its own folder; return that."""
    place = folder / str(found.number)
    make_folder(place)
    found.schedule.save(place / SCHEDULE)
    if found.played.header is not None:
        with write_trace(place / TRACE, found.played.header) as writer:
            for event in found.played.events:
                writer.write(event)
            writer.close(f"fuzzed: {found.trouble.signature}")
    write_text(place / REPORT, "\n".join(report_lines(found.trouble, found.played, place)) + "\n")
    write_text(place / TEST, _test_of(found))
    return place


def write_text(path: Path, text: str) -> None:
    """What a target raised may hold halves of characters, as file names do: these are spelled out."""
    path.write_text(text, encoding="utf-8", errors="backslashreplace")


def report_lines(trouble: Trouble, played: Played, place: Path | None = None) -> list[str]:
    """The finding for people: what went wrong, the schedule, the event, how to do it again."""
    schedule = played.schedule
    known = ", ".join(trouble.faults) or f"{NO_FAULT}: new"
    if trouble.after:
        known += f", or an effect of {', '.join(trouble.after)}: known of the target, met before and followed"
    settings = ", ".join(f"{name}={value}" for name, value in schedule.settings.items()) or "all as usual"
    lines = [f"{trouble.kind}: {trouble.sentence}", f"  signature  {trouble.signature}", f"  explained by  {known}"]
    lines += [f"  target     {schedule.target}" + "".join(f" --fault {fault}" for fault in schedule.faults)]
    lines += [f"  judged by  profile {schedule.profile}"] if schedule.profile else []
    lines += [
        f"  settings   {settings}",
        f"  schedule   {len(schedule.acts)} acts, {played.steps} steps with the drain",
    ]
    lines += [f"    {number:>3}  {act}" for number, act in enumerate(schedule.acts, 1)]
    if trouble.finding is not None:
        lines += ["", *(line.plain for line in finding_lines(trouble.finding))]
    if trouble.trace:
        lines += ["", *trouble.trace.splitlines()]
    if place is not None:
        lines += ["", f"again: {to_play_again(schedule.target, place)}"]
        if played.header is not None:
            profile = f" --profile {schedule.profile}" if schedule.profile else ""
            lines += [f"trace: kvproof replay {shlex.quote(str(place / TRACE))}{profile}"]
    return lines


def replay_finding(
    place: Path, *, chosen: str | None = None, isolates: bool | None = None, step_seconds: float = STEP_SECONDS
) -> Played:
    """Play the schedule of a folder once more. `chosen`: the target that the user named, without which only those that are
    kvproof's own are played. Raises UserError for another one."""
    path = place / SCHEDULE if place.is_dir() else place
    schedule = Schedule.load(path)
    return _play_again(schedule, target_of_file(path, schedule.target, chosen), isolates, step_seconds)


def _play_again(
    schedule: Schedule, target: Target, isolates: bool | None = None, step_seconds: float = STEP_SECONDS
) -> Played:
    """`isolates`: in a process of its own; by default whatever may not leave this one as it was."""
    is_alone = schedule.target != "reference" if isolates is None else isolates
    player: Player = (Isolated if is_alone else InThisProcess)(target, step_seconds)
    try:
        return player.play(schedule)
    finally:
        player.close()


def check_schedule(schedule: Schedule) -> None:
    """Play a schedule; AssertionError with the report if anything goes wrong. For tests."""
    played = _play_again(schedule, target_named(schedule.target))
    if played.trouble is not None:
        raise AssertionError("\n".join(report_lines(played.trouble, played)))


def _test_of(found: Found) -> str:
    schedule = found.schedule
    acts = "\n".join(f"    {act.model_dump(exclude_defaults=True)!r}," for act in schedule.acts)
    # What is not kvproof's own words is written as a literal or a comment: it may hold quotes, and this file is code.
    return f'''# {for_reading(found.trouble.signature)}
"""Found by `kvproof fuzz`. Fails as long as the target does it, under pytest or run by itself; FAULTS are the known ones that
were switched on in it, and PROFILE is whose rules it is judged by.
"""

from kvproof.conformance.fuzz.finding_folder import check_schedule
from kvproof.conformance.fuzz.schedule import Schedule

TARGET = {schedule.target!r}
PROFILE = {schedule.profile!r}
FAULTS = {list(schedule.faults)!r}
SETTINGS = {schedule.settings!r}
ACTS = [
{acts}
]


def test_finding() -> None:
    schedule = {{"target": TARGET, "profile": PROFILE, "faults": FAULTS, "settings": SETTINGS, "acts": ACTS}}
    check_schedule(Schedule.model_validate(schedule))


if __name__ == "__main__":
    test_finding()
'''
