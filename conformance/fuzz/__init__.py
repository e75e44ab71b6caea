"""Fuzzing: hostile schedules against a target, judged event by event, shrunk to the shortest that still fails."""
