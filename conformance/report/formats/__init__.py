"""What a run says, in the formats of other people's tools: all folded from one stream of events. docs/reports.md is the page."""
