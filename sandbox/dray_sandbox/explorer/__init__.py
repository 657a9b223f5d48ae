"""Every interleaving of a small world, run through the real decisions.

The allocator's ``handle`` and the executor's questions are step functions here, over a model of
the bus (``world``) and an API server of single objects (``server``). ``search`` visits every
state that a bound allows, ``judge`` holds each against what may never be, ``words`` tells the
shortest way to what is wrong.

What makes the search small, and why nothing is lost by it:

- **Laziness.** Who sleeps at any step is the same as who acts later from what it read before. So
  nobody reads: a replica acts at once upon a prefix of the log and what is published, and only
  acting is a step. An executor's write takes place when the server has it, and what was read for
  it may be any older version of any object. Reading without consequence is no step.
- **Executors keep nothing** that the model would have to keep: with an order in hand, one that
  slept is one that starts. Any number of them may carry out any decision of the log, at any
  time, from any older picture; two are among them, and so is a crash between any two writes.
- **Publication is lazy**: a fact is stored when a replica first acts upon it.
- **Symmetry.** Replicas are alike: a state and the one with both exchanged are one state.
- **Small numbers.** Objects, records and replicas' states are kept once each; a transition of
  one of them is computed once by the real code and looked up from then on.
"""
