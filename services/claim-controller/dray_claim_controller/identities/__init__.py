"""Identities of node-agents on the bus: NATS asks, and Kubernetes confirms the node.

nats-server hands every connection without a configured user to its authentication callout. Any
claim-controller answers it: a TokenReview says which node the agent's token is bound to, and the
answer is a NATS user with the rights of that node alone.
"""
