"""What a run says, in the formats of other people's tools: all folded from one stream of events. docs/formats.md is the page."""
