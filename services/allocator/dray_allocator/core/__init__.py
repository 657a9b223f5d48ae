"""The pure core: events in, effects out; ``recompute`` for replay."""
