"""The wheel, its dependencies and the versions that it runs with: `make wheel-twice audit test-versions`."""
