"""The wire types, and how a type becomes a subject, headers and bytes.

``base`` is the envelope, ``facts`` the observed state of the cluster, ``decisions`` the records of
the decision log, ``commands`` requests to one service, ``events`` notifications that no state
depends on, ``rpc`` requests and replies, ``inputs`` the inputs that are recorded for replay.
"""
