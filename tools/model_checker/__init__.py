"""Checks every interleaving of a small cluster with the real decisions.

The allocator's ``handle`` and the executor's rules and writes are step functions, over a model of
the bus (``world``) and an API server of single objects (``server``). ``search`` visits every state
of a bound, ``invariants`` checks each, ``trace`` prints the shortest path to a violation, and
``bounds`` limits the size of the clusters.

Reductions of the search, and their limits:

- **Delays are in appends.** A replica that acts on old data equals one that acted earlier and whose
  appends are late. So replicas read at once, and only their appends are delayed. Facts that are
  behind the log are not visited (the allocator's ``complete`` and property tests cover them); a log
  that is behind the facts is visited if the bound lets such a replica void claims.
- **Executors have no state.** An executor may have read every object at any earlier time: a step of
  a decision is evaluated for every combination of versions of its objects, and is taken if the
  server accepts the write. So any number of executors carries out every decision, each stopped at
  any step. All bind pods for dray: executors of gated pods and epochs are not modelled.
- **A PodGroup does not change.** Executors may have found its verdict at any earlier time, from any
  versions of its pods and claims. Its deadline counts from the decision and acts on the newest
  objects. A decision counts once all of its parts are in the log.
- **A record's writer is dropped** when all replicas have read the record, and so is the number of
  facts that the writer had read. This divides the number of states by ten.
- **Commands without effect are dropped**: claims never lose void attempts.
- **Certain refusals arrive at once**: until then a replica could only send more refused appends.
- **When only time can pass**, one fair path is followed instead of all.
- **Symmetry.** A state and the same state with exchanged replicas are one state.
- **Interning.** Objects, records and replicas' states are stored once; each transition is computed
  once by the real code. States of a replica that differ only in caches are one (``state_key`` of
  ``replicas``).
"""
