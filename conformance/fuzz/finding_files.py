"""What lies in the folder of a finding, by name: whoever only reads them needs nothing of the fuzzer."""

SCHEDULE, TRACE, REPORT, TEST = "schedule.json", "trace.jsonl", "report.txt", "test_finding.py"
