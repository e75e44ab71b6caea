"""Wrong rules and altered traces that kvproof must find, and harmless ones that it must let pass: `make referee`."""
