"""The webhook: what a pod asked for, whether DRA applies, and what to inject.

Pure: ``annotations`` (what was written), ``view`` (what the webhook knows), ``pools`` (which
pool, policy and base template apply), ``shape`` (the derived template), ``injection`` (the pod
with it), ``mutation`` and ``claims`` (a review in, an answer out), ``understood`` (the same in
words, for timelines), ``registration``.
Shells: ``cache`` (facts in, look-ups out), ``server`` (HTTPS); door:
``certificates``; composition root: ``app``. Nothing here talks to Kubernetes.
"""
