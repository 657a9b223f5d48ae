"""Every interleaving of a small world, run through the real decisions.

The allocator's ``handle`` and the executor's questions and writes are step functions here, over a
model of the bus (``world``) and an API server of single objects (``server``). ``search`` visits
every state that a bound allows, ``judge`` holds each against what may never be, ``words`` tells
the shortest way to what is wrong. ``bounds`` says how large the worlds are.

What keeps the search small, and what it costs:

- **Who is late has sent already.** A replica that acts upon what is old is one that acted when it
  was new, and whose appends were long on their way. So replicas read at once, and what waits is
  what they sent. Facts that are behind the log are therefore not visited (``complete`` of the
  allocator's state guards against them; the property tests hand them in); a log that is behind
  the facts is, where the bound lets such a replica ask for voids.
- **Executors are nobody.** All that one knows it may have read long ago: a step of a decision is
  asked of every combination of versions of the objects that it looks at, and happens where the
  server takes the write. So any number of executors carries out every decision of the log, each
  asleep or dead at any step. They all bind for dray: what an executor of a gated pod remembers is
  not modelled, nor are epochs.
- **Who wrote a record is forgotten** once everybody has read it: it is the same to all by then. So
  is how many facts its writer had read: here nobody ever has fewer. It divides states by ten.
- **A command that can do nothing any more is forgotten**: claims never lose what voids attempts.
- **A refusal that is sure is heard at once**: until then a replica could only send more of what
  is refused.
- **Once only time is left to pass**, one fair way on is followed, not all.
- **Symmetry.** A state and the same with both replicas exchanged are one state.
- **Small numbers.** Objects, records and replicas' states are kept once each; a transition of
  one of them is computed once by the real code and looked up from then on. Two states of a replica
  are one if they differ in caches only (``essence`` of ``replicas``).
"""
