"""Go programs that tests and the local stack build from small modules of this repository."""
